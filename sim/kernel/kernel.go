// Package kernel is a deterministic discrete-event simulator for one goroutine:
// true time, a queue of what is to happen, one source of every choice, and a
// trace with a rolling hash. It knows nothing of exocomp: package sim builds
// the world of exocomp on it, and another daemon's authors can build theirs.
//
// Two runs with the same seed that make the same calls give the same trace,
// byte for byte. Nothing here reads a clock, starts a goroutine or ranges over
// a map.
package kernel

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"io"
	"time"
)

// Time is true time, in nanoseconds since the simulation began. No simulated
// host can see it.
type Time int64

// Add returns the instant d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns how long after u the instant t comes.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// String gives t in seconds.
func (t Time) String() string { return fmt.Sprintf("%.3f", time.Duration(t).Seconds()) }

// Kernel runs a simulation.
type Kernel struct {
	Choices *Choices
	now     Time
	queue   queue
	seq     uint64
	trace   io.Writer
	hash    uint64
	lines   int
	failed  error
}

// New returns a Kernel at time 0 whose choices come from seed. The trace may be
// nil.
func New(seed uint64, trace io.Writer) *Kernel {
	if trace == nil {
		trace = io.Discard
	}
	return &Kernel{Choices: NewChoices(seed), trace: trace}
}

// Now returns true time.
func (k *Kernel) Now() Time { return k.now }

// At makes fn happen at t, behind all that is to happen at t already. In the
// past means now.
func (k *Kernel) At(t Time, fn func()) {
	k.seq++
	heap.Push(&k.queue, item{at: max(t, k.now), seq: k.seq, fn: fn})
}

// After makes fn happen d from now.
func (k *Kernel) After(d time.Duration, fn func()) { k.At(k.now.Add(d), fn) }

// RunUntil lets everything happen up to and at end. It may be called from
// inside an event: the world goes on while that event's process stands still.
// It stops early when the simulation has failed.
func (k *Kernel) RunUntil(end Time) error {
	for k.failed == nil && len(k.queue) > 0 && k.queue[0].at <= end {
		k.step()
	}
	if k.failed == nil {
		k.now = max(k.now, end)
	}
	return k.failed
}

// RunWhile lets things happen while cond holds, but not beyond end. It says
// whether cond ended before end.
func (k *Kernel) RunWhile(cond func() bool, end Time) (bool, error) {
	for cond() {
		if k.failed != nil {
			return false, k.failed
		}
		if len(k.queue) == 0 || k.queue[0].at > end {
			return false, k.RunUntil(end)
		}
		k.step()
	}
	return true, k.failed
}

func (k *Kernel) step() {
	it := heap.Pop(&k.queue).(item)
	k.now = max(k.now, it.at) // a nested RunUntil may have gone further
	it.fn()
}

// Fail ends the simulation. The first failure counts.
func (k *Kernel) Fail(format string, args ...any) {
	if k.failed == nil {
		k.failed = fmt.Errorf("at %s: "+format, append([]any{k.now}, args...)...)
		k.Log("FAILED %v", k.failed)
	}
}

// Failed returns the first failure, or nil.
func (k *Kernel) Failed() error { return k.failed }

// Log adds a line to the trace.
func (k *Kernel) Log(format string, args ...any) {
	line := fmt.Sprintf("%10s "+format+"\n", append([]any{k.now}, args...)...)
	h := fnv.New64a()
	fmt.Fprintf(h, "%016x%s", k.hash, line)
	k.hash = h.Sum64()
	k.lines++
	io.WriteString(k.trace, line)
}

// Hash identifies the trace so far.
func (k *Kernel) Hash() uint64 { return k.hash }

// Lines returns how many lines the trace has.
func (k *Kernel) Lines() int { return k.lines }

type item struct {
	at  Time
	seq uint64
	fn  func()
}

type queue []item

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}
func (q *queue) Push(x any) { *q = append(*q, x.(item)) }
func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = item{}
	*q = old[:len(old)-1]
	return it
}
