package sim

import (
	"context"
	"errors"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// Client returns the operator's Client at a host: the one that the command line
// uses, carried by the World instead of a socket. A call lets the world go on
// until its answer is there.
func (h *Host) Client() daemon.Client {
	desk := daemon.Desk{Store: deskStore{h}, Clock: hostClock{h: h.clock}, Chance: h.w.K.Choices, Ask: h.ask,
		Snapshot: func() *daemon.Snapshot { return h.proc.d.Snapshot() }, Logs: noLogs{}}
	return desk.For(daemon.Principal{Actor: "operator", Scope: daemon.Admin, Bearer: true})
}

// patience is how long an operator waits for an answer.
const patience = 10 * time.Minute

func (h *Host) ask(_ context.Context, c daemon.Command) (any, error) {
	if h.proc == nil {
		return nil, errors.New("no daemon on " + h.Name)
	}
	if lift, ok := c.(daemon.LiftCordon); ok {
		h.w.Ghost.lifting = append(h.w.Ghost.lifting, lift.Reason)
	}
	box := &box{}
	h.proc.tell(daemon.Asked{Command: c, Reply: box})
	if _, err := h.w.Until(patience, func() bool { return box.done }); err != nil {
		return nil, err
	}
	if e, ok := box.result.(daemon.Enqueued); ok && box.err == nil {
		h.w.Ghost.acknowledged(e.Job.ID)
	}
	return box.result, box.err
}

type box struct {
	done   bool
	result any
	err    error
}

// Reply implements daemon.Replier.
func (b *box) Reply(result any, err error) { b.done, b.result, b.err = true, result, err }

// deskStore reads through the daemon's own handle.
type deskStore struct{ h *Host }

func (s deskStore) Update(context.Context, daemon.Guard, func(daemon.Tx) error) error {
	return errors.New("a client does not write")
}
func (s deskStore) View(ctx context.Context, fn func(daemon.Reader) error) error {
	return s.h.proc.store.View(ctx, fn)
}
func (s deskStore) Usable(ctx context.Context) error            { return s.h.proc.store.Usable(ctx) }
func (s deskStore) Version(ctx context.Context) (uint64, error) { return s.h.proc.store.Version(ctx) }
func (s deskStore) Migrate(context.Context, daemon.Guard, func(daemon.Tx) error) error {
	return errors.New("a client does not migrate")
}

type noLogs struct{}

func (noLogs) Tail(context.Context, string, int64, func() (bool, error), func(daemon.LogChunk) error) error {
	return nil
}

// Enqueue asks the host's daemon for a modelled command, such as "sleep 10s",
// and returns the job's id.
func (h *Host) Enqueue(argv ...string) (string, error) {
	e, err := h.Client().Enqueue(context.Background(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Argv: argv}})
	return e.Job.ID, err
}

// Offer files a request for a job and does not wait for the answer.
func (h *Host) Offer(argv ...string) {
	h.offer(daemon.EnqueueRequest{Spec: daemon.Spec{Argv: argv}})
}

func (h *Host) offer(r daemon.EnqueueRequest) {
	now := h.Wall()
	c := daemon.Enqueue{ID: daemon.NewID("job", now, h.w.K.Choices), Attempt: daemon.NewID("att", now, h.w.K.Choices),
		Actor: "operator", Request: r}
	h.proc.tell(daemon.Asked{Command: c, Reply: offered{h.w}})
}

type offered struct{ w *World }

// Reply implements daemon.Replier.
func (o offered) Reply(result any, err error) {
	if e, ok := result.(daemon.Enqueued); ok && err == nil {
		o.w.Ghost.acknowledged(e.Job.ID)
	}
}

// Submit writes a request to the inbox, as a command line does where no daemon
// is.
func (w *World) Submit(argv ...string) (daemon.Enqueued, error) {
	s, err := w.open()
	if err != nil {
		return daemon.Enqueued{}, err
	}
	defer s.Close()
	c := hostClock{h: w.hosts[0].clock}
	o := daemon.NewOffline(s, noLogs{}, c, w.K.Choices, daemon.About{}, "operator")
	return o.Enqueue(context.Background(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Argv: argv}})
}

// Unfinished returns how many jobs have not ended, those in the inbox too.
func (w *World) Unfinished() int {
	n := 0
	err := w.View(func(r daemon.Reader) error {
		ctx := context.Background()
		for _, s := range daemon.States[:4] {
			k, err := daemon.Jobs.Count(ctx, r, daemon.Query{By: "jobs_state", Equal: []any{string(s)}, Limit: 10_000})
			if err != nil {
				return err
			}
			n += k
		}
		k, err := daemon.Inboxes.Count(ctx, r, daemon.Query{Limit: 10_000})
		n += k
		return err
	})
	if err != nil {
		w.K.Fail("count jobs: %v", err)
	}
	return n
}
