package proc

import (
	"context"
	"time"
)

// The ways out. A daemon that may no longer act has everything killed and makes
// sure of it before it ends (K5): by its own keeper, by whatever keeper lives on
// its host, or itself, where no keeper answers (K6). It never waits for the store.

// KillAll implements daemon.Runner. It returns at once; Close waits for it.
func (r *Runner) KillAll(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killing != nil {
		return nil
	}
	r.killing = make(chan struct{})
	if r.out == nil {
		go r.killElsewhere(r.killing)
		return nil
	}
	r.killed = make(chan struct{})
	select {
	case r.out <- request{KillAll: true}:
	default: // it does not read, and so will not confirm
	}
	go r.killOwn(r.killing, r.killed)
	return nil
}

// killOwn makes sure that the keeper of the session kills.
func (r *Runner) killOwn(over chan struct{}, killed <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), killWithin)
	defer cancel()
	defer r.killingOver(over)
	r.insist(ctx, killed)
}

// killElsewhere has a keeper kill with which there is no session, and kills what
// a dead one left.
func (r *Runner) killElsewhere(over chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), killWithin)
	defer cancel()
	defer r.killingOver(over)
	if _, held, err := r.opts.Holder(); err != nil || !held {
		r.clear(ctx)
		return
	}
	killed := make(chan struct{})
	go func() {
		if r.site.ask(ctx) == nil {
			close(killed)
		}
	}()
	r.insist(ctx, killed)
}

// insist returns when a keeper has confirmed, or kills from outside. One that
// runs is helped with its jobs but left to write down how they ended: it has been
// told why. One that is stopped, or takes too long even so, is killed with them.
func (r *Runner) insist(ctx context.Context, killed <-chan struct{}) {
	late := time.After(noteWithin)
	for wait := heedWithin; ; wait = 20 * time.Millisecond {
		select {
		case <-killed:
			return
		case <-late:
			r.clear(ctx)
			return
		case <-time.After(wait):
		}
		k, _, err := r.site.keeper()
		if err != nil || k.pid == 0 || k.stopped() {
			r.clear(ctx)
			return
		}
		if jobs, err := r.site.jobs(k); err == nil {
			r.site.kill(jobs)
		}
	}
}

// clear kills from outside.
func (r *Runner) clear(ctx context.Context) {
	if err := r.site.clear(ctx, newTally()); err != nil {
		r.opts.Log.Error("not everything could be killed", "err", err)
	}
}

func (r *Runner) killingOver(over chan struct{}) {
	r.mu.Lock()
	r.killing = nil
	r.mu.Unlock()
	close(over)
}

// confirmed notes that nothing of the session's keeper runs.
func (r *Runner) confirmed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed != nil {
		close(r.killed)
		r.killed = nil
	}
}

// Close ends the session, so that the keeper kills what it runs and goes, and
// waits until it is gone. One that has not gone after d is killed, its jobs first.
// A KillAll that is under way comes to its end before, and no keeper is hailed
// any more.
func (r *Runner) Close(d time.Duration) {
	r.cancel()
	r.mu.Lock()
	killing := r.killing
	r.mu.Unlock()
	if killing != nil {
		<-killing // it is bounded
	}
	ctx, cancel := context.WithTimeout(context.Background(), killWithin)
	defer cancel()
	if err := r.until(ctx, func() bool { return !r.hailing }); err != nil {
		r.opts.Log.Warn("a keeper was being started and does not end", "err", err)
	}
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	if conn == nil {
		return
	}
	conn.Close()
	if r.settledWithin(d) {
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), killWithin)
	defer cancel()
	r.opts.Log.Warn("the keeper does not go by itself: killing it and its jobs", "state_dir", r.opts.StateDir)
	r.clear(ctx)
	r.settledWithin(killWithin)
}

func (r *Runner) settledWithin(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return r.settled(ctx) == nil
}
