package daemon

import (
	"context"
	"fmt"
	"time"
)

// AloneStore is a Store on which somebody who is no daemon may take the lease for
// the length of one transaction.
type AloneStore interface {
	Store
	// UpdateAlone is Update for an fn that itself takes the lease as g, first, and
	// gives it back, last. Guarded tables are open to it in between, and nobody
	// else ever sees the lease held: a crash leaves the row as it was.
	UpdateAlone(ctx context.Context, g Guard, fn func(Tx) error) error
}

// CreateTokenAlone makes a token on a store that no daemon holds: for the owner of
// the data directory whose tokens are all lost. me is who takes the lease for it;
// the caller has the lock of this host, so that no daemon starts here meanwhile.
// One that is held is refused, also when its holder is dead: what it left is a
// daemon's to clean up.
func CreateTokenAlone(ctx context.Context, s AloneStore, c Clock, chance Chance, me Identity, by string, r TokenRequest) (TokenMade, error) {
	if err := r.Check(); err != nil {
		return TokenMade{}, err
	}
	var seen Lease
	err := s.View(ctx, func(r Reader) (err error) {
		seen, _, err = Leases.Get(ctx, r, 1)
		return err
	})
	if err == nil {
		err = mayTakeAlone(me, seen)
	}
	if err != nil {
		return TokenMade{}, err
	}
	now := ReadClock(c)
	text, row := r.draw(now.Ms(), chance, by)
	g := Guard{Holder: me.Holder, Epoch: seen.Epoch + 1}
	err = s.UpdateAlone(ctx, g, func(tx Tx) (err error) {
		return alone(ctx, tx, now, chance, me, seen, func() error {
			if row, err = issueToken(ctx, tx, now.Ms(), row); err != nil {
				return err
			}
			return appendHappening(ctx, tx, g.Epoch, Happening{Kind: "token.created", Subject: row.Name,
				Detail: row.story() + ", on the store itself", AtMs: now.Ms()})
		})
	})
	if err != nil {
		return TokenMade{}, err
	}
	return TokenMade{Token: row.info(now.Ms()), Secret: text}, nil
}

func mayTakeAlone(me Identity, row Lease) error {
	switch {
	case row.SingleHost && row.Host != me.Host:
		return singleHostRefusal(row, wish{me: me})
	case row.State == LeaseHeld:
		return Errorf(Held, "the lease is held by %s on host %s (epoch %d): a store is changed without a daemon only while nobody holds it",
			row.Holder, row.Host, row.Epoch).
			Hint("ask the daemon on %s, without --local. If it is dead, start one: exocomp serve; its socket needs no token", row.Host)
	}
	return nil
}

// alone runs do between taking the lease and giving it back. The epoch rises as
// with every grant (L2); the terms and the host that the store belongs to stay.
func alone(ctx context.Context, tx Tx, now Instant, c Chance, me Identity, seen Lease, do func() error) error {
	row, _, err := Leases.Get(ctx, tx, 1)
	if err != nil {
		return err
	}
	if row.Epoch != seen.Epoch || row.Seq != seen.Seq || row.Stamp != seen.Stamp {
		return Errorf(Held, "somebody took the lease in this very moment").Hint("ask the daemon that serves the store now")
	}
	terms := Terms{TTL: row.TTL(), Renew: time.Duration(row.RenewMs) * time.Millisecond}
	w := wish{me: me, terms: terms, singleHost: row.SingleHost}
	row = row.taken(now, w, false, terms.TTL, newStamp(c))
	if err := Leases.Put(ctx, tx, row); err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	if err := do(); err != nil {
		return err
	}
	row = row.renewed(now, terms, newStamp(c))
	row.State = LeaseReleased
	return Leases.Put(ctx, tx, row)
}
