package proc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// session is one connection of a daemon.
type session struct {
	conn net.Conn
	out  chan report
}

// serve reads requests until the connection ends.
func (k *Keeper) serve(s *session) {
	defer s.conn.Close()
	done := make(chan struct{})
	defer close(done)
	go s.write(done)
	in := json.NewDecoder(bufio.NewReader(s.conn))
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			break
		}
		k.handle(s, r)
	}
	k.ended(s)
}

// write sends reports. The daemon may be stopped for long: what does not fit
// into the queue is dropped, and found again by the next List.
func (s *session) write(done <-chan struct{}) {
	for {
		select {
		case r := <-s.out:
			if err := s.conn.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				return
			}
			if err := writeFrame(s.conn, r); err != nil {
				s.conn.Close()
				return
			}
		case <-done:
			return
		}
	}
}

// handle obeys one request. Only the newest session is heard (K2), but for the
// two that whoever may open the socket may ask at any time: what runs, and an end
// to it (K5).
func (k *Keeper) handle(s *session, r request) {
	switch {
	case r.Hello != nil:
		k.hello(s, r)
		return
	case r.List:
		s.tell(k.list(0))
		return
	case r.KillAll:
		k.killFor(s)
		return
	}
	k.mu.Lock()
	current := k.session == s
	k.mu.Unlock()
	if !current {
		return
	}
	switch {
	case r.Start != nil:
		k.start(*r.Start)
	case r.Signal != nil:
		k.signal(*r.Signal)
	case r.Extend != nil:
		k.extend(*r.Extend)
	case r.Forget != nil:
		k.forget(r.Forget)
	}
}

// killFor ends everything for s, which hears of it when all is over. What the
// session has asked for and not got by then it will not get.
func (k *Keeper) killFor(s *session) {
	k.mu.Lock()
	k.barred = true
	k.killers = append(k.killers, s)
	k.mu.Unlock()
	k.killAll(daemon.CauseLeash)
	k.tellKillers()
}

// tellKillers says that nothing runs, once that is so.
func (k *Keeper) tellKillers() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.idle() {
		return
	}
	for _, s := range k.killers {
		s.tell(report{Killed: true})
	}
	k.killers = nil
}

// hello makes s the session. Whatever older ones still had to say is void.
func (k *Keeper) hello(s *session, r request) {
	k.mu.Lock()
	old := k.session
	k.session, k.epoch, k.leash, k.barred = s, r.Hello.Epoch, r.Hello.Leash, false
	k.mu.Unlock()
	if old != nil && old != s {
		old.conn.Close()
	}
	k.poke()
	k.report(k.list(r.Hello.Seq))
}

// extend replaces the leash: never a maximum of old and new (L21).
func (k *Keeper) extend(x daemon.Extend) {
	k.mu.Lock()
	mine := x.Epoch == k.epoch
	if mine {
		k.leash = x.Leash
	}
	k.mu.Unlock()
	if mine {
		k.poke()
		k.report(report{Extended: &daemon.Extended{Instance: k.instance, Seq: x.Seq}})
	}
}

// ended is the end of a connection. With leash zero that of the session kills
// everything, and the keeper ends behind the last funeral.
func (k *Keeper) ended(s *session) {
	k.mu.Lock()
	k.killers = slices.DeleteFunc(k.killers, func(o *session) bool { return o == s })
	last := k.session == s
	if last {
		k.session = nil
	}
	k.mu.Unlock()
	if last {
		k.killAll(daemon.CauseLeash)
		k.alone(0)
	}
}

// forget lets go of ends that the daemon has committed. It will never ask for
// those attempts again.
func (k *Keeper) forget(attempts []string) {
	k.mu.Lock()
	for _, token := range attempts {
		if a := k.attempts[token]; a != nil && a.over {
			delete(k.attempts, token)
		}
	}
	k.mu.Unlock()
	if err := k.records.forget(attempts); err != nil {
		k.trouble("%v", err)
	}
}

func (k *Keeper) list(seq int64) report {
	l := daemon.Listed{Instance: k.instance, Seq: seq, Cgroup: k.groups.base != "", Exits: k.records.list()}
	k.mu.Lock()
	defer k.mu.Unlock()
	l.Epoch = k.epoch
	for token, a := range k.attempts {
		if !a.over {
			l.Running = append(l.Running, token)
		}
	}
	return report{Listed: &l}
}

// report tells the session, if there is one.
func (k *Keeper) report(r report) {
	k.mu.Lock()
	s := k.session
	k.mu.Unlock()
	if s != nil {
		s.tell(r)
	}
}

// tell queues a report.
func (s *session) tell(r report) {
	select {
	case s.out <- r:
	default:
	}
}

// trouble puts a line into the daemon's log.
func (k *Keeper) trouble(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	k.opts.Log.Warn(text)
	k.report(report{Trouble: text})
}
