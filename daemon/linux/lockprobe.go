package linux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// The lock probe finds out whether byte-range locks in a directory work between
// two processes, before a store there is trusted to them. Rules:
//   - It locks a file of its own, never the store: closing any descriptor of that
//     would drop SQLite's locks.
//   - The locks are SQLite's: fcntl(2) F_SETLK on the ranges of its pager.
//   - The other process answers what it was asked, a line for a line, and knows
//     nothing of what is expected of it.
//   - Anything may hang on a network file system, so all of it is bounded.
//
// Two processes on one host say nothing about two hosts; see localLocks.

// The bytes that SQLite locks in a database file; see os_unix.c.
const (
	pendingByte  = 0x40000000
	reservedByte = pendingByte + 1
	sharedFirst  = pendingByte + 2
	sharedSize   = 510
)

// probeLimit bounds a whole probe.
const probeLimit = 20 * time.Second

// brokenLocks says what locks ought to do and did not.
type brokenLocks string

func (b brokenLocks) Error() string { return string(b) }

// ProbeLocks probes the locks in dir. self makes the command of another process
// that calls AnswerLockProbe with its last argument, its stdin and its stdout.
func ProbeLocks(ctx context.Context, dir string, self func(args ...string) *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- probeIn(ctx, dir, self) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done(): // what hangs in the kernel is left behind
	}
	if ctx.Err() != nil {
		return daemon.Errorf(daemon.BadConfig, "locks in %s cannot be probed: no answer in time: %w", dir, ctx.Err()).
			Hint("a file server or its lock daemon may be down: look at the mount, and start again")
	}
	if broken, ok := errors.AsType[brokenLocks](err); ok {
		return daemon.Errorf(daemon.BadConfig, "locks on the file system of %s do not work between processes: %w", dir, broken).
			Hint("a network mount needs NFS 4 (mount -o vers=4.2,hard), or with NFS 3 a lock daemon and none of " +
				"the options nolock and local_lock; or put the data directory on a local disk")
	}
	if err != nil {
		return daemon.Errorf(daemon.BadConfig, "locks in %s cannot be probed: %w", dir, err).
			Hint("check that this user can write there, and that space is left")
	}
	return nil
}

func probeIn(ctx context.Context, dir string, self func(args ...string) *exec.Cmd) error {
	f, err := os.CreateTemp(dir, ".lockprobe-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	p := &prober{ctx: ctx, f: f}
	if err := p.spawn(self("lockprobe", f.Name())); err != nil {
		return fmt.Errorf("start a second process: %w", err)
	}
	defer p.kill()
	for _, question := range []func(){p.ours, p.readers, p.theirs, p.bytes, p.death} {
		if question(); p.err != nil {
			return p.err
		}
	}
	return nil
}

// prober is this process's side of a probe. After its first error it does
// nothing more.
type prober struct {
	ctx     context.Context
	f       *os.File
	cmd     *exec.Cmd
	asks    io.WriteCloser
	answers *bufio.Reader
	err     error
}

func (p *prober) spawn(cmd *exec.Cmd) (err error) {
	p.cmd = cmd
	if p.asks, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.answers = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return err
	}
	context.AfterFunc(p.ctx, func() { _ = cmd.Process.Kill() }) // nobody waits for its answer any more
	return nil
}

func (p *prober) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// ours: what this process holds is refused to another, until it is released.
func (p *prober) ours() {
	p.try(unix.F_WRLCK, reservedByte, 1, true, "a new file is locked already")
	p.ask("try", "refused", "a second process got a lock that this one holds")
	p.try(unix.F_UNLCK, reservedByte, 1, true, "a lock cannot be released")
	p.ask("try", "got", "a lock that was released is still refused to a second process")
}

// readers hold a lock together, and keep a writer out.
func (p *prober) readers() {
	p.try(unix.F_RDLCK, sharedFirst, sharedSize, true, "a new file is locked already")
	p.ask("share", "got", "two processes cannot hold a shared lock together")
	p.try(unix.F_WRLCK, sharedFirst, sharedSize, false, "this process got a lock to write while a second one reads")
	p.try(unix.F_UNLCK, sharedFirst, sharedSize, true, "a lock cannot be released")
}

// theirs: what the other process holds is refused to this one.
func (p *prober) theirs() {
	p.try(unix.F_WRLCK, reservedByte, 1, false, "this process got a lock that a second one holds")
}

// bytes: each reads what the other wrote. They take turns, as under a lock.
func (p *prober) bytes() {
	mine, theirs := "written by the first", "written by the second"
	if _, err := p.f.WriteAt([]byte(mine), 0); err != nil {
		p.err = err
		return
	}
	if p.err = p.f.Sync(); p.err != nil {
		return
	}
	p.ask("read", "read "+mine, "a second process does not read what this one wrote and synced")
	p.ask("write "+theirs, "written", "a second process cannot write")
	if p.err != nil {
		return
	}
	got := make([]byte, len(theirs))
	if _, err := p.f.ReadAt(got, 0); err != nil || string(got) != theirs {
		p.err = brokenLocks("this process does not read what a second one wrote and synced")
	}
}

// death of its holder frees a lock. A server may hear of it a little later.
func (p *prober) death() {
	p.kill()
	for range 20 {
		p.err = nil
		p.try(unix.F_WRLCK, reservedByte, 1, true, "a lock outlives the process that held it, which was killed")
		if p.err == nil {
			return
		}
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ask sends a line to the other process and compares its answer.
func (p *prober) ask(line, want, broken string) {
	if p.err != nil {
		return
	}
	if _, p.err = fmt.Fprintln(p.asks, line); p.err != nil {
		return
	}
	answer, err := p.answers.ReadString('\n')
	switch answer = strings.TrimSpace(answer); {
	case err != nil:
		p.err = fmt.Errorf("the second process ended: %w", err)
	case strings.HasPrefix(answer, "error"):
		p.err = errors.New("the second process: " + answer)
	case answer != want:
		p.err = brokenLocks(broken)
	}
}

// try compares what an attempt of our own comes to.
func (p *prober) try(kind int16, from, size int64, want bool, broken string) {
	if p.err != nil {
		return
	}
	ok, err := setLock(p.f, kind, from, size)
	if err != nil {
		p.err = err
	} else if ok != want {
		p.err = brokenLocks(broken)
	}
}

// AnswerLockProbe is the other process of ProbeLocks.
func AnswerLockProbe(path string, asks io.Reader, answers io.Writer) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(asks)
	for lines.Scan() {
		answer, err := answerProbe(f, lines.Text())
		if err != nil {
			answer = "error: " + err.Error()
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answerProbe(f *os.File, line string) (string, error) {
	verb, arg, _ := strings.Cut(line, " ")
	switch verb {
	case "try":
		return got(setLock(f, unix.F_WRLCK, reservedByte, 1))
	case "share":
		return got(setLock(f, unix.F_RDLCK, sharedFirst, sharedSize))
	case "read":
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
		return "read " + string(text), err
	case "write":
		if _, err := f.WriteAt([]byte(arg), 0); err != nil {
			return "", err
		}
		return "written", f.Sync()
	}
	return "", fmt.Errorf("%q is no question of the lock probe", line)
}

func got(ok bool, err error) (string, error) {
	if !ok {
		return "refused", err
	}
	return "got", err
}

// setLock tries a lock of this process, or gives it up. It does not wait.
func setLock(f *os.File, kind int16, from, size int64) (bool, error) {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: from, Len: size}
	err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l)
	for errors.Is(err, unix.EINTR) {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l)
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil { // such as ENOLCK: no lock daemon answers
		return false, brokenLocks("lock a range of a file: " + err.Error())
	}
	return true, nil
}
