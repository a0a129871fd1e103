package logfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// maxFrame is more than any writer puts into one frame.
const maxFrame = 1 << 20

// Tail implements daemon.Logs.
func (d Dir) Tail(ctx context.Context, job string, offset int64, ended func() (bool, error),
	yield func(daemon.LogChunk) error) error {
	dir, err := d.path(job)
	if err != nil {
		return daemon.Errorf(daemon.NotFound, "%w", err)
	}
	r := &reader{dir: dir, off: offset, yield: yield}
	pause := firstPause
	for {
		// The end is asked for before the files are read: what was written
		// before it is seen by this pass.
		last := ended == nil
		if ended != nil {
			if last, err = ended(); err != nil {
				return err
			}
		}
		before := r.off
		if err := r.pass(ctx, last); err != nil {
			return err
		}
		if last {
			return nil
		}
		if pause = d.nextPause(pause); r.off > before {
			pause = firstPause
		}
		if err := doze(ctx, pause); err != nil {
			return err
		}
	}
}

// firstPause is how soon a follower looks again after something came: a short
// job should not seem longer for being followed. It waits longer each time that
// nothing came.
const firstPause = 5 * time.Millisecond

func (d Dir) nextPause(pause time.Duration) time.Duration {
	longest := d.Poll
	if longest == 0 {
		longest = 200 * time.Millisecond
	}
	return min(pause*3/2, longest)
}

func doze(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// reader is somebody's place in a log.
type reader struct {
	dir   string
	off   int64
	yield func(daemon.LogChunk) error
}

// pass yields everything from off to what is now the end.
func (r *reader) pass(ctx context.Context, last bool) error {
	for {
		segs, err := segments(r.dir)
		if err != nil {
			return err
		}
		moved, err := r.readSegments(ctx, segs, last)
		if err != nil || !moved {
			return err
		}
	}
}

// readSegments reads on in the segment that holds off, or jumps over a hole. It
// says whether there may be more.
func (r *reader) readSegments(ctx context.Context, segs []segment, last bool) (bool, error) {
	for i, seg := range segs {
		final := i == len(segs)-1
		if !final && segs[i+1].start <= r.off {
			continue
		}
		if r.off < seg.start {
			return true, r.skip(seg.start)
		}
		before := r.off
		err := r.readSegment(ctx, seg, last || !final)
		if errors.Is(err, os.ErrNotExist) {
			return true, nil // dropped under our eyes: look again
		}
		if err != nil {
			return false, err
		}
		if !final && r.off < segs[i+1].start {
			return true, r.skip(segs[i+1].start)
		}
		return !final || r.off > before, nil
	}
	return false, nil
}

// skip tells of a hole up to off.
func (r *reader) skip(to int64) error {
	c := daemon.LogChunk{Offset: r.off, Next: to, Stream: daemon.Gap, Cut: to - r.off}
	r.off = to
	return r.yield(c)
}

// readSegment yields whole frames from off to the end of the file. Of a sealed
// one, which nobody writes any more, it yields a torn last frame too: the
// keeper died in the middle of it.
func (r *reader) readSegment(ctx context.Context, seg segment, sealed bool) error {
	f, err := os.Open(seg.path)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(r.off-seg.start, io.SeekStart); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	in := bufio.NewReaderSize(f, 64<<10)
	for ctx.Err() == nil {
		c, err := readFrame(in, r.off, sealed)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.off = c.Next
		if err := r.yield(c); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// readFrame reads the frame at off. It returns io.EOF when there is no whole
// one yet.
func readFrame(in *bufio.Reader, off int64, sealed bool) (daemon.LogChunk, error) {
	head, err := in.ReadSlice('\n')
	if err != nil {
		if len(head) > 0 && head[0] != 0x1e {
			return daemon.LogChunk{}, notABoundary(off)
		}
		return daemon.LogChunk{}, io.EOF
	}
	c, n, err := parseHead(string(head), off)
	if err != nil {
		return c, err
	}
	c.Data = make([]byte, n)
	got, err := io.ReadFull(in, c.Data)
	if err != nil && !(sealed && got > 0) {
		return c, io.EOF
	}
	c.Data = c.Data[:got]
	c.Next = off + int64(len(head)) + int64(got)
	return c, nil
}

func parseHead(head string, off int64) (daemon.LogChunk, int, error) {
	c := daemon.LogChunk{Offset: off, Stream: daemon.Stdout}
	fields := strings.Fields(strings.TrimPrefix(head, "\x1e"))
	if !strings.HasPrefix(head, "\x1e") || len(fields) != 3 {
		return c, 0, notABoundary(off)
	}
	at, err1 := strconv.ParseInt(fields[0], 10, 64)
	n, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil || n < 0 || n > maxFrame {
		return c, 0, notABoundary(off)
	}
	if fields[1] == "e" {
		c.Stream = daemon.Stderr
	}
	c.At = daemon.Millis(at)
	return c, n, nil
}

func notABoundary(off int64) error {
	return daemon.Errorf(daemon.Invalid, "log offset %d is not where an entry begins", off).
		Hint("use 0, or an offset that the log gave out")
}

// Text returns the whole log as the job wrote it, both streams together, for
// tests and small tools.
func (d Dir) Text(ctx context.Context, job string) (string, error) {
	var b bytes.Buffer
	err := d.Tail(ctx, job, 0, nil, func(c daemon.LogChunk) error {
		b.Write(c.Data)
		return nil
	})
	return b.String(), err
}
