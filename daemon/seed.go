package daemon

import (
	"context"
	"encoding/hex"
)

// Seed fills a new store: a lease that nobody holds, the key of job tokens, and
// an admin token, which it returns. The text of the token is kept nowhere.
func Seed(ctx context.Context, tx Tx, now Instant, c Chance) (adminToken string, err error) {
	lease := Lease{ID: 1, StoreID: NewID("store", now.Wall, c), Lineage: 1, State: LeaseReleased,
		Stamp: newStamp(c), TTLMs: DefaultTerms().TTL.Milliseconds(), RenewMs: DefaultTerms().Renew.Milliseconds(),
		AcquiredMs: now.Ms(), RenewedMs: now.Ms()}
	if err := Leases.Put(ctx, tx, lease); err != nil {
		return "", err
	}
	var key [32]byte
	for i := range key {
		key[i] = byte(c.Uint64() >> 32)
	}
	if err := Metas.Put(ctx, tx, Meta{Name: MetaJobKey, Value: hex.EncodeToString(key[:])}); err != nil {
		return "", err
	}
	text, row := NewToken("admin", Admin, now.Ms(), c)
	row.By = "init"
	return text, Tokens.Put(ctx, tx, row)
}
