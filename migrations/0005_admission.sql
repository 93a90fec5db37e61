-- Admission: who may begin, in which order, and what an undo that failed is called.

-- What goes before what when a worker is free: 0 asked to end, 1 begun, 2 not begun.
ALTER TABLE runs ADD COLUMN lane INTEGER GENERATED ALWAYS AS (
    CASE WHEN cancel_requested_at IS NOT NULL THEN 0
         WHEN lease_epoch > 0 OR phase IN ('unwinding', 'finishing') THEN 1
         ELSE 2 END
) VIRTUAL;
-- Those ordered together take turns with the others; empty for a run ordered alone.
ALTER TABLE runs ADD COLUMN batch TEXT NOT NULL DEFAULT '';
-- Place in the order of beginning: milliseconds since 1970 when it was made, less a minute for each point of priority.
ALTER TABLE runs ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET batch = coalesce((SELECT jobs.batch FROM jobs WHERE jobs.id = runs.id), ''),
                rank = CAST(unixepoch(created_at, 'subsec') * 1000 AS INTEGER) - priority * 60000;

DROP INDEX idx_runs_due;
CREATE INDEX idx_runs_due ON runs (queue, lane, priority, next_run_at) WHERE next_run_at IS NOT NULL AND lane < 2;
-- A run that may not begin yet sleeps until its deadline and is not in here.
CREATE INDEX idx_runs_fresh ON runs (queue, batch, rank, id)
    WHERE phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at < deadline_at;
CREATE INDEX idx_runs_overdue ON runs (queue, deadline_at)
    WHERE phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at IS NOT NULL;

-- Lines: the same order, and turns between batches.
ALTER TABLE locks ADD COLUMN batch TEXT NOT NULL DEFAULT '';
ALTER TABLE locks ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
-- The run that asked for a place in the middle of its way, and is told when it has it.
ALTER TABLE locks ADD COLUMN asker TEXT;
UPDATE locks SET rank = CAST(unixepoch(since, 'subsec') * 1000 AS INTEGER) - priority * 60000,
                 batch = coalesce((SELECT jobs.batch FROM jobs WHERE jobs.id = locks.root), '');
DROP INDEX idx_locks_line;
CREATE INDEX idx_locks_line ON locks (resource, held, batch, rank, root);

-- Servers nobody may begin to work on: {"since", "by", "reason"}.
ALTER TABLE servers ADD COLUMN maintenance TEXT;
CREATE INDEX idx_servers_bmc ON servers (bmc_address);

-- 'stuck': undoing it was given up; it may still be in effect.
CREATE TABLE run_steps_new (
    run        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    stage      TEXT NOT NULL CHECK (stage IN ('forward', 'finish')),
    idx        INTEGER NOT NULL,
    step       TEXT NOT NULL,
    key        TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    phase      TEXT NOT NULL CHECK (phase IN ('intent', 'done', 'failed', 'skipped', 'undone', 'stuck')),
    evidence   TEXT NOT NULL,
    started_at TEXT NOT NULL,
    ended_at   TEXT,
    PRIMARY KEY (run, stage, idx)
) STRICT, WITHOUT ROWID;
INSERT INTO run_steps_new SELECT run, stage, idx, step, key, attempt, epoch, phase, evidence, started_at, ended_at FROM run_steps;
DROP TABLE run_steps;
ALTER TABLE run_steps_new RENAME TO run_steps;
