package daemon

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// errMoved says that the lease row is not what any of our attempts left: a
// forced takeover, or a clone of this machine that renews the same row.
var errMoved = errors.New("the lease row was written by somebody else")

// turn is the transaction of one Step. It works on its own copies; the daemon
// takes them over when the commit is known. The order in it is always the same:
//
//	renew the lease, open the epoch, events, inbox, retire, load the schedules,
//	sweep, fire, claim, release
//
// In trouble (see queue) only a prefix of that is done.
type turn struct {
	d       *Daemon
	now     Instant
	renewal *attempt // this turn renews the lease
	alone   bool     // and does nothing else
	derived bool     // do what no event asks for: inbox, sweep, claim, release
	foreign bool     // somebody else has committed: the inbox may have rows
	batch   int      // events taken from the head of the queue

	beats    []attempt // renewals that the migrations of this turn made
	live     []Job     // by number
	epoch    epochMemory
	replies  []Effect
	forget   []string // attempts whose end this turn used
	started  int64
	ended    int64
	noted    int  // lines of history that were written
	emptied  bool // nothing is left in the inbox
	ready    bool
	found    string // what an operator should know of the store that was taken over
	released bool

	registry registry // a copy, if copied or reloaded
	reloaded bool
	broken   []string // schedules that were read and cannot be understood
	copied   bool
	ledger   int   // rows of the fire ledger that were written
	fired    int64 // of them, with a job
	unfired  int64 // and without
	missed   int64 // of these, missed
}

// newTurn plans what this Step does, before any transaction.
func (d *Daemon) newTurn(ctx context.Context, now Instant) *turn {
	t := &turn{d: d, now: now, epoch: d.epoch, registry: d.registry, batch: d.queue.batch()}
	t.alone = d.queue.mode == renewalAlone
	t.derived = d.queue.mode == together
	t.foreign = t.derived && d.foreign(ctx)
	if t.alone || d.renewDue(now) {
		k := d.tenure.known
		t.renewal = &attempt{epoch: k.epoch, seq: k.seq + 1, stamp: newStamp(d.chance), start: now.Boot}
	}
	return t
}

func (d *Daemon) renewDue(now Instant) bool {
	return d.clocks.suspicious || d.tenure.doubt || now.Boot >= d.tenure.tried.Add(d.cfg.Terms.Renew)
}

// worthwhile says whether the turn has anything to do in the store.
func (t *turn) worthwhile() bool {
	d := t.d
	switch {
	case t.now.Boot < d.retry:
		return false
	case t.renewal != nil, t.batch > 0, !d.loaded, !d.epoch.opened, d.keeper.fresh, t.foreign:
		return true
	case t.derived && (d.reloadDue(t.now) || d.ripe(t.now)):
		return true
	case d.role == Booting:
		return d.keeper.instance != ""
	case d.role == Releasing:
		return !d.busy()
	}
	return false
}

// run is the body of the transaction.
func (t *turn) run(ctx context.Context, tx Tx) error {
	if t.d.lapsed(t.d.clock.Boot()) { // a guard reading, with the write lock held (S8)
		return errLapsed
	}
	if t.renewal != nil {
		if err := t.renew(ctx, tx); err != nil {
			return err
		}
	}
	var err error
	if t.live, err = Jobs.Scan(ctx, tx, Query{By: "jobs_live", Limit: maxLive}); err != nil || t.alone {
		return err
	}
	for _, step := range []func(context.Context, Tx) error{
		t.openEpoch, t.note, t.applyEvents, t.applyInbox, t.retire, t.load, t.sweep, t.fireAll, t.claim, t.release} {
		if err := step(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// maxLive is more rows than can ever have a process.
const maxLive = 20_000

func (t *turn) renew(ctx context.Context, tx Tx) error {
	row, found, err := Leases.Get(ctx, tx, 1)
	if err != nil {
		return err
	}
	if !found || !t.d.tenure.recognise(row) {
		return errMoved
	}
	t.renewal.seq = row.Seq + 1
	return Leases.Put(ctx, tx, row.renewed(t.now, t.d.written(row), t.renewal.stamp))
}

// written are the terms that go into the row: our own, once the keeper has
// acknowledged our leash (L21).
func (d *Daemon) written(row Lease) Terms {
	t := d.cfg.Terms
	if d.keeper.instance == "" && d.role == Booting {
		t.TTL = max(t.TTL, row.TTL())
	}
	return t
}

// beat renews the lease in the transaction of a migration, which may hold the
// write lock for long (L19). Each beat is an attempt of its own.
func (t *turn) beat(ctx context.Context, tx Tx) error {
	row, found, err := Leases.Get(ctx, tx, 1)
	if err != nil {
		return err
	}
	mine := t.d.tenure
	mine.unsure = append(slices.Clone(mine.unsure), t.beats...)
	if !found || !mine.recognise(row) {
		return errMoved
	}
	a := attempt{epoch: row.Epoch, seq: row.Seq + 1, stamp: newStamp(t.d.chance), start: t.d.clock.Boot()}
	t.beats = append(t.beats, a)
	return Leases.Put(ctx, tx, row.renewed(t.now, t.d.written(row), a.stamp))
}

// openEpoch is what every new epoch does first: it writes down which queued
// rows a dead daemon left, so that the sweep may be cut and resumed.
func (t *turn) openEpoch(ctx context.Context, tx Tx) error {
	if t.epoch.opened {
		return nil
	}
	doomed, err := metaInt(ctx, tx, metaDoomed)
	if err != nil {
		return err
	}
	if prior := t.d.prior; prior.State == LeaseHeld {
		doomed = max(doomed, prior.Epoch)
	}
	if err := t.setDoomed(ctx, tx, doomed); err != nil {
		return err
	}
	key, _, err := Metas.Get(ctx, tx, MetaJobKey)
	if err != nil {
		return err
	}
	if t.epoch.jobKey, err = hex.DecodeString(key.Value); err != nil {
		return fmt.Errorf("decode meta.%s: %w", MetaJobKey, err)
	}
	t.epoch.opened = true
	return nil
}

// note writes what was remembered since the last commit into the history.
func (t *turn) note(ctx context.Context, tx Tx) error {
	for _, h := range t.d.notes {
		if err := t.append(ctx, tx, h); err != nil {
			return err
		}
	}
	t.noted = len(t.d.notes)
	return nil
}

func (t *turn) setDoomed(ctx context.Context, tx Tx, epoch int64) error {
	t.epoch.doomed = epoch
	return Metas.Put(ctx, tx, Meta{Name: metaDoomed, Value: strconv.FormatInt(epoch, 10)})
}

func metaInt(ctx context.Context, r Reader, name string) (int64, error) {
	row, found, err := Metas.Get(ctx, r, name)
	if err != nil || !found {
		return 0, err
	}
	n, err := strconv.ParseInt(row.Value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("decode meta.%s: %w", name, err)
	}
	return n, nil
}

// save writes j and keeps t.live true. It is the only writer of jobs.
func (t *turn) save(ctx context.Context, tx Tx, j Job) error {
	i, known := slices.BinarySearchFunc(t.live, j.Number, func(a Job, n int64) int { return int(a.Number - n) })
	switch {
	case known && j.State.Live():
		t.live[i] = j
	case known:
		t.live = slices.Delete(t.live, i, i+1)
	case j.State.Live():
		t.live = slices.Insert(t.live, i, j)
	}
	if j.State.Terminal() {
		t.ended++
	}
	return Jobs.Put(ctx, tx, j)
}

// liveAttempt returns the live job with that attempt token.
func (t *turn) liveAttempt(token string) (Job, bool) {
	i := slices.IndexFunc(t.live, func(j Job) bool { return j.Attempt == token })
	if i < 0 {
		return Job{}, false
	}
	return t.live[i], true
}

// retire ends rows whose keeper is not the one that lives now: nobody will
// report their end. The keeper has listed the ends that it knows of before.
func (t *turn) retire(ctx context.Context, tx Tx) error {
	if !t.derived || t.d.keeper.instance == "" || t.d.queue.len() > t.batch || t.d.leashWait(t.now.Boot) > 0 {
		return nil
	}
	for _, j := range slices.Clone(t.live) {
		if j.Keeper == t.d.keeper.instance {
			continue
		}
		if err := t.save(ctx, tx, decideCutOff(t.now, j, t.d.cfg.Identity.Host)); err != nil {
			return err
		}
		t.epoch.cut++
	}
	return nil
}

// sweepChunk keeps one Step of the sweep far below R/2 (L19).
const sweepChunk = 500

// sweep retires queued rows that a dead daemon left, a chunk a Step, and makes
// the daemon ready behind the last.
func (t *turn) sweep(ctx context.Context, tx Tx) error {
	if !t.derived || t.d.role != Booting || t.d.keeper.instance == "" || t.d.queue.len() > t.batch ||
		t.d.leashWait(t.now.Boot) > 0 {
		return nil
	}
	if t.epoch.doomed > 0 {
		rows, err := Jobs.Scan(ctx, tx, Query{By: "jobs_state", Equal: []any{string(Queued)},
			After: []any{t.epoch.after}, Limit: sweepChunk})
		if err != nil {
			return err
		}
		for _, j := range rows {
			t.epoch.after = j.Number
			if j.Epoch > t.epoch.doomed {
				continue
			}
			if err := t.retireDoomed(ctx, tx, j); err != nil {
				return err
			}
			t.epoch.cut++
		}
		if len(rows) == sweepChunk {
			return nil
		}
	}
	return t.becomeReady(ctx, tx)
}

func (t *turn) retireDoomed(ctx context.Context, tx Tx, j Job) error {
	j = decideDoomed(t.now, j)
	if err := t.unfire(ctx, tx, j); err != nil {
		return err
	}
	return t.save(ctx, tx, j)
}

func (t *turn) becomeReady(ctx context.Context, tx Tx) error {
	if err := t.setDoomed(ctx, tx, 0); err != nil {
		return err
	}
	row, _, err := Leases.Get(ctx, tx, 1)
	if err != nil {
		return err
	}
	row.ReadyEpoch = row.Epoch
	t.ready = true
	if err := Leases.Put(ctx, tx, row); err != nil {
		return err
	}
	cordons, err := loadCordons(ctx, tx)
	if err != nil {
		return err
	}
	t.found = inventory(t.epoch.cut, cordons)
	return t.record(ctx, tx, "lease.ready", t.d.cfg.Identity.Host, t.found)
}

// inventory says what whoever takes a store over finds in it (O11).
func inventory(cut int64, cordons []Cordon) string {
	text := fmt.Sprintf("%d interrupted, no cordon", cut)
	for i, c := range cordons {
		if i == 0 {
			text = fmt.Sprintf("%d interrupted, cordoned:", cut)
		}
		text += fmt.Sprintf(" %s (by %s at %s: %s)", c.Reason, c.By, c.AtMs.Time().UTC().Format(time.RFC3339), cmp.Or(c.Why, "no reason given"))
	}
	return text
}

// claim starts queued jobs as far as there is room (L6, K6, DESIGN 6).
func (t *turn) claim(ctx context.Context, tx Tx) error {
	if !t.mayClaim() {
		return nil
	}
	cordons, err := loadCordons(ctx, tx)
	if err != nil {
		return err
	}
	for free := t.d.cfg.Limit - len(t.live); free > 0; free = t.d.cfg.Limit - len(t.live) {
		jobs, err := tx.Claimable(ctx, len(cordons) > 0, free)
		if err != nil || len(jobs) == 0 {
			return err
		}
		locked := ""
		for _, j := range jobs {
			if j.LockKey != "" && slices.ContainsFunc(t.live, func(l Job) bool { return l.LockKey == j.LockKey }) {
				locked = j.LockKey
				continue // taken within this batch; the next look leaves it out
			}
			if err := t.save(ctx, tx, t.claimed(j)); err != nil {
				return err
			}
		}
		if locked == "" && len(jobs) < free {
			return nil
		}
	}
	return nil
}

func (t *turn) mayClaim() bool {
	d := t.d
	doubt := d.tenure.doubt && t.renewal == nil
	active := d.role == Active || t.ready
	late := t.renewal == nil && t.now.Boot >= d.leash(d.tenure.known.start).TermAt
	return t.derived && active && d.stop.level == 0 && !doubt && !late && d.keeper.mayStart(d.tenure.known.seq)
}

func (t *turn) claimed(j Job) Job {
	id := t.d.cfg.Identity
	j = j.move(Starting, "")
	j.Owner, j.Host, j.Epoch = id.Incarnation, id.Host, t.d.tenure.known.epoch
	j.Keeper = t.d.keeper.instance
	t.started++
	return j
}

// release gives the lease back once nothing of ours is left (L10, S5).
func (t *turn) release(ctx context.Context, tx Tx) error {
	if !t.derived || t.d.role != Releasing || t.d.queue.len() > t.batch {
		return nil
	}
	mine := func(j Job) bool { return j.Owner == t.d.cfg.Identity.Incarnation }
	if slices.ContainsFunc(t.live, mine) {
		return nil
	}
	row, _, err := Leases.Get(ctx, tx, 1)
	if err != nil {
		return err
	}
	if err := t.record(ctx, tx, "lease.released", t.d.cfg.Identity.Host, t.d.stop.why); err != nil {
		return err
	}
	row = row.renewed(t.now, t.d.cfg.Terms, newStamp(t.d.chance))
	row.State = LeaseReleased
	t.released = true
	return Leases.Put(ctx, tx, row)
}

// record adds a line to the store's history.
func (t *turn) record(ctx context.Context, tx Tx, kind, subject, detail string) error {
	return t.append(ctx, tx, Happening{Kind: kind, Subject: subject, Detail: detail, AtMs: t.now.Ms()})
}

func (t *turn) append(ctx context.Context, tx Tx, h Happening) error {
	return appendHappening(ctx, tx, t.d.tenure.known.epoch, h)
}

func appendHappening(ctx context.Context, tx Tx, epoch int64, h Happening) error {
	last, _, err := Happenings.First(ctx, tx, Query{Desc: true})
	if err != nil {
		return err
	}
	h.Seq, h.Epoch = last.Seq+1, epoch
	return Happenings.Put(ctx, tx, h)
}
