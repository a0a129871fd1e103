package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// Loop is the only place in this package that waits. It steps a Daemon for
// every event, for all that wait together, and whenever Next comes.
type Loop struct {
	d     *Daemon
	ports Ports
	log   *slog.Logger
	inbox chan Event
	done  chan struct{}
	seen  atomic.Pointer[Snapshot]
	fed   func() // told after each Step: a supervisor's watchdog
}

// inboxSize is how many events may wait before whoever tells more must wait
// too, or is turned away.
const inboxSize = 4096

// doze is the longest that Loop sleeps without looking at the boot clock: Go's
// timers stand still while the host is suspended, the boot clock does not (L15).
const doze = time.Second

// NewLoop returns a Loop over d. fed may be nil.
func NewLoop(d *Daemon, p Ports, log *slog.Logger, fed func()) *Loop {
	l := &Loop{d: d, ports: p, log: log, inbox: make(chan Event, inboxSize), done: make(chan struct{}), fed: fed}
	l.seen.Store(d.Snapshot())
	return l
}

// Snapshot returns what was published after the last Step.
func (l *Loop) Snapshot() *Snapshot { return l.seen.Load() }

// Done is closed when Run has returned.
func (l *Loop) Done() <-chan struct{} { return l.done }

// Run steps the daemon until it leaves, and returns its exit code. It obeys
// Stop, not ctx: the end of ctx only cuts short what blocks.
func (l *Loop) Run(ctx context.Context) int {
	defer close(l.done)
	timer := l.d.clock.Timer(0)
	defer timer.Stop()
	events := []Event{Wake{}}
	for {
		if code, left := l.step(ctx, events); left {
			return code
		}
		events = l.wait(timer.C, func(d time.Duration) { timer.Reset(d) })
	}
}

// step is one Step, bounded by A, and what it owes.
func (l *Loop) step(ctx context.Context, events []Event) (code int, left bool) {
	limit, cancel := l.d.clock.WithTimeout(ctx, l.d.AttemptLimit())
	effects, err := l.d.Step(limit, events...)
	cancel()
	if err != nil {
		l.log.Warn("step failed", "err", err, "again_at", l.d.Next().Why)
	}
	l.seen.Store(l.d.Snapshot())
	for _, eff := range effects {
		if ev := l.d.Perform(ctx, eff, l.ports); ev != nil {
			l.Tell(ev)
		}
		if leave, ok := eff.(Leave); ok {
			return leave.Code, true
		}
	}
	if l.fed != nil {
		l.fed()
	}
	return 0, false
}

// wait returns what happened next. Everything that waits by then shares one
// Step, and so one commit.
func (l *Loop) wait(tick <-chan time.Time, reset func(time.Duration)) []Event {
	for {
		left := l.d.Next().At.Sub(l.d.clock.Boot())
		if left <= 0 {
			return l.drain([]Event{Wake{}})
		}
		reset(min(left, doze))
		select {
		case ev := <-l.inbox:
			return l.drain([]Event{ev})
		case <-tick:
		}
	}
}

func (l *Loop) drain(events []Event) []Event {
	for len(events) < maxBatch {
		select {
		case ev := <-l.inbox:
			events = append(events, ev)
		default:
			return events
		}
	}
	return events
}

// Tell files an event. It waits only while thousands wait already.
func (l *Loop) Tell(ev Event) {
	select {
	case l.inbox <- ev:
	case <-l.done:
	}
}

// Offer files a command for which nobody waits, if there is room at once.
func (l *Loop) Offer(c Command) bool {
	select {
	case l.inbox <- Asked{Command: c}:
		return true
	default:
		return false
	}
}

// Ask files a command and waits for its answer.
func (l *Loop) Ask(ctx context.Context, c Command) (any, error) {
	to := make(answerBox, 1)
	select {
	case l.inbox <- Asked{Command: c, Reply: to}:
	case <-l.done:
		return nil, l.d.gone()
	case <-ctx.Done():
		return nil, timedOut(ctx)
	default:
		return nil, Errorf(Unavailable, "%d requests wait already: the daemon takes no more", inboxSize).
			Hint("try again in a moment, with the same idempotency key")
	}
	select {
	case a := <-to:
		return a.result, a.err
	case <-l.done:
		return nil, l.d.gone()
	case <-ctx.Done():
		return nil, timedOut(ctx)
	}
}

func timedOut(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return Errorf(TimedOut, "no answer in time: whether it was done is not known").
		Hint("ask again with the same idempotency key, or look at exocomp jobs list")
}

// answerBox takes one answer.
type answerBox chan answer

type answer struct {
	result any
	err    error
}

// Reply implements Replier.
func (b answerBox) Reply(result any, err error) {
	select {
	case b <- answer{result, err}:
	default: // answered already
	}
}
