package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/exocomp/exocomp/daemon"
)

// BenchmarkFence is what the epoch check and the triggers cost a transaction that
// writes one guarded row, in memory and on a disk. Each line is to be read as a
// ratio to "bare".
func BenchmarkFence(b *testing.B) {
	for _, place := range []string{"memory", "file"} {
		for _, way := range []string{"bare", "check", "check+triggers"} {
			b.Run(place+"/"+way, func(b *testing.B) { benchFence(b, place, way) })
		}
	}
}

func benchFence(b *testing.B, place, way string) {
	ctx := context.Background()
	o := Options{Memory: b.Name()}
	if place == "file" {
		o = Options{Path: filepath.Join(b.TempDir(), "exocomp.db")}
	}
	g := daemon.Guard{Holder: "alpha-1", Epoch: 4}
	anchor, err := Create(ctx, o, func(tx daemon.Tx) error {
		return daemon.Leases.Put(ctx, tx, daemon.Lease{ID: 1, Holder: g.Holder, Epoch: g.Epoch, State: daemon.LeaseHeld})
	})
	if err != nil {
		b.Fatal(err)
	}
	defer anchor.Close()
	s, err := Open(ctx, o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.fence(ctx, g); err != nil {
		b.Fatal(err)
	}
	if way != "check+triggers" {
		dropTriggers(b, s)
	}
	t := &tx{run: prepared{s}}
	n := int64(0)
	write := func() error {
		n++
		return daemon.Happenings.Put(ctx, t, daemon.Happening{Seq: n, Kind: "bench", Epoch: 4})
	}
	for b.Loop() {
		err := s.transact(ctx, func() error {
			if way != "bare" {
				if err := t.holds(ctx, g); err != nil {
					return err
				}
			}
			return write()
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func dropTriggers(b *testing.B, s *Store) {
	b.Helper()
	ctx := context.Background()
	rows, err := s.conn.QueryContext(ctx, "SELECT name FROM temp.sqlite_schema WHERE type = 'trigger' ORDER BY name")
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			b.Fatal(err)
		}
		names = append(names, name)
	}
	for _, name := range names {
		if _, err := s.conn.ExecContext(ctx, fmt.Sprintf("DROP TRIGGER temp.%s", name)); err != nil {
			b.Fatal(err)
		}
	}
	if len(names) == 0 {
		b.Fatal("there were no triggers to drop")
	}
}
