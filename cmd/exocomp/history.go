package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
)

// moment is one line of the history: from the store, or from standdown.jsonl of
// this host, which tells what a daemon could no longer write into the store.
type moment struct {
	AtMs    daemon.Millis `json:"at"`
	Epoch   int64         `json:"epoch"`
	Kind    string        `json:"kind"`
	Subject string        `json:"subject"`
	Detail  string        `json:"detail,omitempty"`
	Means   string        `json:"means" doc:"what it says to an operator"`
}

// meanings explain what happens to a lease. %s is the subject.
var meanings = map[string]string{
	"lease.acquired":  "%s became the holder",
	"lease.forced":    "the lease was taken from %s by force",
	"lease.ready":     "%s began to work",
	"lease.released":  "%s gave the lease back",
	"lease.doubt":     "%s could not renew for a while, and then could: nothing started meanwhile",
	"clock.step":      "the wall clock of %s was moved; leases do not depend on it",
	"keeper.lost":     "the keeper %s ended, and the jobs it ran were cut off",
	"event.set_aside": "an event (%s) failed three times and was set aside: report it",
	"inbox.refused":   "the request %s was refused",
	"cordon.set":      "cordoned: %s",
	"cordon.lifted":   "uncordoned: %s",
	"token.created":   "the token %s was made",
	"token.revoked":   "the token %s was revoked",
	"setting.changed": "the setting %s was changed",
	"lease.standdown": "%s stood down: it ended its jobs, wrote nothing more, and left with exit 76",
}

func (a *app) leaseHistoryCmd() *cobra.Command {
	limit := 50
	c := &cobra.Command{
		Use:   "history",
		Short: "what happened to the lease, and what it means",
		Long: "history shows who held the store, when and why it changed hands, the newest last.\n" +
			"It adds what daemons of this host noted in " + linux.StandDownFile + ", since one that\n" +
			"loses its lease can no longer write into the store.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			page, err := c.History(cmd.Context(), limit)
			if err != nil {
				return err
			}
			downs, err := a.standDowns()
			if err != nil {
				return err
			}
			return a.printHistory(page.Events, downs, limit)
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "how many lines, 1 to 1000")
	return c
}

func (a *app) printHistory(events []daemon.Happening, downs []daemon.StandDown, limit int) error {
	var all []moment
	for _, e := range events {
		all = append(all, moment{e.AtMs, e.Epoch, e.Kind, e.Subject, e.Detail, explain(e.Kind, e.Subject)})
	}
	for _, d := range downs {
		all = append(all, standDownMoment(d))
	}
	slices.SortStableFunc(all, func(x, y moment) int { return cmp.Or(cmp.Compare(x.Epoch, y.Epoch), cmp.Compare(x.AtMs, y.AtMs)) })
	all = all[max(0, len(all)-limit):]
	if a.json() {
		return a.printJSON(map[string][]moment{"history": all})
	}
	if len(all) == 0 {
		a.say("nothing has happened yet")
		return nil
	}
	var rows [][]string
	for _, m := range all {
		rows = append(rows, []string{stamp(m.AtMs), fmt.Sprint(m.Epoch), short(m.Means, 120), short(m.Detail, 200)})
	}
	return table(a.stdout, []string{"at", "epoch", "what", "why"}, rows)
}

func explain(kind, subject string) string {
	text, ok := meanings[kind]
	if !ok {
		return kind + " " + subject
	}
	return fmt.Sprintf(text, subject)
}

func standDownMoment(d daemon.StandDown) moment {
	detail := d.Why
	if d.Jobs > 0 {
		detail += fmt.Sprintf("; %s ended with it", count(d.Jobs, "job", "jobs"))
	}
	if d.By != "" {
		detail += "; now held by " + d.By
	}
	return moment{d.At, d.Epoch, "lease.standdown", d.Host, detail, explain("lease.standdown", d.Host)}
}

// maxStandDowns bounds what is read of a file that nobody trims.
const maxStandDowns = 1 << 20

// standDowns reads the notes of this host's daemons. A torn line is skipped: the
// host may have died while it was written.
func (a *app) standDowns() ([]daemon.StandDown, error) {
	path := a.global.state(linux.StandDownFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || a.global.elsewhere() {
		return nil, nil
	}
	if err != nil {
		return nil, dirError(a.global.stateDir, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxStandDowns {
		if _, err := f.Seek(-maxStandDowns, 2); err != nil {
			return nil, dirError(a.global.stateDir, err)
		}
	}
	var out []daemon.StandDown
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var d daemon.StandDown
		if strings.HasPrefix(lines.Text(), "{") && json.Unmarshal(lines.Bytes(), &d) == nil && d.Host != "" {
			out = append(out, d)
		}
	}
	return out, nil
}
