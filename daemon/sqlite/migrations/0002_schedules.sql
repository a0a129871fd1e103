CREATE TABLE schedules (
  name TEXT PRIMARY KEY, version INTEGER NOT NULL, cron TEXT NOT NULL, zone TEXT NOT NULL, job TEXT NOT NULL,
  enabled INTEGER NOT NULL, missed TEXT NOT NULL, deadline_ms INTEGER NOT NULL, overlap TEXT NOT NULL,
  jitter_ms INTEGER NOT NULL, dst_missing TEXT NOT NULL, dst_duplicate TEXT NOT NULL, by_actor TEXT NOT NULL,
  created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL, decided_ms INTEGER NOT NULL
) STRICT;

-- One row per due instant, whatever became of it.
CREATE TABLE fires (
  schedule TEXT NOT NULL, instant_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL, outcome TEXT NOT NULL,
  job TEXT NOT NULL, reason TEXT NOT NULL, version INTEGER NOT NULL, epoch INTEGER NOT NULL, at_ms INTEGER NOT NULL,
  PRIMARY KEY (schedule, instant_ms)
) STRICT;
CREATE UNIQUE INDEX fires_at ON fires (instant_ms, schedule);
CREATE UNIQUE INDEX fires_until ON fires (schedule, until_ms, instant_ms) WHERE until_ms > 0;

ALTER TABLE jobs ADD COLUMN due_ms INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX jobs_schedule ON jobs (schedule, number)
  WHERE schedule <> '' AND state IN ('queued', 'starting', 'running', 'cancelling');
