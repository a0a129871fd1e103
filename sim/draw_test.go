package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"testing"

	"github.com/exocomp/exocomp/daemon/sqlite"
	"github.com/exocomp/exocomp/daemon/storetest"
	"github.com/exocomp/exocomp/sim"
)

// draw runs the World of a seed on a store of its own.
func draw(t *testing.T, seed uint64) (sim.Tally, string, error) {
	t.Helper()
	o := sqlite.Options{Memory: fmt.Sprintf("world-%d", worlds.Add(1))}
	anchor, err := sqlite.Create(t.Context(), o, storetest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	defer anchor.Close()
	var trace bytes.Buffer
	tally, err := sim.Draw(seed, func() (sim.Handle, error) { return sqlite.Open(context.Background(), o) }, &trace)
	return tally, trace.String(), err
}

// No promise is broken in any drawn World, and when the faults stop one daemon
// is ready and every job ends. SEEDS=20000 is the long campaign, FIRST=n starts
// it at n.
func TestDrawnWorldsKeepEveryPromise(t *testing.T) {
	const parallel = 2
	n, first := seeds(60), number("FIRST", 0)
	tallies := make(chan sim.Tally, n)
	for part := range uint64(parallel) {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			for seed := first + part; seed < first+n; seed += parallel {
				tally, trace, err := draw(t, seed)
				if err != nil {
					t.Errorf("SEEDS=1 FIRST=%d go test ./sim -run Drawn: %v\n%s", seed, err, tail(trace))
					return
				}
				tallies <- tally
			}
		})
	}
	t.Cleanup(func() { wentEverywhere(t, n, tallies) })
}

// wentEverywhere fails a campaign that looks good because nothing happened.
func wentEverywhere(t *testing.T, n uint64, tallies chan sim.Tally) {
	close(tallies)
	sum := sim.Tally{}
	for tally := range tallies {
		sum.Add(tally)
	}
	t.Logf("%d worlds: %v", n, sum)
	if n < 60 || t.Failed() {
		return
	}
	for _, what := range []string{"crash", "crash between commit and effect", "freeze", "suspend", "vm pause", "reboot", "clock step",
		"keeper frozen", "keeper killed", "store: busy", "store: sick", "store: lost commit", "store: lost answer", "stop", "inbox",
		"frozen in mid-step", "frozen between commit and effect", "cordon", "forced takeovers", "stood down", "terms",
		"jobs succeeded", "jobs failed", "jobs cancelled", "jobs interrupted"} {
		if sum[what] == 0 {
			t.Errorf("in %d worlds there was no %q", n, what)
		}
	}
}

func tail(trace string) string {
	lines := strings.Split(strings.TrimSpace(trace), "\n")
	if n := len(lines); n > 60 && os.Getenv("TRACE") == "" {
		lines = append([]string{fmt.Sprintf("... %d lines before (TRACE=1 shows all)", n-60)}, lines[n-60:]...)
	}
	return strings.Join(lines, "\n")
}

func TestSameSeedSameTrace(t *testing.T) {
	seen := map[uint64]uint64{}
	for seed := range uint64(10) {
		_, one, err1 := draw(t, 6000+seed)
		_, two, err2 := draw(t, 6000+seed)
		if one != two || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Fatalf("seed %d: two runs differ, first at\n%s", 6000+seed, firstDifference(one, two))
		}
		h := fnv.New64a()
		h.Write([]byte(one))
		if other, again := seen[h.Sum64()]; again {
			t.Errorf("seeds %d and %d give the same trace", other, 6000+seed)
		}
		seen[h.Sum64()] = 6000 + seed
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i] + "\n" + y[i]
		}
	}
	return "the end of the shorter"
}
