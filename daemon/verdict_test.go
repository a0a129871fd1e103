package daemon_test

import (
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

func TestAVerdictSaysWhatWasSeen(t *testing.T) {
	row := func(epoch, ready, seq int64) daemon.LeaseReport {
		return daemon.LeaseReport{Lease: daemon.Lease{Host: "beta", Epoch: epoch, ReadyEpoch: ready, Seq: seq,
			TTLMs: 30_000, State: daemon.LeaseHeld}}
	}
	here := func(r daemon.LeaseReport, missed int, left int64) daemon.LeaseReport {
		r.HeldHere, r.Missed, r.TrustLeftMs = true, missed, left
		return r
	}
	released := row(4, 4, 90)
	released.State = daemon.LeaseReleased
	standby := row(4, 4, 90)
	standby.TakeableInMs = 5_000
	tests := []struct {
		name    string
		rows    []daemon.LeaseReport // one every four seconds
		blocker string
		word    daemon.VerdictWord
		text    string
		final   bool
	}{
		{"never held", []daemon.LeaseReport{row(0, 0, 0)}, "", daemon.VerdictNever, "no daemon", true},
		{"released", []daemon.LeaseReport{released}, "", daemon.VerdictReleased, "at once", true},
		{"moves once", []daemon.LeaseReport{row(4, 4, 90), row(4, 4, 91)}, "", daemon.VerdictLive, "(seq moved 1x in 4s)", true},
		{"moves twice", []daemon.LeaseReport{row(4, 4, 90), row(4, 4, 91), row(4, 4, 92)}, "", daemon.VerdictLive,
			"(seq moved 2x in 8s)", true},
		{"held here", []daemon.LeaseReport{here(row(4, 4, 90), 0, 20_000)}, "", daemon.VerdictLive, "of this host", true},
		{"held here, in doubt", []daemon.LeaseReport{here(row(4, 4, 90), 2, 9_000)}, "", daemon.VerdictDoubt,
			"2 renewals failed, it stands down in 9s", false},
		{"held here, past its trust", []daemon.LeaseReport{here(row(4, 4, 90), 0, 0)}, "", daemon.VerdictDoubt, "in 0s", false},
		{"silent so far", []daemon.LeaseReport{row(4, 4, 90), row(4, 4, 90)}, "", daemon.VerdictSilent, "4s, takeable in 26s", false},
		{"silent to the end", []daemon.LeaseReport{row(4, 4, 90), row(4, 4, 90), row(4, 4, 90), row(4, 4, 90)}, "",
			daemon.VerdictSilent, "12s, takeable in 18s", true},
		{"a standby has watched longer", []daemon.LeaseReport{standby, standby, standby, standby}, "",
			daemon.VerdictSilent, "takeable in 5s", true},
		{"the write lock is held", []daemon.LeaseReport{row(4, 4, 90), row(4, 4, 90)}, "pid 7 (sqlite3)", daemon.VerdictLocked,
			"by pid 7 (sqlite3)", false},
		{"boots", []daemon.LeaseReport{row(4, 4, 90), row(5, 4, 91)}, "", daemon.VerdictBooting, "not READY", false},
		{"its first boot", []daemon.LeaseReport{row(1, 0, 1), row(1, 0, 2)}, "", daemon.VerdictBooting, "not READY", false},
		{"boots, and is ready", []daemon.LeaseReport{row(4, 4, 90), row(5, 4, 91), row(5, 5, 92)}, "", daemon.VerdictLive, "2x", false},
		{"crash loop", []daemon.LeaseReport{row(5, 4, 91), row(6, 4, 92), row(7, 4, 93)}, "", daemon.VerdictLooping,
			"epoch rose 3x, never READY", false},
		{"crash loop, silent now", []daemon.LeaseReport{row(7, 4, 93)}, "", daemon.VerdictLooping, "epoch rose 3x", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := daemon.Watch{First: tt.rows[0], Last: tt.rows[0], Blocker: tt.blocker}
			for i, r := range tt.rows[1:] {
				w = w.Add(r, time.Duration(i+1)*4*time.Second)
			}
			v, final := w.Verdict()
			if v.Word != tt.word || !strings.Contains(v.Text, tt.text) || final != tt.final {
				t.Errorf("%s %s, final %t; want %s ...%s..., %t", v.Word, v.Text, final, tt.word, tt.text, tt.final)
			}
		})
	}
}
