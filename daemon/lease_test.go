package daemon

import (
	"testing"
	"time"
)

const second = Boottime(time.Second)

func TestDecideGrant(t *testing.T) {
	terms := DefaultTerms()
	me := Identity{Holder: "beta-1", Host: "beta", BootID: "boot-b", LockDev: 1, LockIno: 7}
	row := func(change func(*Lease)) Lease {
		l := Lease{Holder: "alpha-1", Host: "alpha", BootID: "boot-a", LockDev: 1, LockIno: 7, Epoch: 4, ReadyEpoch: 4,
			Seq: 9, TTLMs: 30_000, RenewMs: 6_000, State: LeaseHeld}
		if change != nil {
			change(&l)
		}
		return l
	}
	sameHost := func(l *Lease) { l.BootID = me.BootID }
	tests := []struct {
		name    string
		row     Lease
		moved   bool
		standby bool
		force   Force
		wait    time.Duration // leash wait after a grant by force, since the seq was first seen
		after   time.Duration // since the seq was first seen
		take    bool
		refuse  bool
		until   time.Duration
	}{
		{name: "released", row: row(func(l *Lease) { l.State = LeaseReleased }), take: true},
		{name: "released, and it moved", row: row(func(l *Lease) { l.State = LeaseReleased }), moved: true, take: true},
		{name: "just seen", row: row(nil), until: 30 * time.Second},
		{name: "almost a TTL", row: row(nil), after: 30*time.Second - 1, until: 30 * time.Second},
		{name: "a TTL", row: row(nil), after: 30 * time.Second, take: true},
		{name: "the holder's TTL is longer", row: row(func(l *Lease) { l.TTLMs = 60_000 }), after: 59 * time.Second, until: time.Minute},
		{name: "the holder's TTL is shorter", row: row(func(l *Lease) { l.TTLMs = 5_000 }), after: 29 * time.Second, until: 30 * time.Second},
		{name: "somebody renews", row: row(nil), moved: true, refuse: true},
		{name: "somebody renews, and we stand by", row: row(nil), moved: true, standby: true, until: 30 * time.Second},
		{name: "same host", row: row(sameHost), take: true},
		{name: "same host, and it moved", row: row(sameHost), moved: true, take: true},
		{name: "same host, never READY", row: row(func(l *Lease) { sameHost(l); l.ReadyEpoch = 3 }), until: 30 * time.Second},
		{name: "same boot, other lock", row: row(func(l *Lease) { sameHost(l); l.LockIno = 8 }), until: 30 * time.Second},
		{name: "same boot, other device", row: row(func(l *Lease) { sameHost(l); l.LockDev = 2 }), until: 30 * time.Second},
		{name: "a wall clock from the past", row: row(func(l *Lease) { l.RenewedMs = 1 }), until: 30 * time.Second},
		{name: "another host's single-host store", row: row(func(l *Lease) { l.SingleHost, l.State = true, LeaseReleased }), refuse: true},
		{name: "forced: single-host store of a dead host", row: row(func(l *Lease) { l.SingleHost = true }),
			force: Force{Epoch: 4}, after: 8 * time.Second, take: true, wait: 30 * time.Second},
		{name: "forced: looking out for life", row: row(nil), force: Force{Epoch: 4}, until: 8 * time.Second},
		{name: "forced: silent", row: row(nil), force: Force{Epoch: 4}, after: 8 * time.Second, take: true, wait: 30 * time.Second},
		{name: "forced: alive", row: row(nil), moved: true, force: Force{Epoch: 4}, after: 8 * time.Second, refuse: true},
		{name: "forced: alive, and we stand by", row: row(nil), moved: true, standby: true, force: Force{Epoch: 4}, refuse: true},
		{name: "forced: alive, and to be deposed", row: row(nil), moved: true, force: Force{Epoch: 4, DeposeLive: true}, take: true, wait: 30 * time.Second},
		{name: "forced: host attested off", row: row(nil), force: Force{Epoch: 4, OldHostOff: "alpha"}, after: 8 * time.Second, take: true},
		{name: "forced: attested off, and alive", row: row(nil), moved: true, force: Force{Epoch: 4, OldHostOff: "alpha"}, after: 8 * time.Second, refuse: true},
		{name: "forced: the wrong host attested off", row: row(nil), force: Force{Epoch: 4, OldHostOff: "gamma"}, after: 8 * time.Second, refuse: true},
		{name: "forced: a spent epoch", row: row(nil), force: Force{Epoch: 3}, after: 8 * time.Second, until: 30 * time.Second},
		{name: "forced: a spent epoch, and somebody renews", row: row(nil), moved: true, force: Force{Epoch: 3}, refuse: true},
		{name: "forced: an epoch to come", row: row(nil), force: Force{Epoch: 5}, until: 30 * time.Second},
		{name: "forced: released anyway", row: row(func(l *Lease) { l.State = LeaseReleased }), force: Force{Epoch: 4}, take: true},
		{name: "a wall clock from the future", row: row(func(l *Lease) { l.RenewedMs = 1 << 50 }), after: 30 * time.Second, take: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			since := 100 * second
			s := sighting{row: tt.row, seen: true, since: since, first: since, moved: tt.moved}
			w := wish{me: me, terms: terms, standby: tt.standby, force: tt.force}
			g := decideGrant(Instant{Boot: since.Add(tt.after)}, w, s)
			if g.take != tt.take || (g.refuse != nil) != tt.refuse {
				t.Errorf("take %v refuse %v, want %v %v", g.take, g.refuse, tt.take, tt.refuse)
			}
			if tt.refuse && (RemedyOf(g.refuse) == "" || CodeOf(g.refuse) == Failed) {
				t.Errorf("refused with %v", g.refuse)
			}
			if got := g.waitFor.Sub(since); g.waitFor != 0 && got != tt.wait || g.waitFor == 0 && tt.wait != 0 {
				t.Errorf("leash wait until %s, want %s", got, tt.wait)
			}
			if g.forced != (tt.force.Epoch == tt.row.Epoch && tt.take && tt.row.State == LeaseHeld) {
				t.Errorf("forced %v", g.forced)
			}
			if got := g.until.Sub(since); tt.until != 0 && got != tt.until {
				t.Errorf("until %s, want %s", got, tt.until)
			}
		})
	}
}

func TestALookNoticesEveryChange(t *testing.T) {
	one := Lease{Epoch: 1, Seq: 1, Stamp: "a"}
	s := sighting{}.look(one, 10*second)
	if s = s.look(one, 20*second); s.moved || s.since != 10*second {
		t.Errorf("nothing changed, and yet %+v", s)
	}
	for _, change := range []func(*Lease){func(l *Lease) { l.Epoch++ }, func(l *Lease) { l.Seq++ }, func(l *Lease) { l.Stamp = "b" }} {
		other := one
		change(&other)
		if got := s.look(other, 30*second); !got.moved || got.since != 30*second || got.first != 10*second {
			t.Errorf("%+v: %+v", other, got)
		}
	}
}

func TestTermsLeaveRoomToKill(t *testing.T) {
	for _, ttl := range []time.Duration{5 * time.Second, 30 * time.Second, time.Hour} {
		terms := Terms{TTL: ttl, Renew: ttl / 5}
		if err := terms.Check(); err != nil {
			t.Errorf("%s: %v", ttl, err)
		}
		l := terms.Leash(0)
		if !(l.TermAt < l.KillAt && l.KillAt < l.DeadBy && l.DeadBy < Boottime(ttl)) {
			t.Errorf("%s: leash %+v", ttl, l)
		}
		if got, want := l.DeadBy.Sub(l.TermAt), ttl/8; got != want {
			t.Errorf("%s: %s from TERM to the end, want %s", ttl, got, want)
		}
		if a := terms.Attempt(); a > 2*time.Second || a > ttl/10 {
			t.Errorf("%s: attempt limit %s", ttl, a)
		}
	}
}

func TestTermsCheck(t *testing.T) {
	for _, bad := range []Terms{{}, {TTL: 4999 * time.Millisecond, Renew: time.Second}, {TTL: 30 * time.Second},
		{TTL: 30 * time.Second, Renew: 10*time.Second + 1}, {TTL: 30 * time.Second, Renew: -1}, {TTL: -time.Hour, Renew: 1}} {
		if err := bad.Check(); CodeOf(err) != Usage || RemedyOf(err) == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestATenureKnowsItsOwnWriting(t *testing.T) {
	known := attempt{epoch: 3, seq: 7, stamp: "a", start: 10 * second}
	ten := tenure{}.succeeded(known, DefaultTerms())
	lost := attempt{epoch: 3, seq: 8, stamp: "b", start: 16 * second}
	ten = ten.failed(lost)
	for _, tt := range []struct {
		row  Lease
		want bool
	}{
		{Lease{Epoch: 3, Seq: 7, Stamp: "a"}, true},
		{Lease{Epoch: 3, Seq: 8, Stamp: "b"}, true},
		{Lease{Epoch: 3, Seq: 8, Stamp: "c"}, false}, // a clone's
		{Lease{Epoch: 4, Seq: 8, Stamp: "b"}, false},
		{Lease{Epoch: 3, Seq: 9, Stamp: "b"}, false},
	} {
		if got := ten.recognise(tt.row); got != tt.want {
			t.Errorf("%+v: recognised %v", tt.row, got)
		}
	}
	if want := known.start.Add(DefaultTerms().Trust()); ten.until != want {
		t.Errorf("a failed attempt moved the end of trust to %d, want %d", ten.until, want)
	}
	if !ten.doubt || ten.missed != 1 {
		t.Errorf("after a failure: %+v", ten)
	}
}
