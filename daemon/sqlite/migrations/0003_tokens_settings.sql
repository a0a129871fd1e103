ALTER TABLE tokens ADD COLUMN last_used_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN by_actor TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX tokens_live ON tokens (name) WHERE revoked_ms = 0;
CREATE UNIQUE INDEX tokens_created ON tokens (created_ms, id);

CREATE TABLE settings (
  name TEXT PRIMARY KEY, value TEXT NOT NULL, by_actor TEXT NOT NULL, at_ms INTEGER NOT NULL, version INTEGER NOT NULL
) STRICT;
