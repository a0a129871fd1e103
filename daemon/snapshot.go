package daemon

// Snapshot is what a daemon knew of itself after its last Step. It never
// changes: Loop publishes a new one after each Step, and readers of the API
// take it without asking the loop.
type Snapshot struct {
	Identity   Identity
	Role       Role
	Doubt      bool
	Trouble    string // why the store was last not written, until it is again
	Epoch, Seq int64
	TrustUntil Boottime
	Missed     int // renewals failed in a row
	Rival      Lease
	LeashUntil Boottime // taken by force: jobs are left alone until then
	TakeableAt Boottime // Watching: when Rival's lease may be taken if it stays still
	StopLevel  int
	StopWhy    string
	StopBy     Boottime // end of the drain grace
	Keeper     string
	Partial    bool  // the keeper has no cgroup: a job may hide a process from it
	Unacked    int64 // renewals that the keeper has not acknowledged
	Running    int
	Limit      int
	Waiting    int              // events that no transaction has taken yet
	Generation int64            // how often the schedules were read
	InForce    map[string]int64 // the version of each schedule that was read
	Wake       Wakeup
	Counters   Counters
}

// Snapshot returns what the daemon knows of itself now.
func (d *Daemon) Snapshot() *Snapshot {
	s := &Snapshot{
		Identity: d.cfg.Identity, Role: d.role, Doubt: d.tenure.doubt, Epoch: d.tenure.known.epoch,
		Seq: d.tenure.known.seq, TrustUntil: d.trustUntil(), Missed: d.tenure.missed, LeashUntil: d.leashUntil,
		StopLevel: d.stop.level, StopWhy: d.stop.why, StopBy: d.stop.deadline,
		Trouble: d.trouble, Keeper: d.keeper.instance, Partial: d.keeper.instance != "" && !d.keeper.cgroup, Running: len(d.live), Limit: d.cfg.Limit, Waiting: d.queue.len(),
		Wake: d.next, Counters: d.count, Generation: d.registry.generation, InForce: d.registry.versions,
	}
	if s.Keeper != "" {
		s.Unacked = max(0, s.Seq-d.keeper.acked)
	}
	if d.role == Watching && d.sight.seen {
		s.Rival = d.sight.row
		s.TakeableAt = d.sight.until
	}
	return s
}

// Holds says whether the daemon held the lease.
func (s *Snapshot) Holds() bool {
	return s.Role == Booting || s.Role == Active || s.Role == Releasing
}
