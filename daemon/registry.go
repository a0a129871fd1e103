package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// registry is the set of schedules that a daemon acts on: read once, swapped as
// a whole by a reload, or not at all.
type registry struct {
	loaded     bool
	generation int64 // of this incarnation: how often it was read
	at         Boottime
	list       []registration   // by name
	versions   map[string]int64 // of list, as it was read; never changed
}

// registration is one schedule as it was read. A broken one, of a newer or an
// older exocomp, or with a zone that is gone, stands there with its error and
// stops nobody else.
type registration struct {
	timetable
	broken string
	next   Millis // when it next has something to decide, jitter counted; 0 never
}

func register(row Schedule) registration {
	t, err := compile(row)
	r := registration{timetable: t}
	if err != nil {
		r.row, r.broken = row, err.Error()
		return r
	}
	return r.decided(row.DecidedMs)
}

// decided returns r with its watermark there.
func (r registration) decided(at Millis) registration {
	r.row.DecidedMs, r.next = at, 0
	if d, ok := r.timetable.next(at); ok && r.row.Enabled {
		r.next = Millis(r.at(d.At).UnixMilli())
	}
	return r
}

// ripe says whether r has something to decide: an instant has come, or the clock
// went back behind what is decided.
func (r registration) ripe(now Millis) bool {
	return r.broken == "" && r.row.Enabled && (r.next != 0 && r.next <= now || r.ahead(now))
}

// ahead says whether the watermark lies ahead of the clock.
func (r registration) ahead(now Millis) bool {
	return r.row.DecidedMs > now
}

// reloadDue says whether the schedules are to be read: they never were, somebody
// asked, or the interval is over.
func (d *Daemon) reloadDue(now Instant) bool {
	return d.role != Releasing && (!d.registry.loaded || d.reload != "" ||
		d.cfg.ReloadEvery > 0 && now.Boot >= d.registry.at.Add(d.cfg.ReloadEvery))
}

// tellReload says in the log what a reload brought.
func (t *turn) tellReload() {
	d, why := t.d, t.d.reload
	for _, b := range t.broken {
		d.log.Error("a schedule cannot be understood and never fires", "schedule", b)
	}
	if d.reload = ""; why != "" {
		d.log.Info("schedules reloaded", "generation", t.registry.generation, "schedules", len(t.registry.list),
			"broken", len(t.broken), "why", why)
	}
}

// ripe says whether any schedule has something to decide that may be decided now.
func (d *Daemon) ripe(now Instant) bool {
	return d.mayFire() && slices.ContainsFunc(d.registry.list, func(r registration) bool { return r.ripe(now.Ms()) })
}

// mayFire says whether this daemon is one that fires.
func (d *Daemon) mayFire() bool {
	return d.role == Active && d.stop.level == 0 && !d.tenure.doubt
}

// load reads all schedules.
func (t *turn) load(ctx context.Context, tx Tx) error {
	d := t.d
	if !t.derived || !d.reloadDue(t.now) {
		return nil
	}
	rows, err := Schedules.Scan(ctx, tx, Query{Limit: maxSchedules})
	if err != nil {
		return fmt.Errorf("read the schedules: %w", err)
	}
	fresh := registry{loaded: true, generation: d.registry.generation + 1, at: t.now.Boot, versions: map[string]int64{}}
	var broken []string
	for _, row := range rows {
		r := register(row)
		if r.broken != "" {
			broken = append(broken, row.Name+": "+r.broken)
		}
		fresh.list = append(fresh.list, r)
		fresh.versions[row.Name] = row.Version
	}
	t.registry, t.reloaded, t.broken = fresh, true, broken
	if d.registry.loaded && d.reload == "" {
		return nil // the interval: nobody asked, nobody is told
	}
	for _, why := range broken {
		if err := t.record(ctx, tx, "schedule.broken", strings.SplitN(why, ":", 2)[0], why); err != nil {
			return err
		}
	}
	if d.reload == "" {
		return nil
	}
	return t.record(ctx, tx, "schedules.reloaded", d.cfg.Identity.Host,
		fmt.Sprintf("generation %d, %d schedules, %d of them broken; %s", fresh.generation, len(rows), len(broken), d.reload))
}

// find returns where name stands in the registry.
func (r registry) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.list, name, func(a registration, n string) int { return strings.Compare(a.row.Name, n) })
}

// soonest returns the next instant at which something is due, and whose.
func (r registry) soonest() (at Millis, name string) {
	for _, reg := range r.list {
		if reg.broken == "" && reg.next != 0 && (at == 0 || reg.next < at) {
			at, name = reg.next, reg.row.Name
		}
	}
	return at, name
}

// bootAt converts a wall instant, by what the clocks say now (L15).
func (i Instant) bootAt(wall Millis) Boottime { return i.Boot.Add(wall.Time().Sub(i.Wall)) }

// window is how late a start may be without being late: longer than a takeover.
func (d *Daemon) window() time.Duration { return max(onTime, 2*d.cfg.Terms.TTL) }
