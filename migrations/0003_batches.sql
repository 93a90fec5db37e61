-- Many jobs ordered in one call, and locks that more than one family may hold at once.

CREATE TABLE batches (
    id              TEXT PRIMARY KEY,
    idempotency_key TEXT UNIQUE,
    request_sha256  TEXT NOT NULL,
    total           INTEGER NOT NULL,
    max_parallel    INTEGER,
    created_by      TEXT NOT NULL,
    created_at      TEXT NOT NULL
) STRICT;

ALTER TABLE jobs ADD COLUMN batch TEXT REFERENCES batches (id) ON DELETE SET NULL;
CREATE INDEX idx_jobs_batch ON jobs (batch, status) WHERE batch IS NOT NULL;

ALTER TABLE locks ADD COLUMN capacity INTEGER NOT NULL DEFAULT 1 CHECK (capacity >= 1);
DROP INDEX idx_locks_one_holder;
CREATE UNIQUE INDEX idx_locks_one_holder ON locks (resource) WHERE held = 1 AND capacity = 1;
CREATE INDEX idx_locks_line ON locks (resource, held, priority DESC, since, root);
