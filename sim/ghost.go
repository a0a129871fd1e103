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
// the row would blind them. The numbers are those of the invariants in
// docs/simulation.md.
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
	cordons []string                   // reasons that stand
	lifting []string                   // reasons that an operator asked to lift
	ledger  *ledger
	// Slack is by how much a job may outlive its leash after a pause of a virtual
	// machine, which no clock inside can see (L16): R + A and the kill. After a
	// suspend it is wakeLatency at most. 0 allows no overlap.
	Slack time.Duration
}

// term is one true tenure, from the commit of its grant to that of the next.
type term struct {
	p     *proc
	epoch int64
	from  kernel.Time
}

func newGhost(w *World) *Ghost {
	g := &Ghost{w: w, forks: map[string]kernel.Time{}, ends: map[string]daemon.State{},
		doubt: map[string]bool{}, fenced: map[string]bool{}, trust: map[string]daemon.Boottime{}}
	g.ledger = newLedger(g)
	return g
}

func (g *Ghost) term() term {
	if len(g.terms) == 0 {
		return term{}
	}
	return g.terms[len(g.terms)-1]
}

// committed is told of every commit, before the daemon knows of it.
func (g *Ghost) committed(p *proc, guard daemon.Guard, rec *recorder) {
	if rec.renews() {
		g.trust[p.life] = rec.start.Add(p.h.terms.Trust())
	}
	guarded := guard != (daemon.Guard{})
	for _, o := range rec.ops {
		if row, ok := o.row.(*daemon.Lease); ok {
			g.leaseWritten(p, *row)
		}
	}
	if guarded && len(rec.ops) > 0 {
		g.judgeCommit(p, guard, len(rec.ops))
	}
	for _, o := range rec.ops {
		switch row := o.row.(type) {
		case *daemon.Job:
			g.jobWritten(p, *row, rec.renews())
		case *daemon.Cordon:
			g.cordons = append(slices.DeleteFunc(g.cordons, func(r string) bool { return r == row.Reason }), row.Reason)
		case nil:
			if o.table == daemon.Cordons.Table {
				g.lifted(p, o.key[0].(string))
			}
		}
	}
	g.ledger.committed(p, rec)
}

func (g *Ghost) judgeCommit(p *proc, guard daemon.Guard, rows int) {
	if t := g.term(); t.p != p || t.epoch != guard.Epoch {
		g.w.K.Fail("I1/I2: %s committed %d rows under epoch %d; the true holder is %s, epoch %d",
			p.life, rows, guard.Epoch, holderOf(t), t.epoch)
	}
	if boot := p.h.Boot(); boot >= g.trust[p.life] && !p.single {
		g.w.K.Fail("I5: %s committed %s past the end of its trust", p.life, boot.Sub(g.trust[p.life]))
	}
	if g.fenced[p.life] {
		g.w.K.Fail("I5: %s committed after it was fenced", p.life)
	}
}

// acts is told of every effect on the world, before it is done.
func (g *Ghost) acts(p *proc, what string) {
	if boot := p.h.Boot(); boot >= g.trust[p.life] && !p.single {
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
	if row.ForcedBy != "" {
		return // its own price is the leash wait: no job of the new term may overlap
	}
	for _, j := range g.live {
		if g.overlaps(j, row.Epoch, p.h) {
			g.w.K.Fail("I5: epoch %d begins on %s while %s of epoch %d still runs on %s", row.Epoch, p.h.Name, j.job, j.epoch, j.on.Name)
		}
	}
}

// overlaps says whether a process of an older term on another host lives on,
// past what no clock of that host could know.
func (g *Ghost) overlaps(j *job, epoch int64, h *Host) bool {
	if !j.alive || j.epoch >= epoch || j.on == h || g.attested(j.on) {
		return false
	}
	if k := j.on.keeper; k != nil && k.frozen && !j.on.awake() {
		return false // daemon and keeper both stand still: L16 promises commits only
	}
	if g.Slack == 0 {
		return true
	}
	// A host that stands still does nothing; its jobs are judged when it wakes.
	return !j.on.stopped && !g.excused(j.on)
}

// excused says whether h woke so short a time ago that nothing in it can know
// how long it stood still (L16).
func (g *Ghost) excused(h *Host) bool {
	return h.woke != 0 && g.w.K.Now().Sub(h.woke) <= h.daze
}

// wakeLatency is how long a host may take after a suspend to look at its clocks.
const wakeLatency = 20 * time.Millisecond

// attested says whether an operator answered for a host being off. If he lied,
// that is his.
func (g *Ghost) attested(h *Host) bool { return slices.Contains(g.w.attested, h.Name) }

func holderOf(t term) string {
	if t.p == nil {
		return "nobody"
	}
	return t.p.life
}

// attempted is told of every try at a renewal, with whether its answer was good.
func (g *Ghost) attempted(p *proc, guard daemon.Guard, rec *recorder, good bool) {
	if guard != (daemon.Guard{}) && rec.renews() {
		g.doubt[p.life] = !good
	}
}

func (g *Ghost) jobWritten(p *proc, j daemon.Job, renewed bool) {
	if was, ended := g.ends[j.ID]; ended {
		g.w.K.Fail("I13: job %s was %s and is written again as %s", j.ID, was, j.State)
	}
	if j.State.Terminal() {
		g.ends[j.ID] = j.State
		for _, l := range g.live {
			if l.job == j.ID && l.alive && (l.on == p.h || g.overlaps(l, j.Epoch+1, p.h)) {
				g.w.K.Fail("I8: %s ended %s as %s while its process lives on %s", p.life, j.ID, j.State, l.on.Name)
			}
		}
	}
	if j.State != daemon.Starting {
		return
	}
	if g.doubt[p.life] && !renewed {
		g.w.K.Fail("I6: %s claimed %s in doubt", p.life, j.ID)
	}
	if len(g.cordons) > 0 && j.ParentID == "" {
		g.w.K.Fail("I6: %s claimed %s, a root, under the cordon %v", p.life, j.ID, g.cordons)
	}
}

// lifted is told of every cordon reason that was removed (I7).
func (g *Ghost) lifted(p *proc, reason string) {
	g.cordons = slices.DeleteFunc(g.cordons, func(r string) bool { return r == reason })
	i := slices.Index(g.lifting, reason)
	if i < 0 {
		g.w.K.Fail("I7: %s lifted the cordon %q, which nobody asked for", p.life, reason)
	}
}

// forked is told of every job process.
func (g *Ghost) forked(k *keeper, j *job) {
	if at, twice := g.forks[j.attempt]; twice {
		g.w.K.Fail("I15: attempt %s was started at %s and again now", j.attempt, at)
	}
	if state, ended := g.ends[j.job]; ended && !g.excused(k.h) {
		g.w.K.Fail("I15: job %s starts though it is %s", j.job, state)
	}
	if t := g.term(); g.Slack == 0 && (t.p == nil || t.p.h != k.h || t.epoch != j.epoch) {
		g.w.K.Fail("I1: %s forks under epoch %d; the true holder is %s, epoch %d", k.instance, j.epoch, holderOf(t), t.epoch)
	}
	for _, old := range g.live {
		if g.overlaps(old, j.epoch, k.h) {
			g.w.K.Fail("I1: %s starts in epoch %d while %s of epoch %d still runs on %s", j.job, j.epoch, old.job, old.epoch, old.on.Name)
		}
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
		case !j.alive || k.frozen:
		case k.leash.DeadBy > limit:
			g.leashed(k, j)
		case g.excused(k.h):
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
