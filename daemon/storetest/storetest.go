// Package storetest says what any daemon.Store must do. Every adapter runs it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// Open returns two handles on one new, seeded store.
type Open func(t *testing.T) (a, b daemon.Store)

// Run runs the whole contract against what open returns.
func Run(t *testing.T, open Open) {
	tests := []struct {
		name string
		run  func(t *testing.T, a, b daemon.Store)
	}{
		{"every declared row comes back as it went in", roundTrip},
		{"a failed update leaves nothing", failedUpdate},
		{"an insert that is repeated does nothing", insertTwice},
		{"a scan is ordered, bounded and resumes", scan},
		{"a guard that does not hold the lease is fenced", fenced},
		{"a guarded table refuses a write without a term", unguarded},
		{"an unguarded table takes a write without a term", inbox},
		{"a terminal row never changes", terminal},
		{"kept rows are never deleted", kept},
		{"the version changes when the other handle commits", version},
		{"the other handle sees a commit", visible},
		{"claimable jobs come by priority, then by arrival", claimOrder},
		{"a job whose lock is taken is not claimable", claimLock},
		{"of a cordoned queue only children of live jobs are claimable", claimHeirs},
		{"one live job has a dedup key, one job ever an idempotency key", uniqueKeys},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := open(t)
			tt.run(t, a, b)
		})
	}
}

// Seed is what open should run in the new store.
func Seed(tx daemon.Tx) error {
	now := daemon.Instant{Wall: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	_, err := daemon.Seed(context.Background(), tx, now, rand.New(rand.NewPCG(1, 2)))
	return err
}

var me = daemon.Guard{Holder: "alpha-1", Epoch: 1}

// hold makes g the holder of the lease.
func hold(t *testing.T, s daemon.Store, g daemon.Guard) {
	t.Helper()
	update(t, s, daemon.Guard{}, func(tx daemon.Tx) error {
		row, _, err := daemon.Leases.Get(t.Context(), tx, 1)
		if err != nil {
			return err
		}
		row.Holder, row.Epoch, row.State = g.Holder, g.Epoch, daemon.LeaseHeld
		return daemon.Leases.Put(t.Context(), tx, row)
	})
}

func update(t *testing.T, s daemon.Store, g daemon.Guard, fn func(daemon.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), g, fn); err != nil {
		t.Fatal(err)
	}
}

func view(t *testing.T, s daemon.Store, fn func(daemon.Reader) error) {
	t.Helper()
	if err := s.View(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// job returns a queued job with everything set that must be unique.
func job(n int64) daemon.Job {
	return daemon.Job{ID: fmt.Sprintf("job_%04d", n), Number: n, Kind: "command", State: daemon.Queued,
		Spec: daemon.Spec{Argv: []string{"true"}}, Attempt: fmt.Sprintf("att_%04d", n)}
}

func put(t *testing.T, s daemon.Store, jobs ...daemon.Job) {
	t.Helper()
	update(t, s, me, func(tx daemon.Tx) error {
		for _, j := range jobs {
			if err := daemon.Jobs.Put(t.Context(), tx, j); err != nil {
				return err
			}
		}
		return nil
	})
}

// documents are the structs that rows hold as JSON.
var documents = map[reflect.Type]any{
	reflect.TypeFor[daemon.Spec](): aSpec,
	reflect.TypeFor[daemon.EnqueueRequest](): daemon.EnqueueRequest{Spec: aSpec, Labels: map[string]string{"a": "b"},
		TimeoutMs: 1 << 40, Lock: "ü"},
}

var aSpec = daemon.Spec{Argv: []string{"a b", ""}, Env: map[string]string{"K": "v"}}

// fill sets every field of row to a value that is not its zero.
func fill(row any) {
	v := reflect.ValueOf(row).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprintf("text-%d \x00\xff ü", i))
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(1000 + i))
		case reflect.Uint64:
			f.SetUint(1<<63 + uint64(i)) // an inode may use all 64 bits
		case reflect.Pointer:
			n := int64(7)
			f.Set(reflect.ValueOf(&n))
		case reflect.Slice:
			f.SetBytes([]byte{0, 1, 0xff})
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]string{"a": "b\n", "": "ü"}))
		case reflect.Struct:
			f.Set(reflect.ValueOf(documents[f.Type()]))
		}
	}
}

func roundTrip(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	for _, table := range daemon.Tables {
		row := table.New()
		fill(row)
		var key []any
		for i := range table.Key { // every key is the first columns
			key = append(key, reflect.ValueOf(row).Elem().Field(i).Interface())
		}
		switch r := row.(type) {
		case *daemon.Job:
			r.State = daemon.Running
		case *daemon.Lease:
			r.ID, r.Holder, r.Epoch, r.State = 1, me.Holder, me.Epoch, daemon.LeaseHeld
			key = []any{int64(1)}
		}
		update(t, a, me, func(tx daemon.Tx) error { return tx.Put(t.Context(), table, row) })
		got := table.New()
		view(t, a, func(r daemon.Reader) error {
			found, err := r.Get(t.Context(), table, got, key)
			if err == nil && !found {
				t.Errorf("%s: the row is not there", table.Name)
			}
			return err
		})
		if !reflect.DeepEqual(got, row) {
			t.Errorf("%s: got %+v, want %+v", table.Name, got, row)
		}
	}
}

func failedUpdate(t *testing.T, a, b daemon.Store) {
	hold(t, a, me)
	sick := errors.New("sick")
	err := a.Update(t.Context(), me, func(tx daemon.Tx) error {
		return errors.Join(daemon.Jobs.Put(t.Context(), tx, job(1)), sick)
	})
	if !errors.Is(err, sick) {
		t.Fatalf("got %v, want the error of the function", err)
	}
	view(t, b, func(r daemon.Reader) error {
		if _, found, _ := daemon.Jobs.Get(t.Context(), r, "job_0001"); found {
			t.Error("the row of a failed update is there")
		}
		return nil
	})
	put(t, a, job(1)) // and the handle still works
}

func insertTwice(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	for i, want := range []bool{true, false} {
		update(t, a, me, func(tx daemon.Tx) error {
			j := job(1)
			j.Priority = int64(i)
			got, err := daemon.Jobs.Insert(t.Context(), tx, j)
			if got != want {
				t.Errorf("insert %d: inserted %v, want %v", i, got, want)
			}
			return err
		})
	}
	view(t, a, func(r daemon.Reader) error {
		j, _, err := daemon.Jobs.Get(t.Context(), r, "job_0001")
		if j.Priority != 0 {
			t.Error("the second insert changed the row")
		}
		return err
	})
}

func scan(t *testing.T, a, b daemon.Store) {
	hold(t, a, me)
	for n := int64(1); n <= 9; n++ {
		j := job(n)
		if n%3 == 0 {
			j.State = daemon.Running
		}
		put(t, a, j)
	}
	tests := []struct {
		q    daemon.Query
		want string
	}{
		{daemon.Query{Limit: 3}, "[1 2 3]"},
		{daemon.Query{After: []any{"job_0004"}, Limit: 2}, "[5 6]"},
		{daemon.Query{Desc: true, Limit: 2}, "[9 8]"},
		{daemon.Query{By: "jobs_state", Equal: []any{"queued"}, Limit: 4}, "[1 2 4 5]"},
		{daemon.Query{By: "jobs_state", Equal: []any{"queued"}, After: []any{int64(5)}, Limit: 9}, "[7 8]"},
		{daemon.Query{By: "jobs_state", Equal: []any{"queued"}, After: []any{int64(5)}, Desc: true, Limit: 9}, "[4 2 1]"},
		{daemon.Query{By: "jobs_live", Limit: 9}, "[3 6 9]"},
		{daemon.Query{By: "jobs_number", Equal: []any{int64(7)}, Limit: 9}, "[7]"},
	}
	for _, s := range []daemon.Store{a, b} {
		for _, tt := range tests {
			view(t, s, func(r daemon.Reader) error {
				rows, err := daemon.Jobs.Scan(t.Context(), r, tt.q)
				got := []int64{}
				for _, j := range rows {
					got = append(got, j.Number)
				}
				if fmt.Sprint(got) != tt.want {
					t.Errorf("%+v: got %v, want %s", tt.q, got, tt.want)
				}
				if n, _ := daemon.Jobs.Count(t.Context(), r, tt.q); n != len(rows) {
					t.Errorf("%+v: counted %d of %d", tt.q, n, len(rows))
				}
				return err
			})
		}
	}
}

func fenced(t *testing.T, a, b daemon.Store) {
	hold(t, a, me)
	put(t, a, job(1))
	hold(t, b, daemon.Guard{Holder: "beta-1", Epoch: 2})
	called := false
	err := a.Update(t.Context(), me, func(tx daemon.Tx) error {
		called = true
		return daemon.Jobs.Put(t.Context(), tx, job(2))
	})
	if !errors.Is(err, daemon.ErrFenced) || called {
		t.Errorf("deposed holder: got %v (called: %v), want ErrFenced before the function", err, called)
	}
	for _, g := range []daemon.Guard{{Holder: "alpha-1", Epoch: 2}, {Holder: "beta-1", Epoch: 1}, {Holder: "beta-1", Epoch: 3}} {
		if err := a.Update(t.Context(), g, func(daemon.Tx) error { return nil }); !errors.Is(err, daemon.ErrFenced) {
			t.Errorf("guard %+v: got %v, want ErrFenced", g, err)
		}
	}
	update(t, a, daemon.Guard{}, func(tx daemon.Tx) error {
		row, _, err := daemon.Leases.Get(t.Context(), tx, 1)
		row.State = daemon.LeaseReleased
		return errors.Join(err, daemon.Leases.Put(t.Context(), tx, row))
	})
	err = b.Update(t.Context(), daemon.Guard{Holder: "beta-1", Epoch: 2}, func(daemon.Tx) error { return nil })
	if !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("released: got %v, want ErrFenced", err)
	}
}

func unguarded(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	put(t, a, job(1)) // the handle has held a term before
	for _, table := range daemon.Tables {
		if !table.Guarded {
			continue
		}
		row := table.New()
		fill(row)
		if j, ok := row.(*daemon.Job); ok {
			j.State = daemon.Queued
		}
		err := a.Update(t.Context(), daemon.Guard{}, func(tx daemon.Tx) error { return tx.Put(t.Context(), table, row) })
		if !errors.Is(err, daemon.ErrFenced) {
			t.Errorf("%s: got %v, want ErrFenced", table.Name, err)
		}
	}
	err := a.Update(t.Context(), daemon.Guard{}, func(tx daemon.Tx) error {
		j := job(1)
		j.Priority = 9
		return daemon.Jobs.Put(t.Context(), tx, j)
	})
	if !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("change of a row: got %v, want ErrFenced", err)
	}
	err = a.Update(t.Context(), daemon.Guard{}, func(tx daemon.Tx) error {
		return daemon.Metas.Delete(t.Context(), tx, daemon.MetaJobKey)
	})
	if !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("delete of a row: got %v, want ErrFenced", err)
	}
}

func inbox(t *testing.T, a, b daemon.Store) {
	hold(t, a, me)
	row := daemon.InboxRow{ID: "job_1", Verb: "enqueue", Payload: []byte("{}"), Actor: "me", AtMs: 1}
	update(t, b, daemon.Guard{}, func(tx daemon.Tx) error {
		_, err := daemon.Inboxes.Insert(t.Context(), tx, row)
		return err
	})
	update(t, a, me, func(tx daemon.Tx) error {
		rows, err := daemon.Inboxes.Scan(t.Context(), tx, daemon.Query{By: "inbox_at", Limit: 10})
		if len(rows) != 1 || !reflect.DeepEqual(rows[0], row) {
			t.Errorf("got %+v", rows)
		}
		return errors.Join(err, daemon.Inboxes.Delete(t.Context(), tx, "job_1"))
	})
}

func terminal(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	for i, state := range daemon.TerminalStates {
		j := job(int64(i + 1))
		put(t, a, j)
		j.State = state
		put(t, a, j)
		j.Reason = "changed my mind"
		err := a.Update(t.Context(), me, func(tx daemon.Tx) error { return daemon.Jobs.Put(t.Context(), tx, j) })
		if err == nil {
			t.Errorf("a row that is %s was changed", state)
		}
	}
}

func kept(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	put(t, a, job(1))
	err := a.Update(t.Context(), me, func(tx daemon.Tx) error { return daemon.Jobs.Delete(t.Context(), tx, "job_0001") })
	if err == nil {
		t.Error("a job was deleted")
	}
	err = a.Update(t.Context(), daemon.Guard{}, func(tx daemon.Tx) error { return daemon.Leases.Delete(t.Context(), tx, 1) })
	if err == nil {
		t.Error("the lease was deleted")
	}
}

func version(t *testing.T, a, b daemon.Store) {
	hold(t, a, me)
	see := func(s daemon.Store) uint64 {
		t.Helper()
		v, err := s.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := see(b)
	if see(b) != before {
		t.Error("the version changed though nobody wrote")
	}
	put(t, a, job(1))
	if see(b) == before {
		t.Error("the version is the same though the other handle wrote")
	}
}

func visible(t *testing.T, a, b daemon.Store) {
	hold(t, a, me)
	put(t, a, job(1))
	view(t, b, func(r daemon.Reader) error {
		_, found, err := daemon.Jobs.Get(t.Context(), r, "job_0001")
		if !found {
			t.Error("a committed row is not seen")
		}
		return err
	})
}

func claimable(t *testing.T, s daemon.Store, heirs bool, limit int) string {
	t.Helper()
	got := []int64{}
	view(t, s, func(r daemon.Reader) error {
		rows, err := r.Claimable(t.Context(), heirs, limit)
		for _, j := range rows {
			got = append(got, j.Number)
		}
		return err
	})
	return fmt.Sprint(got)
}

func claimOrder(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	for n, priority := range []int64{0, 5, 0, -1, 5} {
		j := job(int64(n + 1))
		j.Priority = priority
		put(t, a, j)
	}
	done := job(6)
	done.State, done.Priority = daemon.Succeeded, 9
	put(t, a, done)
	if got := claimable(t, a, false, 10); got != "[2 5 1 3 4]" {
		t.Errorf("got %s", got)
	}
	if got := claimable(t, a, false, 2); got != "[2 5]" {
		t.Errorf("limited: got %s", got)
	}
}

func claimLock(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	for n, lock := range []string{"db", "db", "", "web"} {
		j := job(int64(n + 1))
		j.LockKey = lock
		if n == 0 {
			j.State = daemon.Cancelling
		}
		put(t, a, j)
	}
	if got := claimable(t, a, false, 10); got != "[3 4]" {
		t.Errorf("while the lock is taken: got %s", got)
	}
	j := job(1)
	j.LockKey, j.State = "db", daemon.Cancelled
	put(t, a, j)
	if got := claimable(t, a, false, 10); got != "[2 3 4]" {
		t.Errorf("when it is free: got %s", got)
	}
}

func claimHeirs(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	parent, orphan := job(1), job(2)
	parent.State, orphan.State = daemon.Running, daemon.Succeeded
	child, lost, root := job(3), job(4), job(5)
	child.ParentID, lost.ParentID = parent.ID, orphan.ID
	put(t, a, parent, orphan, child, lost, root)
	if got := claimable(t, a, true, 10); got != "[3]" {
		t.Errorf("got %s", got)
	}
}

func uniqueKeys(t *testing.T, a, _ daemon.Store) {
	hold(t, a, me)
	one, two, three := job(1), job(2), job(3)
	one.DedupKey, two.DedupKey = "nightly", "nightly"
	one.Actor, three.Actor, one.IdemKey, three.IdemKey = "me", "me", "k", "k"
	put(t, a, one)
	refused := func(j daemon.Job, why string) {
		t.Helper()
		err := a.Update(t.Context(), me, func(tx daemon.Tx) error { return daemon.Jobs.Put(t.Context(), tx, j) })
		if err == nil {
			t.Error(why)
		}
	}
	refused(two, "two live jobs have one dedup key")
	one.State = daemon.Succeeded
	put(t, a, one)
	put(t, a, two)
	refused(three, "two jobs of one actor have one idempotency key")
	three.Actor = "you"
	put(t, a, three)
}
