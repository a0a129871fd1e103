// Package logfile keeps what jobs write, in files.
//
// A log is a directory of segments. A segment is a run of frames:
//
//	\x1e <unix ms> <o|e> <length> \n <length bytes as the job wrote them>
//
// so that a log can be read with less, and every byte comes back as it was. The
// name of a segment is the offset of its first byte in the whole log, in hex.
// An offset that no segment has was dropped: the head of a log and its tail are
// kept, the middle is cut when it grows over its cap.
//
// The writer never waits for a reader, and never holds more than one read of a
// pipe in memory: a line of 100 MB is only many frames.
package logfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

var _ daemon.Logs = Dir{}

// Dir is a directory of logs.
type Dir struct {
	Root string
	Poll time.Duration // the longest that a follower waits between two looks; default 200 ms
}

// path returns the directory of one job's log. Jobs that were accepted within
// some nine hours share a parent, so that no directory grows without end: the
// first five characters behind "job_" count those.
func (d Dir) path(job string) (string, error) {
	name, ok := strings.CutPrefix(job, "job_")
	if !ok || len(name) < 5 || strings.ContainsAny(job, "/.") {
		return "", fmt.Errorf("log of %q: not the id of a job", job)
	}
	return filepath.Join(d.Root, name[:5], job), nil
}

// segment is one file of a log.
type segment struct {
	path  string
	start int64
}

const suffix = ".log"

func segmentName(start int64) string { return fmt.Sprintf("%016x%s", start, suffix) }

// segments lists a log's files in order. No directory is an empty log.
func segments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	var segs []segment
	for _, e := range entries {
		hex, ok := strings.CutSuffix(e.Name(), suffix)
		start, err := strconv.ParseInt(hex, 16, 64)
		if !ok || err != nil {
			continue
		}
		segs = append(segs, segment{path: filepath.Join(dir, e.Name()), start: start})
	}
	slices.SortFunc(segs, func(a, b segment) int { return int(a.start - b.start) })
	return segs, nil
}

// Remove deletes the log of a job, if there is one.
func (d Dir) Remove(job string) error {
	dir, err := d.path(job)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove log: %w", err)
	}
	return nil
}

const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)
