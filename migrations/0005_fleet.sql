-- Filters of lists: labels as rows, so that a selector reads an index, and orders of jobs that skip those that have ended.

CREATE TABLE server_labels (
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    serial TEXT NOT NULL REFERENCES servers (serial) ON DELETE CASCADE ON UPDATE CASCADE,
    PRIMARY KEY (key, value, serial)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_server_labels_serial ON server_labels (serial);

CREATE TABLE run_labels (
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    run   TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    PRIMARY KEY (key, value, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_run_labels_run ON run_labels (run);

INSERT INTO server_labels (key, value, serial)
SELECT label.key, label.value, servers.serial FROM servers, json_each(servers.labels) AS label;

INSERT INTO run_labels (key, value, run)
SELECT label.key, label.value, run_inputs.run FROM run_inputs, json_each(run_inputs.labels) AS label;

-- Triggers write the rows, so that no statement that writes labels can forget them.
CREATE TRIGGER labels_of_new_server AFTER INSERT ON servers WHEN NEW.labels <> '{}'
BEGIN
    INSERT INTO server_labels (key, value, serial)
    SELECT label.key, label.value, NEW.serial FROM json_each(NEW.labels) AS label;
END;

CREATE TRIGGER labels_of_changed_server AFTER UPDATE OF labels ON servers WHEN NEW.labels <> OLD.labels
BEGIN
    DELETE FROM server_labels WHERE serial = NEW.serial;
    INSERT INTO server_labels (key, value, serial)
    SELECT label.key, label.value, NEW.serial FROM json_each(NEW.labels) AS label;
END;

CREATE TRIGGER labels_of_new_run AFTER INSERT ON run_inputs WHEN NEW.labels <> '{}'
BEGIN
    INSERT INTO run_labels (key, value, run)
    SELECT label.key, label.value, NEW.run FROM json_each(NEW.labels) AS label;
END;

-- Jobs that have not ended, and jobs by outcome and failure class, in the order of lists.
CREATE INDEX idx_runs_open ON runs (created_at, id) WHERE phase <> 'ended' AND parent IS NULL;
CREATE INDEX idx_runs_outcome ON runs (outcome, created_at, id) WHERE outcome IS NOT NULL AND parent IS NULL;
CREATE INDEX idx_runs_failure_class ON runs (failure_class, created_at, id)
    WHERE failure_class IS NOT NULL AND parent IS NULL;

-- Batches that stop: the first rows are canaries, which must succeed before the others start; and a number of failures after
-- which no further job starts. The gate is a column, so that it is as it was after a crash; triggers move it in the transaction
-- that gives a job its outcome, whatever statement that is.
--
--   created with canaries --> 'canary' --every canary succeeded--> NULL --failures = stop_after--> 'stopped'
--                                 |  a canary failed or was cancelled                                 ^  | an operator continues
--                                 +-------------------------------------------------------------------+  +--> NULL, failures = 0
ALTER TABLE runs ADD COLUMN canary INTEGER NOT NULL DEFAULT 0 CHECK (canary IN (0, 1));

ALTER TABLE batches ADD COLUMN canary INTEGER NOT NULL DEFAULT 0; -- the number of canary rows
ALTER TABLE batches ADD COLUMN stop_after INTEGER; -- the number of failures that closes the gate
ALTER TABLE batches ADD COLUMN retry_of TEXT; -- the batch whose failed jobs this one repeats
ALTER TABLE batches ADD COLUMN failures INTEGER NOT NULL DEFAULT 0; -- failed jobs since the creation or the last continue
ALTER TABLE batches ADD COLUMN gate TEXT CHECK (gate IN ('canary', 'stopped'));
ALTER TABLE batches ADD COLUMN gate_since TEXT;

CREATE TRIGGER batch_job_ended_badly AFTER UPDATE OF outcome ON runs
WHEN NEW.batch <> '' AND NEW.parent IS NULL AND OLD.outcome IS NULL AND NEW.outcome <> 'succeeded'
BEGIN
    UPDATE batches SET failures = failures + 1 WHERE id = NEW.batch AND NEW.outcome = 'failed';
    UPDATE batches SET gate = 'stopped', gate_since = NEW.updated_at
    WHERE id = NEW.batch AND gate IS NOT 'stopped'
      AND (NEW.outcome = 'failed' AND failures >= stop_after OR gate = 'canary' AND NEW.canary = 1);
END;

CREATE TRIGGER batch_canary_succeeded AFTER UPDATE OF outcome ON runs
WHEN NEW.canary = 1 AND OLD.outcome IS NULL AND NEW.outcome = 'succeeded'
BEGIN
    UPDATE batches SET gate = NULL, gate_since = NEW.updated_at
    WHERE id = NEW.batch AND gate = 'canary'
      AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.batch = NEW.batch AND runs.batch <> '' AND runs.canary = 1
                      AND runs.outcome IS NOT 'succeeded');
END;

-- An open gate makes the jobs behind it due. A claim sets a job that is still queued for a lock back to its deadline.
CREATE TRIGGER batch_gate_opened AFTER UPDATE OF gate ON batches WHEN OLD.gate IS NOT NULL AND NEW.gate IS NULL
BEGIN
    UPDATE runs SET next_run_at = NEW.gate_since
    WHERE batch = NEW.id AND batch <> '' AND lease_epoch = 0 AND phase IN ('queued', 'waiting') AND next_run_at IS NOT NULL;
    INSERT INTO events (time, type, level, actor, message)
    VALUES (NEW.gate_since, 'batch.opened', 'info', 'engine', 'batch ' || NEW.id || ': its jobs start');
END;

CREATE TRIGGER batch_gate_closed AFTER UPDATE OF gate ON batches WHEN NEW.gate = 'stopped' AND OLD.gate IS NOT 'stopped'
BEGIN
    INSERT INTO events (time, type, level, actor, message)
    VALUES (NEW.gate_since, 'batch.stopped', 'warn', 'engine',
            'batch ' || NEW.id || ' stopped after ' || NEW.failures || ' failed jobs: no further job of it starts until an operator'
            || ' continues or cancels it; shoal batch show ' || NEW.id || ' groups the failures by cause');
END;
