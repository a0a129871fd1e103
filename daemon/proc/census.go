package proc

// Census counts what runs from a state directory, and touches nothing.
type Census struct {
	Keeper    int // pid, 0 for none
	Jobs      int // attempts
	Processes int // of jobs
}

// Count takes the census of a state directory. No daemon need run.
func Count(o QuietOptions) (Census, error) {
	s := premises{stateDir: o.StateDir, marker: o.Marker, holder: o.Holder, dial: o.Dial}
	k, _, err := s.keeper()
	if err != nil {
		return Census{}, err
	}
	jobs, err := s.jobs(k)
	if err != nil {
		return Census{}, err
	}
	seen := newTally()
	seen.add(k, jobs)
	return Census{Keeper: k.pid, Jobs: len(seen.attempts), Processes: len(seen.processes)}, nil
}
