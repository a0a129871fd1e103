-- The layout of serve_lease is frozen: daemons of every version read it.
CREATE TABLE serve_lease (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  store_id TEXT NOT NULL, lineage INTEGER NOT NULL,
  holder TEXT NOT NULL, host TEXT NOT NULL, incarnation TEXT NOT NULL,
  boot_id TEXT NOT NULL, lock_dev INTEGER NOT NULL, lock_ino INTEGER NOT NULL, pid INTEGER NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, stamp TEXT NOT NULL,
  ttl_ms INTEGER NOT NULL, renew_ms INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('held', 'released')),
  ready_epoch INTEGER NOT NULL, single_host INTEGER NOT NULL,
  acquired_ms INTEGER NOT NULL, renewed_ms INTEGER NOT NULL,
  forced_by TEXT NOT NULL, force_reason TEXT NOT NULL
) STRICT;

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE jobs (
  id TEXT PRIMARY KEY, number INTEGER NOT NULL, kind TEXT NOT NULL, spec TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'cancelling',
    'succeeded', 'failed', 'cancelled', 'interrupted')),
  reason TEXT NOT NULL,
  trigger TEXT NOT NULL, actor TEXT NOT NULL, parent_id TEXT NOT NULL, root_id TEXT NOT NULL,
  workflow_run TEXT NOT NULL, step TEXT NOT NULL, schedule TEXT NOT NULL,
  dedup_key TEXT NOT NULL, idem_key TEXT NOT NULL, idem_hash TEXT NOT NULL,
  redrive_of TEXT NOT NULL, redrive_key TEXT NOT NULL,
  owner TEXT NOT NULL, host TEXT NOT NULL, epoch INTEGER NOT NULL, attempt TEXT NOT NULL, keeper TEXT NOT NULL,
  exit_code INTEGER, signal TEXT NOT NULL,
  created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,
  timeout_ms INTEGER NOT NULL, grace_ms INTEGER NOT NULL,
  labels TEXT NOT NULL, priority INTEGER NOT NULL, lock_key TEXT NOT NULL, rerun TEXT NOT NULL,
  log_bytes INTEGER NOT NULL, log_cut_at INTEGER NOT NULL, log_cut_bytes INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_number ON jobs (number);
CREATE UNIQUE INDEX jobs_state ON jobs (state, number);
CREATE UNIQUE INDEX jobs_live ON jobs (number) WHERE state IN ('starting', 'running', 'cancelling');
CREATE UNIQUE INDEX jobs_claim ON jobs (state, priority, number) WHERE state = 'queued';
CREATE UNIQUE INDEX jobs_attempt ON jobs (attempt);
CREATE UNIQUE INDEX jobs_idem ON jobs (actor, idem_key) WHERE idem_key <> '';
CREATE UNIQUE INDEX jobs_dedup ON jobs (dedup_key)
  WHERE dedup_key <> '' AND state IN ('queued', 'starting', 'running', 'cancelling');
CREATE UNIQUE INDEX jobs_redrive ON jobs (redrive_key) WHERE redrive_key <> '';
CREATE UNIQUE INDEX jobs_lock ON jobs (lock_key)
  WHERE lock_key <> '' AND state IN ('starting', 'running', 'cancelling');

CREATE TABLE inbox (
  id TEXT PRIMARY KEY, verb TEXT NOT NULL, payload BLOB NOT NULL, actor TEXT NOT NULL, at_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX inbox_at ON inbox (at_ms, id);

CREATE TABLE cordons (
  reason TEXT PRIMARY KEY, by_actor TEXT NOT NULL, at_ms INTEGER NOT NULL, why TEXT NOT NULL
) STRICT;

CREATE TABLE tokens (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, hash TEXT NOT NULL,
  created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
  seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL,
  epoch INTEGER NOT NULL, at_ms INTEGER NOT NULL
) STRICT;
