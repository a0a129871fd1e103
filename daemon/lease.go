package daemon

import (
	"fmt"
	"time"
)

// The active lease: one row, one active daemon over every host that opens the
// same file.
//
// The rules that the rest of this file keeps, with their numbers in the design:
//   - L2, L10: the epoch rises by one with every grant. It never falls, and the
//     row is never deleted.
//   - L3, L4: no wall clock grants or refuses. A row is taken when it was
//     released; or when its holder ran under the lock that is now ours and had
//     reached READY; or when we ourselves watched its seq stand still for a TTL
//     on our own boot clock. A wall clock an hour off changes a message, no more.
//   - L5: trust runs from the start of the attempt that succeeded, never from its
//     answer: a slow store must not lengthen it.
//   - L5': a renewal matches the seq and the stamp it knows. Cloned machines share
//     boot id, lock and holder; they cannot share a stamp drawn after the cloning.

// Lease is the row. Its layout is frozen: daemons of every version read it.
type Lease struct {
	ID          int64      `db:"id" json:"-"` // always 1
	StoreID     string     `db:"store_id" json:"store_id"`
	Lineage     int64      `db:"lineage" json:"lineage"`
	Holder      string     `db:"holder" json:"holder"`
	Host        string     `db:"host" json:"host"`
	Incarnation string     `db:"incarnation" json:"incarnation"`
	BootID      string     `db:"boot_id" json:"boot_id"`
	LockDev     uint64     `db:"lock_dev" json:"lock_dev"`
	LockIno     uint64     `db:"lock_ino" json:"lock_ino"`
	PID         int64      `db:"pid" json:"pid"`
	Epoch       int64      `db:"epoch" json:"epoch"`
	Seq         int64      `db:"seq" json:"seq"`
	Stamp       string     `db:"stamp" json:"stamp"`
	TTLMs       int64      `db:"ttl_ms" json:"ttl_ms"`
	RenewMs     int64      `db:"renew_ms" json:"renew_ms"`
	State       LeaseState `db:"state" json:"state"`
	ReadyEpoch  int64      `db:"ready_epoch" json:"ready_epoch"`
	SingleHost  bool       `db:"single_host" json:"single_host"`
	AcquiredMs  Millis     `db:"acquired_ms" json:"acquired_at"`
	RenewedMs   Millis     `db:"renewed_ms" json:"renewed_at"`
	ForcedBy    string     `db:"forced_by" json:"forced_by,omitempty"`
	ForceReason string     `db:"force_reason" json:"force_reason,omitempty"`
}

// LeaseState says whether somebody holds the lease.
type LeaseState string

// The states of the lease.
const (
	LeaseHeld     LeaseState = "held"
	LeaseReleased LeaseState = "released"
)

// TTL returns T as the holder wrote it.
func (l Lease) TTL() time.Duration { return time.Duration(l.TTLMs) * time.Millisecond }

// Terms are the two durations of a lease that an operator chooses. All others
// follow: with T the TTL, trust D = 3T/4 from the start of the last successful
// attempt, jobs TERMed at D-T/8 and KILLed at D-T/16, so that the last is dead
// by D; an attempt takes A = min(2 s, T/10) at most.
type Terms struct {
	TTL   time.Duration // T
	Renew time.Duration // R
}

// DefaultTerms are T = 30 s and R = 6 s.
func DefaultTerms() Terms { return Terms{TTL: 30 * time.Second, Renew: 6 * time.Second} }

// Check refuses terms under which a healthy daemon would lose its lease.
func (t Terms) Check() error {
	if t.TTL < 5*time.Second {
		return Errorf(Usage, "lease TTL %s is too short: it must be at least 5s", t.TTL).
			Hint("leave out --lease-ttl for 30s, or give 5s or more")
	}
	if t.Renew <= 0 || t.Renew > t.TTL/3 {
		return Errorf(Usage, "lease renewal every %s does not fit a TTL of %s: it must be at most a third of it",
			t.Renew, t.TTL).Hint("leave out --lease-renew for a fifth of the TTL, or give at most %s", t.TTL/3)
	}
	return nil
}

// Attempt is A, the longest that one renewal may take.
func (t Terms) Attempt() time.Duration { return min(2*time.Second, t.TTL/10) }

// Trust is D.
func (t Terms) Trust() time.Duration { return t.TTL * 3 / 4 }

// Leash returns when jobs must end for an attempt that began at start.
func (t Terms) Leash(start Boottime) Leash {
	end := start.Add(t.Trust())
	return Leash{TermAt: end.Add(-t.TTL / 8), KillAt: end.Add(-t.TTL / 16), DeadBy: end}
}

// Leash is the deadline of all jobs of a session, in three absolute instants
// of the host's boot clock. The keeper computes none of them.
type Leash struct {
	TermAt Boottime `json:"term_at"` // TERM to every job; no start from here on
	KillAt Boottime `json:"kill_at"` // KILL
	DeadBy Boottime `json:"dead_by"` // the last process is gone
}

// Identity is who a daemon is in the lease row.
type Identity struct {
	Holder      string // drawn once per start of the process
	Host        string
	Incarnation string // drawn once per image
	BootID      string
	LockDev     uint64
	LockIno     uint64
	PID         int64
}

// under says whether the holder in row ran under the lock that is now id's.
func (id Identity) under(row Lease) bool {
	return row.BootID == id.BootID && row.LockDev == id.LockDev && row.LockIno == id.LockIno
}

// sighting is what a daemon without the lease knows of the row: which
// (epoch, seq, stamp) it saw last and since when, on its own boot clock.
type sighting struct {
	row   Lease
	seen  bool
	since Boottime // read after the row was: a late reading only waits longer
	moved bool     // the seq changed under our eyes: somebody is alive
	first Boottime // when the watch began
	until Boottime // when the row may be taken, if nothing moves
}

// look returns the sighting after row was read at the instant at.
func (s sighting) look(row Lease, at Boottime) sighting {
	switch {
	case !s.seen:
		return sighting{row: row, seen: true, since: at, first: at}
	case row.Epoch != s.row.Epoch || row.Seq != s.row.Seq || row.Stamp != s.row.Stamp:
		return sighting{row: row, seen: true, since: at, first: s.first, moved: true}
	}
	s.row = row
	return s
}

// patience is how long the seq must stand still before anyone takes the row.
func (s sighting) patience(t Terms) time.Duration { return max(t.TTL, s.row.TTL()) }

// wish is what a starting daemon was told about taking the lease.
type wish struct {
	me         Identity
	terms      Terms
	standby    bool
	singleHost bool
	force      Force
}

// grant is the answer to "may I take the lease?".
type grant struct {
	take    bool
	forced  bool
	refuse  error    // a plain start ends with it
	until   Boottime // neither: when it may be taken if nothing moves
	waitFor Boottime // taken by force: the old leash is over then; nothing is touched before
	why     string
}

// decideGrant judges the row that s saw last (L3, L4', L9, L13, L14, L22).
func decideGrant(now Instant, w wish, s sighting) grant {
	row, forced := s.row, w.force.Epoch != 0 && w.force.Epoch == s.row.Epoch
	if row.SingleHost && row.Host != w.me.Host && !forced {
		return grant{refuse: singleHostRefusal(row, w)}
	}
	if row.State == LeaseReleased {
		return grant{take: true, why: "it was released"}
	}
	if w.me.under(row) && row.ReadyEpoch == row.Epoch {
		return grant{take: true, why: "its holder ran under the lock of this host, which is ours now"}
	}
	if forced {
		return decideForce(now, w, s)
	}
	if s.moved && !w.standby {
		return grant{refuse: s.refusal(now)}
	}
	until := s.since.Add(s.patience(w.terms))
	if now.Boot >= until {
		return grant{take: true, why: fmt.Sprintf("its holder was silent for %s", now.Boot.Sub(s.since).Round(time.Millisecond))}
	}
	return grant{until: until}
}

// taken returns the row after w.me has taken it in an attempt at now.
func (l Lease) taken(now Instant, w wish, forced bool, ttl time.Duration, stamp string) Lease {
	me := w.me
	l.Holder, l.Host, l.Incarnation = me.Holder, me.Host, me.Incarnation
	l.BootID, l.LockDev, l.LockIno, l.PID = me.BootID, me.LockDev, me.LockIno, me.PID
	l.Epoch++
	l.AcquiredMs = now.Ms()
	l.State, l.ForcedBy, l.ForceReason = LeaseHeld, "", ""
	if forced {
		l.ForcedBy, l.ForceReason = w.force.By, w.force.reason()
	}
	l.SingleHost = w.singleHost
	return l.renewed(now, Terms{TTL: ttl, Renew: w.terms.Renew}, stamp)
}

// renewed returns the row after a renewal in an attempt at now.
func (l Lease) renewed(now Instant, t Terms, stamp string) Lease {
	l.Seq++
	l.Stamp = stamp
	l.TTLMs, l.RenewMs = t.TTL.Milliseconds(), t.Renew.Milliseconds()
	l.RenewedMs = now.Ms()
	return l
}

// attempt is one try at writing the row: what it would have left there.
type attempt struct {
	epoch, seq int64
	stamp      string
	start      Boottime
}

// tenure is what the holder knows of its own row.
type tenure struct {
	known  attempt   // the last one that certainly succeeded
	unsure []attempt // later ones whose answer was lost: the row may hold any of them
	until  Boottime  // trust ends here: known.start + D
	tried  Boottime  // start of the last attempt
	doubt  bool      // an attempt failed since the last success
	missed int       // attempts failed in a row
}

// recognise says whether row is what one of our own attempts left.
func (t tenure) recognise(row Lease) bool {
	for _, a := range append([]attempt{t.known}, t.unsure...) {
		if row.Epoch == a.epoch && row.Seq == a.seq && row.Stamp == a.stamp {
			return true
		}
	}
	return false
}

// succeeded returns the tenure after a is known to stand in the row.
func (t tenure) succeeded(a attempt, terms Terms) tenure {
	return tenure{known: a, until: a.start.Add(terms.Trust()), tried: a.start}
}

// failed returns the tenure after a got no good answer. The list of unsure
// attempts is bounded because trust runs out after D.
func (t tenure) failed(a attempt) tenure {
	t.unsure = append(t.unsure[:len(t.unsure):len(t.unsure)], a)
	t.tried, t.doubt = a.start, true
	t.missed++
	return t
}
