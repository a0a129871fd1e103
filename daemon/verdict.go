package daemon

import (
	"fmt"
	"time"
)

// What a lease row means shows only over time: a row says who took the lease, not
// whether they live. Somebody who watches it for a while can tell, and by the same
// rule that decides a takeover: a seq that moves is a living holder, a wall clock
// proves nothing.

// Watch is what was seen of a lease from the outside, over a while.
type Watch struct {
	First, Last LeaseReport
	Moved       int           // how often the seq changed
	For         time.Duration // by the boot clock of whoever watched
	Blocker     string        // who held the write lock all along
	Trouble     string        // what the daemon of this host says of the store
}

// Patience is how long to watch: a living holder renews within it.
func (w Watch) Patience() time.Duration { return w.First.TTL()/3 + 2*time.Second }

// Verdict is what a Watch comes to.
type Verdict struct {
	Word      VerdictWord `json:"word" doc:"the kind of verdict, for programs"`
	Text      string      `json:"text" doc:"the verdict, for people"`
	WatchedMs int64       `json:"watched_ms"`
	Moved     int         `json:"seq_moved" doc:"how often the seq changed under our eyes"`
}

// VerdictWord is the kind of a Verdict.
type VerdictWord string

// The verdicts.
const (
	VerdictNever    VerdictWord = "NEVER HELD"
	VerdictReleased VerdictWord = "RELEASED"
	VerdictLive     VerdictWord = "LIVE"
	VerdictBooting  VerdictWord = "BOOTING"
	VerdictLooping  VerdictWord = "CRASH LOOP"
	VerdictDoubt    VerdictWord = "DOUBT"
	VerdictLocked   VerdictWord = "WRITE LOCK HELD"
	VerdictSilent   VerdictWord = "SILENT"
)

// Add returns the watch after r was read, d after its begin.
func (w Watch) Add(r LeaseReport, d time.Duration) Watch {
	if r.Seq != w.Last.Seq || r.Epoch != w.Last.Epoch || r.Stamp != w.Last.Stamp {
		w.Moved++
	}
	w.Last, w.For = r, d
	return w
}

// Verdict judges what was seen so far. final says that watching on would not
// change it.
func (w Watch) Verdict() (v Verdict, final bool) {
	v.Word, v.Text, final = w.judge()
	v.WatchedMs, v.Moved = w.For.Milliseconds(), w.Moved
	return v, final || w.For >= w.Patience()
}

func (w Watch) judge() (word VerdictWord, text string, final bool) {
	l, watched := w.Last, w.For.Round(100*time.Millisecond)
	failed := l.Epoch - l.ReadyEpoch // epochs since one was READY
	seen := fmt.Sprintf("(seq moved %dx in %s)", w.Moved, watched)
	switch {
	case l.Epoch == 0:
		return VerdictNever, "no daemon has ever served this store", true
	case failed >= loopFrom:
		return VerdictLooping, fmt.Sprintf("epoch rose %dx, never READY: its daemon ends in boot again and again; see its log on %s",
			failed, l.Host), l.State == LeaseReleased
	case l.State == LeaseReleased:
		return VerdictReleased, "the next exocomp serve takes it at once", true
	case w.Moved > 0 && failed == 0:
		return VerdictLive, seen, l.Epoch == w.First.Epoch
	case l.HeldHere && failed == 0 && l.Missed == 0 && l.TrustLeftMs > 0:
		return VerdictLive, "the daemon of this host holds it", true
	case w.Moved > 0 || l.HeldHere && failed > 0:
		return VerdictBooting, "not READY yet " + seen, false
	case w.Blocker != "":
		return VerdictLocked, fmt.Sprintf("by %s: nobody can renew or take the lease, and no force helps; end that process", w.Blocker), false
	case l.HeldHere:
		return VerdictDoubt, fmt.Sprintf("%d renewals failed, it stands down in %s: %s", l.Missed,
			time.Duration(l.TrustLeftMs)*time.Millisecond, w.Trouble), false
	}
	return VerdictSilent, w.silence(watched), false
}

// loopFrom is how many boots in a row must fail to be called a loop.
const loopFrom = 3

// silence says when a silent holder may be taken over, by whoever watches
// longest: a standby that has watched before we did knows best.
func (w Watch) silence(watched time.Duration) string {
	left := max(0, w.Last.TTL()-w.For)
	if known := time.Duration(w.Last.TakeableInMs) * time.Millisecond; known > 0 {
		left = min(left, known)
	}
	return fmt.Sprintf("%s, takeable in %s", watched, left.Round(time.Second))
}
