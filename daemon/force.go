package daemon

import (
	"fmt"
	"strings"
	"time"
)

// Force is the one way past a lease that somebody else holds, and it has a
// price.
//
//   - It names the epoch that the operator saw (L9): a second operator who was
//     faster, or a holder that came back, makes it void. So does the grant itself:
//     a unit that keeps the flag forces nothing the next time.
//   - A holder that is alive is found out by watching for one of its renewals, and
//     is deposed only on a word of its own.
//   - A dead daemon is not dead jobs (L14): their keeper may live on until its leash
//     ends. The forced holder serves the API and touches no job before that, unless
//     the operator attests that the old host is off.

// Force says which lease to take by force, and what the operator answers for.
type Force struct {
	Epoch      int64  // the epoch to depose; 0 is no force
	DeposeLive bool   // also a holder that renews
	OldHostOff string // the host that the operator attests to be off; "" is no attestation
	By         string
}

// Check refuses flags that only make sense together.
func (f Force) Check() error {
	switch {
	case f.Epoch < 0:
		return Errorf(Usage, "--force-lease=%d: an epoch is at least 1", f.Epoch).Hint("exocomp lease shows the epoch")
	case f.Epoch == 0 && f.DeposeLive:
		return Errorf(Usage, "--depose-live deposes nobody without --force-lease=EPOCH").Hint("exocomp lease shows the epoch")
	case f.Epoch == 0 && f.OldHostOff != "":
		return Errorf(Usage, "--old-host-is-off attests for nothing without --force-lease=EPOCH").
			Hint("exocomp lease shows the epoch")
	}
	return nil
}

// reason is what the lease row and the history say about it.
func (f Force) reason() string {
	parts := []string{fmt.Sprintf("epoch %d deposed", f.Epoch)}
	if f.DeposeLive {
		parts = append(parts, "also if alive")
	}
	if f.OldHostOff != "" {
		parts = append(parts, "attested: host "+f.OldHostOff+" is off")
	}
	return strings.Join(parts, ", ")
}

// lookOut is how long a row is watched before it is taken by force: a living
// holder renews within that.
func (s sighting) lookOut() time.Duration {
	renew := time.Duration(s.row.RenewMs) * time.Millisecond
	return min(renew, s.row.TTL()/3) + Terms{TTL: s.row.TTL()}.Attempt()
}

// decideForce judges a row whose epoch the operator named.
func decideForce(now Instant, w wish, s sighting) grant {
	row := s.row
	if off := w.force.OldHostOff; off != "" && off != row.Host {
		return grant{refuse: Errorf(Conflict, "--old-host-is-off=%s attests for the wrong host: the lease is held on host %s (epoch %d)",
			off, row.Host, row.Epoch).Hint("make sure that %s is off, and name that one", row.Host)}
	}
	if !w.force.DeposeLive {
		if s.moved {
			return grant{refuse: Errorf(Held, "the lease is held by %s on host %s (epoch %d), which is alive: "+
				"it renewed while this daemon watched. It is not deposed by --force-lease alone", row.Holder, row.Host, row.Epoch).
				Hint("stop that daemon. If you cannot, and know what its jobs do: --force-lease=%d --depose-live", row.Epoch)}
		}
		if until := s.first.Add(s.lookOut()); now.Boot < until {
			return grant{until: until}
		}
	}
	g := grant{take: true, forced: true, why: "by force: " + w.force.reason()}
	if w.force.OldHostOff == "" {
		g.waitFor = s.since.Add(s.patience(w.terms))
	}
	return g
}

// spent says that the epoch of a force is not the row's any more, or never was.
func (f Force) spent(row Lease) bool { return f.Epoch != 0 && f.Epoch != row.Epoch }

// singleHostRefusal explains a store that belongs to one host (L22).
func singleHostRefusal(row Lease, w wish) error {
	return Errorf(Held, "the store belongs to host %s: it was last served there with --single-host (epoch %d), and this is host %s",
		row.Host, row.Epoch, w.me.Host).
		Hint("start it on %s, without --single-host if it should move. If %[1]s is gone for good: --force-lease=%d --old-host-is-off=%[1]s",
			row.Host, row.Epoch)
}

// refusal explains why a daemon does not start beside one that lives. Both
// clocks have their say: the row's wall clock, which may lie, and our own watch,
// which decided.
func (s sighting) refusal(now Instant) error {
	row := s.row
	age := now.Wall.Sub(row.RenewedMs.Time()).Round(100 * time.Millisecond)
	said := fmt.Sprintf("%s ago", age)
	if age < 0 {
		said = fmt.Sprintf("%s in the future of this host's clock", -age)
	}
	return Errorf(Held, "the lease is held by %s on host %s (pid %d, epoch %d), which is alive: "+
		"it renewed while this daemon watched for %s; its last renewal was %s by its own clock",
		row.Holder, row.Host, row.PID, row.Epoch, now.Boot.Sub(s.first).Round(100*time.Millisecond), said).
		Hint("one store has one active daemon. Stop that one first, or wait as a standby: exocomp serve --standby")
}
