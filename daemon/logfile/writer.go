package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/exocomp/exocomp/daemon"
)

// DefaultCap is how large a log may grow before its middle is cut.
const DefaultCap = 16 << 20

// tailSegments is how many files the tail is kept in: the oldest of them is
// dropped when a new one begins.
const tailSegments = 4

// Writer appends to one log. It is safe for the two pipes of a job.
//
// A write that fails (the disk is full) loses its bytes and no others: the log
// goes on in a new segment when there is room again, and the hole is a cut like
// any other. The job is never told, and never waits.
type Writer struct {
	dir string
	cap int64

	mu      sync.Mutex
	frame   []byte // one frame, used again
	file    *os.File
	size    int64   // of file
	off     int64   // of the next frame in the whole log
	kept    []int64 // starts of the tail segments
	head    bool    // the head is full
	totals  daemon.LogTotals
	lastErr error
}

// Create returns a Writer for a job's log. The files are made with the first
// write: a job that says nothing leaves none.
func (d Dir) Create(job string, limit int64) (*Writer, error) {
	dir, err := d.path(job)
	if err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = DefaultCap
	}
	return &Writer{dir: dir, cap: limit}, nil
}

// Write appends what one read returned.
func (w *Writer) Write(stream daemon.Stream, at daemon.Millis, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.totals.Bytes += int64(len(data))
	w.frame = appendFrame(w.frame[:0], stream, at, data)
	if err := w.append(w.frame); err != nil {
		w.lastErr = err
		w.cut(int64(len(w.frame)))
	}
}

func appendFrame(b []byte, stream daemon.Stream, at daemon.Millis, data []byte) []byte {
	b = append(b, 0x1e)
	b = strconv.AppendInt(b, int64(at), 10)
	if stream == daemon.Stderr {
		b = append(b, " e "...)
	} else {
		b = append(b, " o "...)
	}
	b = strconv.AppendInt(b, int64(len(data)), 10)
	b = append(b, '\n')
	return append(b, data...)
}

// append writes one frame into the segment where it belongs.
func (w *Writer) append(frame []byte) error {
	if err := w.makeRoom(int64(len(frame))); err != nil {
		return err
	}
	n, err := w.file.Write(frame)
	if err != nil {
		// What stands half written would be read as a frame of another length.
		_ = w.file.Truncate(w.size)
		err = errors.Join(err, w.file.Close())
		w.file = nil
		if n > 0 && w.size == 0 {
			err = errors.Join(err, os.Remove(filepath.Join(w.dir, segmentName(w.off))))
		}
		return fmt.Errorf("write log: %w", err)
	}
	w.size += int64(n)
	w.off += int64(n)
	return nil
}

// makeRoom opens the next segment when the present one is full, and drops the
// oldest of the tail.
func (w *Writer) makeRoom(n int64) error {
	full := w.cap / 2
	if w.head {
		full /= tailSegments
	}
	if w.file != nil && w.size > 0 && w.size+n > full {
		if err := w.file.Close(); err != nil {
			w.lastErr = err
		}
		w.file, w.head = nil, true
	}
	if w.file != nil {
		return nil
	}
	if err := w.open(); err != nil {
		return err
	}
	if w.head {
		w.kept = append(w.kept, w.off)
	}
	if len(w.kept) > tailSegments {
		w.drop()
	}
	return nil
}

func (w *Writer) open() error {
	path := filepath.Join(w.dir, segmentName(w.off))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if os.IsNotExist(err) {
		if err := os.MkdirAll(w.dir, dirMode); err != nil {
			return fmt.Errorf("write log: %w", err)
		}
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	}
	if err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	w.file, w.size = f, 0
	return nil
}

// drop removes the oldest segment of the tail.
func (w *Writer) drop() {
	oldest := w.kept[0]
	w.kept = w.kept[1:]
	path := filepath.Join(w.dir, segmentName(oldest))
	info, err := os.Stat(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		w.lastErr = err
		return
	}
	if w.totals.CutBytes == 0 || oldest < w.totals.CutAt {
		w.totals.CutAt = oldest
	}
	w.totals.CutBytes += info.Size()
}

// cut leaves a hole of n bytes at the present offset.
func (w *Writer) cut(n int64) {
	if w.totals.CutBytes == 0 || w.off < w.totals.CutAt {
		w.totals.CutAt = w.off
	}
	w.totals.CutBytes += n
	w.off += n
	if w.file != nil {
		if err := w.file.Close(); err != nil {
			w.lastErr = err
		}
		w.file = nil
	}
	w.head = true // what follows is tail
}

// Close ends the log and sums it up. The error is the last that a write met.
func (w *Writer) Close() (daemon.LogTotals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		if err := w.file.Close(); err != nil {
			w.lastErr = err
		}
		w.file = nil
	}
	return w.totals, w.lastErr
}
