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
