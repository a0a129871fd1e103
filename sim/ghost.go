package sim

import (
	"slices"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim/kernel"
)

// Ghost knows the truth: which process holds the lease, who committed what, and
// which job processes exist. The daemons cannot see it. Its oracles judge acts
// by that truth, never by the epoch that stands in a row: a bug that corrupts
// the row would blind them.
type Ghost struct {
	w     *World
	terms []term

	forks   map[string]kernel.Time // by attempt
	live    []*job
	ends    map[string]daemon.State    // terminal states by job
	promise []string                   // ids of jobs that were acknowledged
	doubt   map[string]bool            // by life: a renewal truly failed since the last success
	fenced  map[string]bool            // by life
	trust   map[string]daemon.Boottime // by life: D after the true start of the last true renewal
	Paused  time.Duration              // slack for job overlap: how long a host was paused at most (L16)
}

// term is one true tenure, from the commit of its grant to that of the next.
type term struct {
	p     *proc
	epoch int64
	from  kernel.Time
}

func newGhost(w *World) *Ghost {
	return &Ghost{w: w, forks: map[string]kernel.Time{}, ends: map[string]daemon.State{},
		doubt: map[string]bool{}, fenced: map[string]bool{}, trust: map[string]daemon.Boottime{}}
}

func (g *Ghost) term() term {
	if len(g.terms) == 0 {
		return term{}
	}
	return g.terms[len(g.terms)-1]
}

// committed is told of every commit, before the daemon knows of it.
func (g *Ghost) committed(p *proc, guard daemon.Guard, rec *recorder) {
	if len(rec.leases) > 0 {
		g.trust[p.life] = rec.start.Add(p.h.terms.Trust())
	}
	for _, row := range rec.leases {
		g.leaseWritten(p, row)
	}
	if guard != (daemon.Guard{}) && rec.rows > 0 {
		if t := g.term(); t.p != p || t.epoch != guard.Epoch {
			g.w.K.Fail("I1/I2: %s committed %d rows under epoch %d; the true holder is %s, epoch %d",
				p.life, rec.rows, guard.Epoch, holderOf(t), t.epoch)
		}
		if boot := p.h.Boot(); boot >= g.trust[p.life] {
			g.w.K.Fail("I5: %s committed %s past the end of its trust", p.life, boot.Sub(g.trust[p.life]))
		}
		if g.fenced[p.life] {
			g.w.K.Fail("I5: %s committed after it was fenced", p.life)
		}
	}
	for _, j := range rec.jobs {
		g.jobWritten(p, j, len(rec.leases) > 0)
	}
}

// acts is told of every effect on the world, before it is done.
func (g *Ghost) acts(p *proc, what string) {
	if boot := p.h.Boot(); boot >= g.trust[p.life] {
		g.w.K.Fail("S8: %s acts (%s) %s past the end of its trust", p.life, what, boot.Sub(g.trust[p.life]))
	}
}

func (g *Ghost) leaseWritten(p *proc, row daemon.Lease) {
	t := g.term()
	if row.Epoch == t.epoch {
		return
	}
	if row.Epoch < t.epoch {
		g.w.K.Fail("I3: %s wrote epoch %d after epoch %d", p.life, row.Epoch, t.epoch)
	}
	g.terms = append(g.terms, term{p: p, epoch: row.Epoch, from: g.w.K.Now()})
	g.w.K.Log("GHOST term %d: %s", row.Epoch, p.life)
	for _, j := range g.live {
		if j.epoch < row.Epoch && g.Paused == 0 && j.alive && j.on != p.h {
			g.w.K.Fail("I5: epoch %d begins on %s while %s of epoch %d still runs", row.Epoch, p.h.Name, j.job, j.epoch)
		}
	}
}

func holderOf(t term) string {
	if t.p == nil {
		return "nobody"
	}
	return t.p.life
}

// attempted is told of every try at a renewal, with whether its answer was good.
func (g *Ghost) attempted(p *proc, guard daemon.Guard, rec *recorder, good bool) {
	if guard == (daemon.Guard{}) || len(rec.leases) == 0 {
		return
	}
	g.doubt[p.life] = !good
}

func (g *Ghost) jobWritten(p *proc, j daemon.Job, renewed bool) {
	if was, ended := g.ends[j.ID]; ended {
		g.w.K.Fail("I13: job %s was %s and is written again as %s", j.ID, was, j.State)
	}
	if j.State.Terminal() {
		g.ends[j.ID] = j.State
	}
	if j.State == daemon.Starting && g.doubt[p.life] && !renewed {
		g.w.K.Fail("I6: %s claimed %s in doubt", p.life, j.ID)
	}
}

// forked is told of every job process.
func (g *Ghost) forked(k *keeper, j *job) {
	if at, twice := g.forks[j.attempt]; twice {
		g.w.K.Fail("I15: attempt %s was started at %s and again now", j.attempt, at)
	}
	if state, ended := g.ends[j.job]; ended {
		g.w.K.Fail("I15: job %s starts though it is %s", j.job, state)
	}
	if t := g.term(); g.Paused == 0 && (t.p == nil || t.p.h != k.h || t.epoch != j.epoch) {
		g.w.K.Fail("I1: %s forks under epoch %d; the true holder is %s, epoch %d", k.instance, j.epoch, holderOf(t), t.epoch)
	}
	g.forks[j.attempt] = g.w.K.Now()
	j.on = k.h
	g.live = append(g.live, j)
	g.leashed(k, j)
}

// leashed watches that the process does not outlive the leash of its keeper.
func (g *Ghost) leashed(k *keeper, j *job) {
	limit := k.leash.DeadBy
	k.h.atBoot(limit, func() {
		switch {
		case !j.alive || k.frozen || g.Paused > 0:
		case k.leash.DeadBy > limit:
			g.leashed(k, j)
		default:
			g.w.K.Fail("I5: %s outlives its leash on %s", j.job, k.h.Name)
		}
	})
}

func (g *Ghost) died(j *job) {
	g.live = slices.DeleteFunc(g.live, func(l *job) bool { return l == j })
}

// stepped is told after every Step.
func (g *Ghost) stepped(p *proc) {
	if p.d.Role() == daemon.Fenced {
		g.fenced[p.life] = true
	}
}

// acknowledged is told of every job whose acceptance was answered.
func (g *Ghost) acknowledged(id string) { g.promise = append(g.promise, id) }

func (g *Ghost) checkAcknowledged() {
	for _, id := range g.promise {
		if _, err := g.w.Job(id); err != nil {
			g.w.K.Fail("I16: an acknowledged job is lost: %v", err)
		}
	}
}

// Terms returns how many true terms there were.
func (g *Ghost) Terms() int { return len(g.terms) }

// TermBegan returns when the present true term began.
func (g *Ghost) TermBegan() kernel.Time { return g.term().from }
