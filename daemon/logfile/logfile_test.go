package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

const jobID = "job_01jd0000000000000000000000"

func newLog(t *testing.T, limit int64) (Dir, *Writer) {
	t.Helper()
	d := Dir{Root: t.TempDir(), Poll: time.Millisecond}
	w, err := d.Create(jobID, limit)
	if err != nil {
		t.Fatal(err)
	}
	return d, w
}

func read(t *testing.T, d Dir, from int64) []daemon.LogChunk {
	t.Helper()
	var got []daemon.LogChunk
	err := d.Tail(t.Context(), jobID, from, nil, func(c daemon.LogChunk) error {
		got = append(got, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestEveryByteComesBackWithItsStreamAndTime(t *testing.T) {
	d, w := newLog(t, 0)
	pieces := []struct {
		stream daemon.Stream
		data   string
	}{{daemon.Stdout, "hello\n"}, {daemon.Stderr, "\x1e1 o 5\nfake"}, {daemon.Stdout, "\xff\xfe\x00"}, {daemon.Stdout, ""},
		{daemon.Stderr, "no newline"}, {daemon.Stdout, "ü"[:1]}, {daemon.Stdout, "ü"[1:]}}
	for i, p := range pieces {
		w.Write(p.stream, daemon.Millis(1000+i), []byte(p.data))
	}
	totals, err := w.Close()
	if err != nil || totals.CutBytes != 0 {
		t.Fatalf("%+v, %v", totals, err)
	}
	got := read(t, d, 0)
	if len(got) != len(pieces) {
		t.Fatalf("%d chunks, want %d", len(got), len(pieces))
	}
	for i, c := range got {
		if c.Stream != pieces[i].stream || string(c.Data) != pieces[i].data || c.At != daemon.Millis(1000+i) {
			t.Errorf("chunk %d: %+v", i, c)
		}
		if rest := read(t, d, c.Next); len(rest) != len(pieces)-i-1 {
			t.Errorf("resumed behind chunk %d: %d chunks", i, len(rest))
		}
	}
}

func TestHeadAndTailAreKeptAndTheCutIsMarked(t *testing.T) {
	const limit = 64 << 10
	d, w := newLog(t, limit)
	var all bytes.Buffer
	for i := range 5000 {
		line := fmt.Sprintf("line %06d of five thousand, all of one length\n", i)
		all.WriteString(line)
		w.Write(daemon.Stdout, 1, []byte(line))
	}
	totals, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if totals.Bytes != int64(all.Len()) || totals.CutBytes == 0 {
		t.Errorf("totals %+v of %d bytes", totals, all.Len())
	}
	var kept bytes.Buffer
	gaps, size := 0, int64(0)
	for _, c := range read(t, d, 0) {
		if c.Stream == daemon.Gap {
			gaps++
			if c.Offset != totals.CutAt || c.Cut != totals.CutBytes {
				t.Errorf("gap %+v, totals %+v", c, totals)
			}
			kept.WriteString("...")
			continue
		}
		size += c.Next - c.Offset
		kept.Write(c.Data)
	}
	head, tail, _ := bytes.Cut(kept.Bytes(), []byte("..."))
	if gaps != 1 || !bytes.HasPrefix(all.Bytes(), head) || !bytes.HasSuffix(all.Bytes(), tail) {
		t.Errorf("%d gaps; head kept whole: %v, tail kept whole: %v", gaps,
			bytes.HasPrefix(all.Bytes(), head), bytes.HasSuffix(all.Bytes(), tail))
	}
	if size > limit || size < limit/2 {
		t.Errorf("%d bytes are kept of a cap of %d", size, limit)
	}
}

func TestAFollowerSeesTheEndAndNothingTwice(t *testing.T) {
	d, w := newLog(t, 8<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	done := make(chan struct{})
	var want bytes.Buffer
	go func() {
		defer close(done)
		for i := range 400 {
			line := fmt.Sprintf("%d:%s\n", i, bytes.Repeat([]byte("x"), rng.IntN(40)))
			want.WriteString(line)
			w.Write(daemon.Stdout, 1, []byte(line))
			runtime.Gosched()
		}
		w.Close()
	}()
	ended := func() (bool, error) {
		select {
		case <-done:
			return true, nil
		default:
			return false, nil
		}
	}
	var got bytes.Buffer
	lost, next := int64(0), int64(0)
	err := d.Tail(t.Context(), jobID, 0, ended, func(c daemon.LogChunk) error {
		if c.Offset != next {
			t.Errorf("chunk at %d, want %d", c.Offset, next)
		}
		next, lost = c.Next, lost+c.Cut
		got.Write(c.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lost == 0 && got.String() != want.String() {
		t.Error("nothing was cut, and yet the text differs")
	}
	if !bytes.HasSuffix(want.Bytes(), got.Bytes()[got.Len()-100:]) {
		t.Error("the end is missing")
	}
}

func TestATornLastFrameIsReadWhenTheLogHasEnded(t *testing.T) {
	d, w := newLog(t, 0)
	w.Write(daemon.Stdout, 1, []byte("whole\n"))
	w.Write(daemon.Stdout, 1, []byte("torn in the middle\n"))
	w.Close()
	segs, _ := segments(filepath.Join(d.Root, "01jd0", jobID))
	info, _ := os.Stat(segs[0].path)
	if err := os.Truncate(segs[0].path, info.Size()-8); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.Text(t.Context(), jobID); got != "whole\ntorn in the" {
		t.Errorf("got %q", got)
	}
}

func TestOffsetsThatNobodyGaveOutAreRefused(t *testing.T) {
	d, w := newLog(t, 0)
	w.Write(daemon.Stdout, 1, []byte("0123456789\n"))
	w.Close()
	for off := int64(1); off < 15; off++ {
		err := d.Tail(t.Context(), jobID, off, nil, func(daemon.LogChunk) error { return nil })
		if daemon.CodeOf(err) != daemon.Invalid {
			t.Errorf("offset %d: %v", off, err)
		}
	}
	if got := read(t, d, 1<<40); len(got) != 0 {
		t.Errorf("behind the end: %v", got)
	}
	for _, id := range []string{"", "x", "job_", "job_../../../etc", "job_a/b/c/d/e"} {
		if err := d.Tail(t.Context(), id, 0, nil, nil); err == nil {
			t.Errorf("job %q: no error", id)
		}
	}
}

func TestNoLogIsAnEmptyLog(t *testing.T) {
	d, w := newLog(t, 0)
	w.Close()
	if got := read(t, d, 0); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if entries, _ := os.ReadDir(d.Root); len(entries) != 0 {
		t.Error("a job that said nothing left files")
	}
}

func TestAReaderMayStopAndACancelEndsAFollower(t *testing.T) {
	d, w := newLog(t, 0)
	w.Write(daemon.Stdout, 1, []byte("a"))
	w.Write(daemon.Stdout, 1, []byte("b"))
	w.Close()
	enough := errors.New("enough")
	if err := d.Tail(t.Context(), jobID, 0, nil, func(daemon.LogChunk) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := d.Tail(ctx, jobID, 0, func() (bool, error) { return false, nil }, func(c daemon.LogChunk) error {
		if string(c.Data) == "b" {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAFailedWriteIsAHoleAndTheLogGoesOn(t *testing.T) {
	d, w := newLog(t, 0)
	w.Write(daemon.Stdout, 1, []byte("before\n"))
	w.file.Close() // the next write fails, as on a full disk
	w.Write(daemon.Stdout, 1, []byte("lost\n"))
	w.Write(daemon.Stdout, 1, []byte("after\n"))
	totals, err := w.Close()
	if err == nil {
		t.Error("the failed write is not reported")
	}
	got := read(t, d, 0)
	if len(got) != 3 || got[1].Stream != daemon.Gap || string(got[2].Data) != "after\n" {
		t.Errorf("got %+v", got)
	}
	if totals.CutBytes != got[1].Cut || totals.CutAt != got[1].Offset || totals.Bytes != 18 {
		t.Errorf("totals %+v", totals)
	}
}

func TestAHugeLineDoesNotGrowMemory(t *testing.T) {
	d, w := newLog(t, 1<<20)
	piece := bytes.Repeat([]byte("x"), 32<<10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 100 << 20 / len(piece) {
		w.Write(daemon.Stdout, 1, piece)
	}
	w.Close()
	err := d.Tail(t.Context(), jobID, 0, nil, func(daemon.LogChunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}
