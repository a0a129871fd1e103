//go:build heavy

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

// What must hold in every round:
//   - the store's history has no line of an older epoch behind one of a newer;
//   - a job that ended never changes again, and once a daemon is ready no job of
//     an older epoch is live;
//   - a job that was accepted is in the store, and in the end it has ended;
//   - two daemons are never ready at once.
//
// And what the jobs themselves tell, but for a host on which nothing could act:
//   - an attempt starts at most once, under the epoch of its row, and not at all
//     if its row says that it never did;
//   - no process of an older epoch says anything after one of a newer;
//   - no two processes have the same lock: each takes a flock that the kernel
//     gives to one only, and says so if it does not get it;
//   - no process lives whose job has ended.

// line is what one job says at one moment.
type line struct {
	epoch        int64
	job, attempt string
	what         string // start, on, end, overlap
	at           int64  // nanoseconds
	lock         string
}

const jobScript = `
say() { echo "$EXOCOMP_EPOCH $EXOCOMP_JOB $EXOCOMP_ATTEMPT $1 $(date +%%s%%N) $LOCK" >>"$DIR/lines"; }
if [ "$LOCK" != - ]; then
	exec 9>>"$DIR/lock.$LOCK"
	flock -n 9 || say overlap
fi
say start
for i in $(seq %d); do
	sleep 0.25
	say on
done
say end`

// stream submits jobs.
type stream struct {
	p    *pair
	r    *rand.Rand
	quit chan struct{}
	done chan struct{}
	once sync.Once

	mu       sync.Mutex
	accepted map[string]bool
}

func newStream(p *pair, r *rand.Rand) *stream {
	return &stream{p: p, r: r, quit: make(chan struct{}), done: make(chan struct{}), accepted: map[string]bool{}}
}

func (s *stream) stop() {
	s.once.Do(func() { close(s.quit) })
	<-s.done
}

// run submits until stop: never more than a few beyond what has ended.
func (s *stream) run() {
	defer close(s.done)
	for {
		select {
		case <-s.quit:
			return
		case <-time.After(between(s.r, 50*time.Millisecond, 250*time.Millisecond)):
		}
		if s.p.judge.waiting() < 20 {
			s.submit()
		}
	}
}

// submit asks one host after the other, over the socket or by the command line.
func (s *stream) submit() {
	lock := []string{"-", "one", "two"}[s.r.IntN(3)]
	quarters := 1 + s.r.IntN(4)
	switch s.r.IntN(8) {
	case 0, 1:
		quarters *= 3
	case 2: // these would outlive a takeover, if they were let
		quarters = 24 + 6*quarters
	}
	script := fmt.Sprintf(jobScript, quarters)
	env := map[string]string{"DIR": s.p.dir, "LOCK": lock}
	i := s.r.IntN(2)
	byHand := s.r.IntN(6) == 0
	for range 2 {
		h := s.p.hosts[i]
		i = 1 - i
		var done bool
		if byHand {
			done = s.byHand(h, script, lock)
		} else {
			done = s.overSocket(h, script, lock, env)
		}
		if done {
			return
		}
	}
}

func (s *stream) accept(id string) {
	s.mu.Lock()
	s.accepted[id] = true
	s.mu.Unlock()
	s.p.tally.count(&s.p.tally.accepted)
}

func (s *stream) byHand(h *host, script, lock string) bool {
	args := []string{"--data-dir", filepath.Join(s.p.dir, "data"), "-e", "DIR=" + s.p.dir, "-e", "LOCK=" + lock, "--shell", script}
	if lock != "-" {
		args = append([]string{"--lock", lock}, args...)
	}
	id, offline, err := h.submit(args...)
	if err != nil {
		return false
	}
	if offline {
		s.p.tally.count(&s.p.tally.offline)
	}
	s.accept(id)
	return true
}

func (s *stream) overSocket(h *host, script, lock string, env map[string]string) bool {
	req := daemon.EnqueueRequest{Spec: daemon.Spec{Shell: script, Env: env}}
	if lock != "-" {
		req.Lock = lock
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	e, err := h.client().Enqueue(ctx, daemon.NewID("key", time.Now(), linux.Chance{}), req)
	switch {
	case err == nil:
		s.accept(e.Job.ID)
		return true
	case daemon.CodeOf(err) == daemon.TimedOut:
		s.p.tally.count(&s.p.tally.unsure)
		return true
	}
	return false
}

// judge reads the store and what the jobs said.
type judge struct {
	p     *pair
	store *sqlite.Store

	lease  daemon.Lease
	jobs   map[string]daemon.Job
	seq    int64                 // of the last line of history that was judged
	epoch  int64                 // of that line
	host   string                // that holds the lease by it
	ended  map[string]daemon.Job // as they were when they ended
	starts map[string]line       // by attempt
	offset int                   // of the lines that were judged
	spoken int64                 // newest epoch in them
}

func newJudge(p *pair, data string) *judge {
	g := &judge{p: p, ended: map[string]daemon.Job{}, starts: map[string]line{}}
	opened := until(settleWithin, func() bool {
		var err error
		g.store, err = sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(data, storeFile), ReadOnly: true})
		return err == nil
	})
	if !opened {
		p.t.Fatal("the store cannot be read")
	}
	p.t.Cleanup(func() { g.store.Close() })
	return g
}

// waiting is how many jobs have not ended, as far as is known.
func (g *judge) waiting() int {
	var n int
	_ = g.store.View(context.Background(), func(r daemon.Reader) (err error) {
		for _, st := range daemon.States[:4] {
			m, err := daemon.Jobs.Count(context.Background(), r, daemon.Query{By: "jobs_state", Equal: []any{string(st)}, Limit: 100})
			if err != nil {
				return err
			}
			n += m
		}
		return nil
	})
	return n
}

// watch looks for two daemons that are ready at once, until its result is called.
func (g *judge) watch() func() {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		a, b := g.p.hosts[0], g.p.hosts[1]
		for {
			if a.active() && b.active() && a.active() {
				g.p.violate("both daemons say that they are ready")
			}
			select {
			case <-quit:
				return
			case <-time.After(150 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-done }
}

// read takes one snapshot of everything, and says what is new in the history.
func (g *judge) read() (news []daemon.Happening) {
	ctx := context.Background()
	read := until(settleWithin, func() bool {
		var jobs []daemon.Job
		err := g.store.View(ctx, func(r daemon.Reader) (err error) {
			if g.lease, _, err = daemon.Leases.Get(ctx, r, 1); err != nil {
				return err
			}
			if news, err = daemon.Happenings.Scan(ctx, r, daemon.Query{After: []any{g.seq}, Limit: 100_000}); err != nil {
				return err
			}
			jobs, err = daemon.Jobs.Scan(ctx, r, daemon.Query{By: "jobs_number", Limit: 1_000_000})
			return err
		})
		g.jobs = map[string]daemon.Job{}
		for _, j := range jobs {
			g.jobs[j.ID] = j
		}
		return err == nil
	})
	if !read {
		g.p.violate("the store cannot be read")
		g.p.t.FailNow()
	}
	return news
}

// round judges everything. With excepted it leaves out the processes.
func (g *judge) round(excepted string) {
	g.history(g.read())
	g.rows()
	g.promises()
	lines := g.newLines()
	g.starting(lines)
	g.leftovers(excepted)
	if excepted == "" {
		g.overlaps(lines)
	}
	for _, l := range lines {
		g.spoken = max(g.spoken, l.epoch)
	}
}

func (g *judge) history(news []daemon.Happening) {
	for _, h := range news {
		if h.Seq != g.seq+1 {
			g.p.violate("the history jumps from line %d to %d", g.seq, h.Seq)
		}
		if h.Epoch < g.epoch || h.Epoch > g.lease.Epoch {
			g.p.violate("line %d of the history (%s) has epoch %d behind epoch %d, and the lease has %d",
				h.Seq, h.Kind, h.Epoch, g.epoch, g.lease.Epoch)
		}
		if h.Kind == "lease.acquired" {
			g.p.tally.count(&g.p.tally.grants)
			if g.host != "" && g.host != h.Subject {
				g.p.tally.count(&g.p.tally.takeovers)
			}
			g.host = h.Subject
		}
		g.seq, g.epoch = h.Seq, max(g.epoch, h.Epoch)
	}
}

func (g *judge) rows() {
	ready := g.lease.ReadyEpoch == g.lease.Epoch
	for _, j := range g.jobs {
		if then, ended := g.ended[j.ID]; ended && fmt.Sprint(then) != fmt.Sprint(shown(j)) {
			g.p.violate("job %d had ended and changed:\n%+v\n%+v", j.Number, then, j)
		}
		if j.State.Terminal() {
			g.ended[j.ID] = shown(j)
		}
		if j.Epoch > g.lease.Epoch || ready && j.State.Live() && j.Epoch != g.lease.Epoch {
			g.p.violate("job %d is %s under epoch %d, and the lease has %d", j.Number, j.State, j.Epoch, g.lease.Epoch)
		}
	}
}

// shown is a row without pointers, so that two can be compared by their text.
func shown(j daemon.Job) daemon.Job {
	if j.ExitCode != nil {
		j.Signal += fmt.Sprint(" code ", *j.ExitCode)
		j.ExitCode = nil
	}
	return j
}

// promises looks for jobs that were accepted and are not there. One that was
// submitted without a daemon is still in the inbox, perhaps.
func (g *judge) promises() {
	g.p.stream.mu.Lock()
	defer g.p.stream.mu.Unlock()
	for id := range g.p.stream.accepted {
		if _, found := g.jobs[id]; found || g.inInbox(id) {
			continue
		}
		if g.read(); g.jobs[id].ID == "" && !g.inInbox(id) { // it moved between the two looks, or
			g.p.violate("job %s was accepted and is not in the store", id)
		}
	}
}

func (g *judge) inInbox(id string) (found bool) {
	ctx := context.Background()
	_ = g.store.View(ctx, func(r daemon.Reader) (err error) {
		_, found, err = daemon.Inboxes.Get(ctx, r, id)
		return err
	})
	return found
}

// newLines returns what jobs have said since the last call.
func (g *judge) newLines() (lines []line) {
	text, err := os.ReadFile(filepath.Join(g.p.dir, "lines"))
	if err != nil {
		return nil // nobody has spoken yet
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for row := range strings.Lines(string(text[g.offset:])) {
		f := strings.Fields(row)
		if len(f) != 6 {
			g.p.violate("a job said %q", row)
			continue
		}
		l := line{job: f[1], attempt: f[2], what: f[3], lock: f[5]}
		l.epoch, _ = strconv.ParseInt(f[0], 10, 64) // 0 is no epoch
		l.at, _ = strconv.ParseInt(f[4], 10, 64)
		lines = append(lines, l)
	}
	g.offset = len(text)
	return lines
}

// starting holds what the jobs say against their rows.
func (g *judge) starting(lines []line) {
	for _, l := range lines {
		if l.what != "start" {
			continue
		}
		if _, again := g.starts[l.attempt]; again {
			g.p.violate("attempt %s of %s started twice", l.attempt, l.job)
		}
		g.starts[l.attempt] = l
		g.p.tally.count(&g.p.tally.started)
	}
	g.read()
	for _, j := range g.jobs {
		l, started := g.starts[j.Attempt]
		switch {
		case started && (l.job != j.ID || l.epoch != j.Epoch || j.State == daemon.Queued):
			g.p.violate("job %d says that it runs as %s under epoch %d, and its row is %s, %s, epoch %d",
				j.Number, l.job, l.epoch, j.State, j.ID, j.Epoch)
		case started && strings.HasPrefix(j.Reason, "never started"):
			g.p.violate("job %d started, and its row says: %s", j.Number, j.Reason)
		case !started && j.State == daemon.Succeeded:
			g.p.violate("job %d succeeded and never started", j.Number)
		}
	}
}

// overlaps looks for two hosts, or two jobs of one lock, at once.
func (g *judge) overlaps(lines []line) {
	newest := g.spoken
	for _, l := range lines {
		if l.epoch < newest {
			g.p.violate("job %s of epoch %d says %q after a job of epoch %d spoke", l.job, l.epoch, l.what, newest)
		}
		newest = max(newest, l.epoch)
		if l.what == "overlap" {
			g.p.violate("job %s (epoch %d) runs while another has its lock %s", l.job, l.epoch, l.lock)
		}
	}
}

// leftovers waits until nothing lives whose job has ended. An attempt that no
// row names is nobody's either.
func (g *judge) leftovers(excepted string) {
	var left []string
	gone := func() bool {
		left = nil
		for _, h := range g.p.hosts {
			for _, p := range h.jobProcesses() {
				if g.over(p.attempt) {
					left = append(left, fmt.Sprintf("pid %d of %s on %s", p.pid, p.attempt, h.name))
				}
			}
		}
		return len(left) == 0
	}
	bound := time.Second
	if excepted != "" {
		bound = 15 * time.Second
	}
	if !until(bound, gone) && excepted == "" {
		g.p.violate("these live on, and their jobs have ended: %s", strings.Join(left, ", "))
		until(15*time.Second, gone) // the next round begins without them
	}
}

func (g *judge) over(attempt string) bool {
	for _, j := range g.jobs {
		if j.Attempt == attempt {
			return j.State.Terminal()
		}
	}
	return false // accepted a moment ago
}

// end waits until every job has ended, and judges for the last time.
func (g *judge) end() {
	none := func() bool { return g.waiting() == 0 && g.emptyInbox() }
	if !until(2*settleWithin, none) {
		g.read()
		for _, j := range g.jobs {
			if !j.State.Terminal() {
				g.p.violate("job %d is stuck: %s, epoch %d, %s", j.Number, j.State, j.Epoch, j.Reason)
			}
		}
		if !g.emptyInbox() {
			g.p.violate("the inbox is stuck")
		}
	}
	g.round("")
	y := g.p.tally
	by := map[daemon.State]*int{daemon.Succeeded: &y.succeeded, daemon.JobFailed: &y.failed,
		daemon.Cancelled: &y.cancelled, daemon.Interrupted: &y.interrupted}
	for _, j := range g.jobs {
		if n := by[j.State]; n != nil {
			y.count(n)
		}
	}
	g.ends()
}

func (g *judge) emptyInbox() bool {
	ctx := context.Background()
	n := 1
	_ = g.store.View(ctx, func(r daemon.Reader) (err error) {
		n, err = daemon.Inboxes.Count(ctx, r, daemon.Query{By: "inbox_at", Limit: 1})
		return err
	})
	return n == 0
}

// ends holds the successes against what the jobs said: one that succeeded has
// said its last word, and no two with one lock were under way at once.
func (g *judge) ends() {
	g.offset = 0
	ends := map[string]line{}
	for _, l := range g.newLines() {
		if l.what == "end" {
			ends[l.attempt] = l
		}
	}
	last := map[string]line{} // by lock: the latest end
	done := slices.SortedFunc(maps.Values(g.jobs), func(a, b daemon.Job) int {
		return cmp.Compare(g.starts[a.Attempt].at, g.starts[b.Attempt].at)
	})
	for _, j := range done {
		start, end := g.starts[j.Attempt], ends[j.Attempt]
		if j.State != daemon.Succeeded {
			continue
		}
		if end.at == 0 {
			g.p.violate("job %d succeeded without coming to its end", j.Number)
		}
		if other := last[j.LockKey]; j.LockKey != "" && start.at < other.at {
			g.p.violate("job %d began %s before job %s ended, and both have the lock %s",
				j.Number, time.Duration(other.at-start.at), other.job, j.LockKey)
		}
		if end.at > last[j.LockKey].at {
			last[j.LockKey] = end
		}
	}
}

// stopped judges what two daemons leave that were stopped in order.
func (g *judge) stopped() {
	g.read()
	if g.lease.State != daemon.LeaseReleased {
		g.p.violate("both daemons were stopped, and the lease is %s by %s", g.lease.State, g.lease.Host)
	}
	for _, h := range g.p.hosts {
		if left := h.jobProcesses(); len(left) > 0 {
			g.p.violate("%s is stopped, and %d of its job processes live", h.name, len(left))
		}
	}
}
