package daemon

import "context"

// jobLimits are what the settings say about a job that is about to be accepted.
// They are no part of the request: an idempotency key finds its job again also
// when a setting was changed in between.
type jobLimits struct {
	timeoutMs int64 // for a job without a timeout; 0 is none
	graceMs   int64 // for a job that names none; 0 when it does
	maxQueued int64 // 0 is any number
	queued    int64 // counted only as far as maxQueued
}

// loadJobLimits reads the limits for a request as it was asked.
func loadJobLimits(ctx context.Context, r Reader, asked EnqueueRequest) (l jobLimits, err error) {
	v, _, err := loadSettings(ctx, r)
	if err != nil {
		return l, err
	}
	l.timeoutMs = v.duration(defaultTimeoutSetting).Milliseconds()
	if asked.GraceMs == 0 {
		l.graceMs = v.duration(defaultGraceSetting).Milliseconds()
	}
	if l.maxQueued = v.count(maxQueuedSetting); l.maxQueued > 0 {
		n, err := Jobs.Count(ctx, r, Query{By: "jobs_state", Equal: []any{string(Queued)}, Limit: int(l.maxQueued)})
		l.queued = int64(n)
		return l, err
	}
	return l, nil
}

// check refuses a job when the queue is full.
func (l jobLimits) check() error {
	if l.maxQueued > 0 && l.queued >= l.maxQueued {
		return Errorf(Conflict, "the queue is full: %d jobs wait, and the setting %s allows no more", l.queued, maxQueuedSetting).
			Hint("ask again when some have started, or raise it: exocomp settings set %s N", maxQueuedSetting)
	}
	return nil
}
