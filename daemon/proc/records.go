package proc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// records keeps how attempts ended until the daemon says that it has committed
// it (S9), also over a reboot: in a file of lines, each an end or the word that
// one may be forgotten. Ends that wait at the same time share one sync.
type records struct {
	mu     sync.Mutex
	path   string
	file   *os.File
	ends   []daemon.Exit // by age
	size   int64
	queue  []*pendingEnd
	writes chan struct{} // a token: somebody writes
}

type pendingEnd struct {
	exit daemon.Exit
	done chan struct{}
}

type recordLine struct {
	End    *daemon.Exit `json:"end,omitempty"`
	Forget []string     `json:"forget,omitempty"`
}

// compactAt is when a file without an end left in it is emptied.
const compactAt = 64 << 10

// openRecords reads the file at path. A torn last line is what was being
// written when the power failed; nobody was told of it.
func openRecords(path string) (*records, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the exit records: %w", err)
	}
	r := &records{path: path, file: f, writes: make(chan struct{}, 1)}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var l recordLine
		if json.Unmarshal(line, &l) != nil {
			break
		}
		r.size += int64(len(line))
		if l.End != nil {
			r.ends = append(r.ends, *l.End)
		}
		r.drop(l.Forget)
	}
	if err := f.Truncate(r.size); err != nil {
		return nil, fmt.Errorf("open the exit records: %w", err)
	}
	return r, nil
}

// list returns the ends that nobody let go of, the oldest first.
func (r *records) list() []daemon.Exit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ends)
}

func (r *records) has(attempt string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.ends, func(x daemon.Exit) bool { return x.Attempt == attempt })
}

func (r *records) drop(attempts []string) {
	r.ends = slices.DeleteFunc(r.ends, func(x daemon.Exit) bool { return slices.Contains(attempts, x.Attempt) })
}

// add keeps x and returns it once it is on disk, or marked as not durable when
// the disk would not take it: an end that is not durable is better than none.
func (r *records) add(x daemon.Exit) daemon.Exit {
	p := &pendingEnd{exit: x, done: make(chan struct{})}
	r.mu.Lock()
	r.queue = append(r.queue, p)
	r.mu.Unlock()
	select {
	case r.writes <- struct{}{}: // nobody writes: it is us, for all that wait
		r.flush()
		<-r.writes
		<-p.done
	case <-p.done: // the one who wrote took ours along
	}
	return p.exit
}

// flush writes all that waits, with one sync for everything.
func (r *records) flush() {
	r.mu.Lock()
	batch := r.queue
	r.queue = nil
	r.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	var text bytes.Buffer
	for _, p := range batch {
		p.exit.Durable = true
		writeFrame(&text, recordLine{End: &p.exit}) // a Buffer takes everything
	}
	err := r.append(text.Bytes(), true)
	if err == nil {
		err = r.linked()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range batch {
		p.exit.Durable = err == nil
		r.ends = append(r.ends, p.exit)
		close(p.done)
	}
}

func (r *records) append(text []byte, sync bool) error {
	n, err := r.file.WriteAt(text, r.size)
	if err == nil && sync {
		err = unix.Fdatasync(int(r.file.Fd()))
	}
	if err != nil {
		return fmt.Errorf("write %d of %d bytes of exit records: %w", n, len(text), err)
	}
	r.size += int64(len(text))
	return nil
}

// linked returns an error when the file was removed: what is in it is lost with
// this process.
func (r *records) linked() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.file.Fd()), &st); err != nil {
		return fmt.Errorf("look at the exit records: %w", err)
	}
	if st.Nlink == 0 {
		return fmt.Errorf("%s was removed", r.path)
	}
	return nil
}

// forget lets go of ends. It need not reach the disk: an end that is listed
// again is committed again, which changes nothing.
func (r *records) forget(attempts []string) error {
	r.writes <- struct{}{}
	defer func() { <-r.writes }()
	r.mu.Lock()
	before := len(r.ends)
	r.drop(attempts)
	left := len(r.ends)
	r.mu.Unlock()
	if left == before {
		return nil
	}
	if left == 0 && r.size > compactAt {
		r.size = 0
		return r.file.Truncate(0)
	}
	var text bytes.Buffer
	writeFrame(&text, recordLine{Forget: attempts})
	return r.append(text.Bytes(), false)
}
