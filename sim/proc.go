package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// proc is one daemon process on a host.
type proc struct {
	h      *Host
	d      *daemon.Daemon
	store  *store
	life   string
	single bool // started with --single-host

	up       bool
	frozen   bool
	stepping bool // inside Step: the world may go on around it
	plans    int  // a wake of an older plan is void
	inbox    []daemon.Event

	code int    // exit code, once it has left
	why  string // and its last words
	left bool
}

// Option changes how a daemon is started.
type Option func(*daemon.Config)

// SingleHost makes the store this host's own.
func SingleHost(c *daemon.Config) { c.SingleHost = true }

// Force makes a daemon take the lease of that epoch by force.
func Force(epoch int64) Option {
	return func(c *daemon.Config) { c.Force.Epoch, c.Force.By = epoch, "operator" }
}

// DeposeLive makes a forced start depose a holder that lives.
func DeposeLive(c *daemon.Config) { c.Force.DeposeLive = true }

// OldHostIsOff attests that a host is off.
func OldHostIsOff(name string) Option { return func(c *daemon.Config) { c.Force.OldHostOff = name } }

// Standby makes a daemon watch for ever.
func Standby(c *daemon.Config) { c.Standby = true }

// Serve starts a daemon. Like the real one it is refused at once when a process
// on the host holds the lock.
func (h *Host) Serve(opts ...Option) {
	if h.proc != nil {
		h.w.K.Log("%s: a second daemon is refused by the lock", h.Name)
		return
	}
	handle, err := h.w.open()
	if err != nil {
		h.w.K.Fail("%s cannot open the store: %v", h.Name, err)
		return
	}
	h.lives++
	p := &proc{h: h, up: true, life: fmt.Sprintf("%s.%d", h.Name, h.lives)}
	p.store = &store{p: p, real: handle}
	cfg := daemon.Config{
		Identity: daemon.Identity{Holder: p.life, Host: h.Name, Incarnation: p.life, BootID: h.bootID(),
			LockDev: 1, LockIno: h.lockIno, PID: int64(h.lives)},
		Terms: h.terms, Limit: h.limit, DrainGrace: h.grace, Poll: time.Second,
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	p.single = cfg.SingleHost
	if cfg.Force.OldHostOff != "" {
		h.w.attested = append(h.w.attested, cfg.Force.OldHostOff)
	}
	log := slog.New(&traceHandler{w: h.w, who: p.life})
	p.d = daemon.New(cfg, daemon.Needs{Clock: hostClock{h: h.clock}, Store: p.store, Site: site{h}, Chance: h.w.K.Choices, Log: log})
	h.proc = p
	h.w.K.Log("%s serves", p.life)
	p.plan()
}

// runs says whether the process gets the processor.
func (p *proc) runs() bool { return p.up && !p.frozen && !p.h.stopped }

// tell delivers an event, or leaves it in the socket of a process that stands
// still.
func (p *proc) tell(ev daemon.Event) {
	if !p.up {
		return
	}
	p.inbox = append(p.inbox, ev)
	if p.runs() && !p.stepping {
		p.step()
	}
}

// plan arranges the next wake.
func (p *proc) plan() {
	p.plans++
	plan := p.plans
	p.h.atBoot(p.d.Next().At, func() {
		if p.plans == plan && p.runs() && !p.stepping {
			p.step()
		}
	})
}

// step is one turn of the production loop: all that waits, one Step, what it
// owes.
func (p *proc) step() {
	w := p.h.w
	events := append([]daemon.Event{daemon.Wake{}}, p.inbox...)
	p.inbox = nil
	ctx := context.Background()
	p.stepping = true
	effects, err := p.d.Step(ctx, events...)
	p.stepping = false
	if !p.up {
		return // it was killed in the middle of the Step
	}
	w.K.Log("%s step %s-> %s%s next %q%s", p.life, names(events), p.d.Role(), effectNames(effects),
		p.d.Next().Why, errText(err))
	w.Ghost.stepped(p)
	if d := p.store.dawdle; d > 0 && len(effects) > 0 {
		w.K.Log("%s is frozen between commit and effect for %s", p.life, d)
		p.store.dawdle = 0
		p.stepping = true
		p.store.hang(d)
		if p.stepping = false; !p.up {
			return
		}
	}
	for _, eff := range effects {
		if p.store.crashAfter > 0 {
			if p.store.crashAfter--; p.store.crashAfter == 0 {
				p.end("crash between commit and effect")
				return
			}
		}
		if ev := p.d.Perform(ctx, eff, daemon.Ports{Runner: runner{p}, Process: process{p}}); ev != nil {
			p.inbox = append(p.inbox, ev)
		}
		if !p.up {
			return
		}
	}
	if len(p.inbox) > 0 && p.runs() {
		p.step()
		return
	}
	p.plan()
}

// Crash kills the daemon between two instructions.
func (h *Host) Crash() {
	if h.proc != nil {
		h.proc.end("kill -9")
	}
}

// CrashBeforeEffect kills the daemon after its nth next commit, before the nth
// effect that is owed then.
func (h *Host) CrashBeforeEffect(n int) { h.proc.store.crashAfter = n }

// end makes the process and its sockets disappear.
func (p *proc) end(why string) {
	p.h.w.K.Log("%s ends: %s", p.life, why)
	p.up = false
	p.plans++
	if p.h.proc == p {
		p.h.proc = nil
	}
	p.store.close()
	if k := p.h.keeper; k != nil && k.session == p {
		k.sessionEnded()
	}
}

// Freeze stops the daemon's process, as SIGSTOP does. Its keeper runs on.
func (h *Host) Freeze() {
	h.w.K.Log("%s freezes", h.proc.life)
	h.proc.frozen = true
}

// Thaw lets a frozen daemon go on.
func (h *Host) Thaw() {
	h.w.K.Log("%s thaws", h.proc.life)
	h.proc.frozen = false
	if h.proc.runs() && !h.proc.stepping {
		h.proc.step()
	}
}

// Signal sends SIGTERM to the daemon.
func (h *Host) Signal() { h.proc.tell(daemon.Stop{Why: "SIGTERM"}) }

// Daemon returns what the daemon knows of itself, or nil when there is none.
func (h *Host) Daemon() *daemon.Snapshot {
	if h.proc == nil {
		return nil
	}
	return h.proc.d.Snapshot()
}

// Process returns a handle on the daemon process that runs now, which outlives
// it: its exit code can be asked for.
func (h *Host) Process() *Process { return &Process{h.proc} }

// Process is one daemon process, alive or not.
type Process struct{ p *proc }

// Left says whether the process has left by itself, and with which code.
func (p *Process) Left() (code int, why string, left bool) { return p.p.code, p.p.why, p.p.left }

// process is the daemon.Process port.
type process struct{ p *proc }

var _ daemon.Process = process{}

func (x process) Ready() error          { return nil }
func (x process) Stopping(string) error { return nil }
func (x process) StandDown(n daemon.StandDown) error {
	x.p.h.w.K.Log("%s notes that it stood down: %s", x.p.life, n.Why)
	return nil
}
func (x process) Exit(code int, why string) {
	x.p.code, x.p.why, x.p.left = code, why, true
	x.p.end(fmt.Sprintf("exit %d: %s", code, why))
}

// site is the daemon.Site port.
type site struct{ h *Host }

// Holds implements daemon.Site.
func (s site) Holds() error {
	if s.h.lockGone {
		return daemon.Errorf(daemon.StoodDown, "the lock was removed").Hint("start again")
	}
	return nil
}

// Blocked makes every Update of the host's daemon wait in vain for the write
// lock, which who holds, until Heal.
func (h *Host) Blocked(who string) {
	h.w.K.Log("%s: %s takes the write lock", h.Name, who)
	h.blocker, h.proc.store.blocked = who, true
}

// Blocker implements daemon.Site.
func (s site) Blocker() string { return s.h.blocker }

// RemoveLock removes serve.lock while a daemon holds it. A daemon that starts
// from now on locks a new file.
func (h *Host) RemoveLock() {
	h.w.K.Log("%s: serve.lock is removed", h.Name)
	h.lockGone = true
	h.lockIno += 1000
}

// ReplaceStore puts another file in the place of the store, as this host sees it.
func (h *Host) ReplaceStore() {
	h.w.K.Log("%s: the store is replaced", h.Name)
	h.proc.store.replaced = true
}

func names(events []daemon.Event) string {
	var b strings.Builder
	for _, ev := range events[1:] {
		name := strings.TrimPrefix(fmt.Sprintf("%T", ev), "daemon.")
		if a, ok := ev.(daemon.Asked); ok {
			name = strings.TrimPrefix(fmt.Sprintf("%T", a.Command), "daemon.")
		}
		b.WriteString(name + " ")
	}
	return b.String()
}

func effectNames(effects []daemon.Effect) string {
	var b strings.Builder
	for _, eff := range effects {
		b.WriteString(" " + strings.TrimPrefix(fmt.Sprintf("%T", eff), "daemon."))
	}
	return b.String()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return " error: " + err.Error()
}

// traceHandler writes what a daemon logs into the trace of the World.
type traceHandler struct {
	w   *World
	who string
}

func (h *traceHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *traceHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *traceHandler) WithGroup(string) slog.Handler            { return h }
func (h *traceHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.w.K.Log("%s says %q%s", h.who, r.Message, b.String())
	return nil
}
