package daemon

import (
	"context"
	"strings"
)

// OperatorCordon is the reason that cordon and uncordon mean when none is given.
const OperatorCordon = "operator"

// maxCordons bounds the set: reasons are few and named.
const maxCordons = 100

func checkCordon(reason string) error {
	if reason == "" || len(reason) > maxName || !printable(reason) {
		return Errorf(Invalid, "cordon reason %.40q: it is not empty, at most %d bytes, and holds no control character", reason, maxName).
			Hint("leave --reason out for %q", OperatorCordon)
	}
	if strings.HasPrefix(reason, "restart:") {
		return Errorf(Conflict, "cordon reason %.60q: reasons that begin with restart: belong to a restart", reason).
			Hint("choose another reason")
	}
	return nil
}

func (t *turn) setCordon(ctx context.Context, tx Tx, c SetCordon) ([]Cordon, error) {
	if err := checkCordon(c.Reason); err != nil {
		return nil, err
	}
	all, err := loadCordons(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, old := range all {
		if old.Reason == c.Reason {
			return all, nil // it stands; who set it first remains
		}
	}
	if len(all) >= maxCordons {
		return nil, Errorf(Conflict, "%d cordon reasons stand already: no more are taken", len(all)).
			Hint("lift some with exocomp uncordon --reason")
	}
	row := Cordon{Reason: c.Reason, By: c.Actor, AtMs: t.now.Ms(), Why: c.Why}
	if err := Cordons.Put(ctx, tx, row); err != nil {
		return nil, err
	}
	if err := t.record(ctx, tx, "cordon.set", c.Reason, "by "+c.Actor); err != nil {
		return nil, err
	}
	return loadCordons(ctx, tx)
}

func (t *turn) liftCordon(ctx context.Context, tx Tx, c LiftCordon) ([]Cordon, error) {
	_, found, err := Cordons.Get(ctx, tx, c.Reason)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, Errorf(NotFound, "no cordon with the reason %.60q stands", c.Reason).
			Hint("exocomp status lists those that do")
	}
	if err := Cordons.Delete(ctx, tx, c.Reason); err != nil {
		return nil, err
	}
	if err := t.record(ctx, tx, "cordon.lifted", c.Reason, "by "+c.Actor); err != nil {
		return nil, err
	}
	return loadCordons(ctx, tx)
}

func loadCordons(ctx context.Context, r Reader) ([]Cordon, error) {
	return Cordons.Scan(ctx, r, Query{Limit: maxCordons + 1})
}
