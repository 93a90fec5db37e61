-- The schema after all migrations (generated; UPDATE_GOLDEN=1 rewrites)

CREATE INDEX idx_events_run ON events (run, seq) WHERE run IS NOT NULL;

CREATE INDEX idx_events_server ON events (server, seq) WHERE run IS NULL;

CREATE INDEX idx_events_without_run ON events (time) WHERE run IS NULL;

CREATE INDEX idx_firmware_set_files_digest ON firmware_set_files (digest);

CREATE INDEX idx_idempotency_keys_run ON idempotency_keys (run);

CREATE INDEX idx_job_events_job_time ON events (run, time) WHERE run IS NOT NULL;

CREATE UNIQUE INDEX idx_jobs_one_active ON jobs (server_serial) WHERE status <> 'complete';

CREATE INDEX idx_jobs_server ON jobs (server_serial, created_at, id);

CREATE INDEX idx_jobs_status ON jobs (status);

CREATE UNIQUE INDEX idx_locks_one_holder ON locks (resource) WHERE held = 1 AND capacity = 1;

CREATE INDEX idx_locks_queue ON locks (resource, held, batch, rank, root);

CREATE INDEX idx_locks_root ON locks (root);

CREATE INDEX idx_media_grants_run ON media_grants (run);

CREATE INDEX idx_media_grants_served ON media_grants (ended_at) WHERE ended_at IS NULL;

CREATE INDEX idx_pull_grants_run ON pull_grants (run);

CREATE INDEX idx_run_inputs_retry_of ON run_inputs (retry_of) WHERE retry_of IS NOT NULL;

CREATE INDEX idx_run_labels_run ON run_labels (run);

CREATE INDEX idx_runs_batch ON runs (batch, workflow, phase, outcome) WHERE batch <> '';

CREATE INDEX idx_runs_created ON runs (created_at, id) WHERE parent IS NULL;

CREATE INDEX idx_runs_due ON runs (queue, lane, priority, next_run_at) WHERE next_run_at IS NOT NULL AND lane < 2;

CREATE INDEX idx_runs_due_queues ON runs (queue, next_run_at) WHERE next_run_at IS NOT NULL AND lane < 3;

CREATE INDEX idx_runs_ended ON runs (updated_at) WHERE phase = 'ended' AND parent IS NULL;

CREATE INDEX idx_runs_failure_class ON runs (failure_class, created_at, id)
    WHERE failure_class IS NOT NULL AND parent IS NULL;

CREATE INDEX idx_runs_leased ON runs (lease_owner) WHERE lease_owner IS NOT NULL;

CREATE INDEX idx_runs_open ON runs (created_at, id) WHERE phase <> 'ended' AND parent IS NULL;

CREATE INDEX idx_runs_outcome ON runs (outcome, created_at, id) WHERE outcome IS NOT NULL AND parent IS NULL;

CREATE INDEX idx_runs_overdue ON runs (queue, deadline_at)
    WHERE phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at IS NOT NULL AND restored = 0;

CREATE INDEX idx_runs_parent ON runs (parent) WHERE parent IS NOT NULL;

CREATE INDEX idx_runs_root ON runs (root);

CREATE INDEX idx_runs_server ON runs (server, created_at) WHERE server IS NOT NULL;

CREATE INDEX idx_runs_state ON runs (workflow, phase, outcome) WHERE parent IS NULL;

CREATE INDEX idx_runs_unstarted ON runs (queue, batch, rank, id)
    WHERE phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at < deadline_at AND restored = 0;

CREATE INDEX idx_server_labels_serial ON server_labels (serial);

CREATE INDEX idx_server_observed_pending_cleanup ON server_observed (serial) WHERE pending_cleanup IS NOT NULL;

CREATE INDEX idx_servers_bmc ON servers (bmc_address);

CREATE UNIQUE INDEX idx_signing_keys_in_force ON signing_keys (until IS NULL) WHERE until IS NULL;

CREATE INDEX idx_web_sessions_name ON web_sessions (name, created_at);

CREATE INDEX idx_webhook_retries_due ON webhook_retries (webhook, next_at);

CREATE TABLE api_tokens (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    token_hash   TEXT NOT NULL UNIQUE,
    role         TEXT NOT NULL CHECK (role IN ('admin', 'operator', 'viewer', 'report-only', 'registry-only')),
    labels       TEXT NOT NULL DEFAULT '{}', -- JSON: the labels of a server that the token may see; empty for all servers
    registry     TEXT NOT NULL DEFAULT '[]', -- JSON: registry scopes, such as "pull,push:os-images/**"
    created_by   TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    expires_at   TEXT,
    last_used_at TEXT -- accurate to ten minutes
) STRICT;

CREATE TABLE audit_anchor (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    seq  INTEGER NOT NULL,
    hash TEXT NOT NULL
) STRICT;

CREATE TABLE audit_log (
    seq        INTEGER PRIMARY KEY, -- from 1 without a gap
    time       TEXT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor      TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    source     TEXT NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    result     TEXT NOT NULL,
    request_id TEXT NOT NULL,
    count      INTEGER NOT NULL,
    previous   TEXT NOT NULL, -- the hash of the entry before
    hash       TEXT NOT NULL  -- SHA-256 of the canonical form of all other columns
) STRICT;

CREATE TABLE batches (
    id              TEXT PRIMARY KEY,
    idempotency_key TEXT UNIQUE,
    request_sha256  TEXT NOT NULL,
    total           INTEGER NOT NULL,
    max_parallel    INTEGER,
    canary          INTEGER NOT NULL DEFAULT 0, -- the number of canary rows
    stop_after      INTEGER, -- the number of failures that closes the gate
    retry_of        TEXT, -- the batch whose failed jobs this one repeats
    failures        INTEGER NOT NULL DEFAULT 0, -- failed jobs since the creation or the last continue
    gate            TEXT CHECK (gate IN ('canary', 'stopped')),
    gate_since      TEXT,
    filled_at       TEXT, -- when every row had its result; NULL while its request is under way, or was interrupted
    created_by      TEXT NOT NULL,
    created_at      TEXT NOT NULL
) STRICT;

CREATE TABLE bmc_sessions (
    server TEXT PRIMARY KEY,
    sealed TEXT NOT NULL
) STRICT;

CREATE TABLE controller_instances (
    id            TEXT PRIMARY KEY,
    started_at    TEXT NOT NULL,
    heartbeat_at  TEXT NOT NULL,
    boot          TEXT,    -- the run of the machine, and how long it had lasted at the heartbeat; NULL where it is not known
    boot_ms       INTEGER,
    ended_at      TEXT -- set at an orderly shutdown
) STRICT;

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    time    TEXT NOT NULL,
    run     TEXT REFERENCES runs (id) ON DELETE CASCADE,
    server  TEXT,
    type    TEXT NOT NULL,
    level   TEXT NOT NULL CHECK (level IN ('info', 'warn', 'error')),
    step    TEXT,
    attempt INTEGER,
    actor   TEXT NOT NULL,
    message TEXT NOT NULL,
    data    TEXT
) STRICT;

CREATE TABLE firmware_set_files (
    set_name   TEXT NOT NULL REFERENCES firmware_sets (name) ON DELETE CASCADE,
    repository TEXT NOT NULL,
    digest     TEXT NOT NULL, -- of the manifest
    manifest   TEXT NOT NULL, -- the document
    PRIMARY KEY (set_name, digest)
) STRICT;

CREATE TABLE firmware_set_models (
    set_name  TEXT NOT NULL,
    component TEXT NOT NULL,
    vendor    TEXT NOT NULL,
    model     TEXT NOT NULL, -- in lower case
    digest    TEXT NOT NULL,
    PRIMARY KEY (set_name, component, vendor, model),
    FOREIGN KEY (set_name, digest) REFERENCES firmware_set_files (set_name, digest) ON DELETE CASCADE
) STRICT;

CREATE TABLE firmware_sets (
    name       TEXT PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE, -- the owner of the pins in the registry
    labels     TEXT NOT NULL DEFAULT '{}', -- JSON
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency_keys (
    server         TEXT NOT NULL, -- empty for a run without a server
    key            TEXT NOT NULL,
    request_sha256 TEXT NOT NULL, -- tells a repetition from another request under the same key
    run            TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    PRIMARY KEY (server, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE install_logs (
    job         TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    received_at TEXT NOT NULL,
    text        TEXT NOT NULL
) STRICT;

CREATE TABLE jobs (
    id                  TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    server_serial       TEXT NOT NULL REFERENCES servers (serial) ON DELETE RESTRICT,
    status              TEXT NOT NULL CHECK (status IN ('queued', 'provisioning', 'succeeded', 'failed', 'complete')),
    failed_step         TEXT,
    recipe_json         TEXT NOT NULL, -- as submitted, sealed; the only place of the recipe
    created_at          TEXT NOT NULL,
    updated_at          TEXT NOT NULL,
    picked_at           TEXT,
    worker_id           TEXT,
    lease_expires_at    TEXT,
    task_iso_path       TEXT,
    maintenance_iso_url TEXT NOT NULL, -- sealed: its query may be a signature
    recipe_schema_id    TEXT NOT NULL,
    task_iso_sha256     TEXT,
    report_token_hash  TEXT NOT NULL,
    outcome             TEXT CHECK (outcome IN ('succeeded', 'failed', 'cancelled'))
) STRICT;

CREATE TABLE lock_served (
    resource  TEXT NOT NULL,
    batch     TEXT NOT NULL, -- as in locks
    served_at TEXT NOT NULL,
    PRIMARY KEY (resource, batch)
) STRICT, WITHOUT ROWID;

CREATE TABLE locks (
    resource  TEXT NOT NULL,
    root      TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    held      INTEGER NOT NULL CHECK (held IN (0, 1)),
    capacity  INTEGER NOT NULL DEFAULT 1 CHECK (capacity >= 1), -- run trees that may hold the resource at the same time
    priority  INTEGER NOT NULL,
    batch     TEXT NOT NULL DEFAULT '', -- as in runs
    rank      INTEGER NOT NULL DEFAULT 0, -- as in runs, from the time of the request
    since     TEXT NOT NULL,
    requester TEXT, -- of a permit: the run that requested it and receives a signal with it
    PRIMARY KEY (resource, root)
) STRICT, WITHOUT ROWID;

CREATE TABLE media_grants (
    id            INTEGER PRIMARY KEY,
    token_hash    TEXT NOT NULL UNIQUE,
    run           TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    artifact      TEXT NOT NULL CHECK (artifact IN ('task', 'boot', 'firmware')),
    sha256        TEXT NOT NULL,
    size          INTEGER NOT NULL,
    created_at    TEXT NOT NULL,
    ended_at      TEXT,
    first_read_at TEXT,
    boot_read_at  TEXT,
    last_read_at  TEXT,
    bytes         INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE media_inputs (
    media_grant INTEGER PRIMARY KEY REFERENCES media_grants (id) ON DELETE CASCADE,
    inputs      TEXT NOT NULL -- sealed
) STRICT;

CREATE TABLE pull_grants (
    token_hash TEXT PRIMARY KEY,
    run        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    repository TEXT NOT NULL,
    created_at TEXT NOT NULL,
    ended_at   TEXT
) STRICT;

CREATE TABLE run_inputs (
    run      TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    input    TEXT NOT NULL, -- sealed
    plan     TEXT NOT NULL,
    labels   TEXT NOT NULL DEFAULT '{}',
    retry_of TEXT REFERENCES runs (id) ON DELETE SET NULL -- the ended run that this one repeats
) STRICT;

CREATE TABLE run_labels (
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    run   TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    PRIMARY KEY (key, value, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_steps (
    run        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    stage      TEXT NOT NULL CHECK (stage IN ('forward', 'finish')),
    idx        INTEGER NOT NULL,
    step       TEXT NOT NULL,
    key        TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    -- 'stuck': the undo failed and was given up; the step's effect may still exist.
    phase      TEXT NOT NULL CHECK (phase IN ('intent', 'done', 'failed', 'skipped', 'undone', 'stuck')),
    output     TEXT NOT NULL,
    started_at TEXT NOT NULL,
    ended_at   TEXT,
    -- The number of the last checkpoint that a worker elsewhere wrote under this epoch.
    checkpoint INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, stage, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    id                  TEXT PRIMARY KEY,
    workflow            TEXT NOT NULL,
    workflow_version    INTEGER NOT NULL,
    server              TEXT REFERENCES servers (serial) ON DELETE RESTRICT,
    parent              TEXT REFERENCES runs (id),
    root                TEXT NOT NULL, -- the first run of the run tree
    -- 'observe': the run leaves the server as it was. It starts on a server in maintenance and is deleted with the server.
    purpose             TEXT NOT NULL DEFAULT 'change' CHECK (purpose IN ('change', 'observe')),
    phase               TEXT NOT NULL
        CHECK (phase IN ('queued', 'running', 'waiting', 'held', 'unwinding', 'finishing', 'ended')),
    outcome             TEXT CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
    step                TEXT,
    wait                TEXT,
    hold                TEXT,
    failure_class       TEXT,
    failure             TEXT,
    queue               TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    -- The id of a row of batches; empty for a run without a batch.
    batch               TEXT NOT NULL DEFAULT '',
    canary              INTEGER NOT NULL DEFAULT 0 CHECK (canary IN (0, 1)), -- 1: a first row of its batch
    -- Order of starting: creation time in milliseconds since 1970, less one minute per point of priority.
    rank                INTEGER NOT NULL DEFAULT 0,
    -- 1: the server of the run is restored and not released. The run is never claimed.
    restored            INTEGER NOT NULL DEFAULT 0 CHECK (restored IN (0, 1)),
    -- Order of claiming: 0 cancel requested, 1 started, 2 not started; 3 is not claimed.
    lane                INTEGER GENERATED ALWAYS AS (
        CASE WHEN restored = 1 THEN 3
             WHEN cancel_requested_at IS NOT NULL THEN 0
             WHEN lease_epoch > 0 OR phase IN ('unwinding', 'finishing') THEN 1
             ELSE 2 END
    ) VIRTUAL,
    next_run_at         TEXT, -- when due; for a leased run, when another worker may take it over
    deadline_at         TEXT NOT NULL,
    progress_at         TEXT NOT NULL,
    lease_owner         TEXT,
    lease_expires_at    TEXT,
    lease_epoch         INTEGER NOT NULL DEFAULT 0,
    last_worker         TEXT, -- the owner of the last lease; it stays when the lease is given back
    cancel_requested_at TEXT,
    created_by          TEXT NOT NULL,
    revision            INTEGER NOT NULL DEFAULT 1,
    created_at          TEXT NOT NULL,
    updated_at          TEXT NOT NULL,
    CHECK (phase <> 'ended' OR outcome IS NOT NULL),
    CHECK (phase <> 'waiting' OR wait IS NOT NULL OR next_run_at IS NOT NULL),
    CHECK (phase <> 'held' OR hold IS NOT NULL)
) STRICT;

CREATE TABLE schema_migrations (
                 version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at TEXT NOT NULL
             ) STRICT;

CREATE TABLE server_labels (
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    serial TEXT NOT NULL REFERENCES servers (serial) ON DELETE CASCADE ON UPDATE CASCADE,
    PRIMARY KEY (key, value, serial)
) STRICT, WITHOUT ROWID;

CREATE TABLE server_observed (
    serial           TEXT PRIMARY KEY REFERENCES servers (serial) ON DELETE CASCADE,
    observed         TEXT,
    learned          TEXT, -- learned behaviour of the BMC, with the firmware version it applies to
    pending_cleanup  TEXT, -- cleanup that a job could not do
    inventory        TEXT, -- what the machine reported that it is made of
    inventoried_at   TEXT,
    hardware         TEXT, -- what the BMC showed that the machine is made of
    hardware_read_at TEXT,
    card             TEXT, -- the card of the last probe of the BMC
    probed_at        TEXT
) STRICT;

CREATE TABLE servers (
    serial                  TEXT PRIMARY KEY,
    id                      TEXT NOT NULL UNIQUE,
    bmc_address             TEXT NOT NULL,
    bmc_username            TEXT NOT NULL,
    bmc_password            TEXT NOT NULL, -- a credential reference: sealed:, env:, file:
    vendor                  TEXT,
    bmc_profile             TEXT, -- overrides the profile that detection selects
    quirks                  TEXT, -- a JSON object of flags
    last_seen               TEXT,
    labels                  TEXT NOT NULL DEFAULT '{}',
    tls                     TEXT NOT NULL DEFAULT 'verify' CHECK (tls IN ('verify', 'pinned', 'insecure')),
    tls_fingerprint         TEXT,
    allow_unverified_serial INTEGER NOT NULL DEFAULT 0 CHECK (allow_unverified_serial IN (0, 1)),
    media_base_url          TEXT,
    network                 TEXT, -- the network of the machine for recipes without one, a JSON object
    maintenance             TEXT, -- set: no job starts on the server; {"since", "by", "reason"}
    restored                TEXT, -- set: the data is a copy or old, nothing is done to the server; {"since", "as_of", "reason"}
    revision                INTEGER NOT NULL DEFAULT 1,
    created_at              TEXT NOT NULL,
    updated_at              TEXT NOT NULL
) STRICT;

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE signals (
    run         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    payload     TEXT NOT NULL,
    received_at TEXT NOT NULL,
    consumed    INTEGER NOT NULL DEFAULT 0 CHECK (consumed IN (0, 1)),
    PRIMARY KEY (run, name, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE signing_keys (
    id      TEXT PRIMARY KEY,
    sealed  TEXT NOT NULL, -- the key, sealed
    made_at TEXT NOT NULL,
    until   TEXT
) STRICT;

CREATE TABLE users (
    name          TEXT PRIMARY KEY,
    password_hash TEXT NOT NULL,
    role          TEXT NOT NULL CHECK (role IN ('admin', 'operator', 'viewer')),
    disabled_at   TEXT, -- set: the user cannot log in
    created_by    TEXT NOT NULL,
    created_at    TEXT NOT NULL,
    updated_at    TEXT NOT NULL
) STRICT;

CREATE TABLE web_sessions (
    id           TEXT PRIMARY KEY,
    secret_hash  TEXT NOT NULL UNIQUE, -- SHA-256 of the cookie
    name         TEXT NOT NULL, -- the user or API token
    token_id     TEXT, -- the id of the API token; NULL for a user
    mark         TEXT NOT NULL, -- changes with role and password of the user
    address      TEXT NOT NULL,
    agent        TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    last_used_at TEXT NOT NULL, -- accurate to a minute
    expires_at   TEXT NOT NULL
) STRICT;

CREATE TABLE webhook_dead_letters (
    webhook     TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,
    stream      TEXT NOT NULL,
    type        TEXT NOT NULL,
    body        TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    since       TEXT NOT NULL,
    given_up_at TEXT NOT NULL,
    error       TEXT NOT NULL,
    redeliver   INTEGER NOT NULL DEFAULT 0, -- 1: an operator requested another delivery
    PRIMARY KEY (webhook, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_retries (
    webhook  TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    stream   TEXT NOT NULL, -- the job; empty for events of no job
    seq      INTEGER NOT NULL, -- the event to send next
    attempts INTEGER NOT NULL,
    since    TEXT NOT NULL,
    next_at  TEXT NOT NULL,
    error    TEXT NOT NULL,
    PRIMARY KEY (webhook, stream)
) STRICT, WITHOUT ROWID;

CREATE TABLE webhooks (
    id            TEXT PRIMARY KEY,
    url           TEXT NOT NULL, -- sealed: many receivers have a token in it
    secret        TEXT NOT NULL, -- a credential reference, sealed for this webhook
    types         TEXT NOT NULL, -- JSON: event types, such as "job.created" or "report.*"; empty for all
    labels        TEXT NOT NULL, -- JSON: labels a job must carry
    created_by    TEXT NOT NULL,
    created_at    TEXT NOT NULL,
    disabled      TEXT,          -- set: nothing is sent; the reason
    cursor        INTEGER NOT NULL, -- every event up to this seq is delivered, filtered out, retried or a dead letter
    delivered     INTEGER NOT NULL DEFAULT 0,
    failing_since TEXT,          -- the first failure since the last success
    last_error    TEXT
) STRICT;

CREATE TABLE worker_tokens (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    token_hash   TEXT NOT NULL UNIQUE, -- SHA-256 of the text, which is not stored
    queues       TEXT NOT NULL, -- JSON array: the queues whose steps the worker may execute
    created_by   TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    expires_at   TEXT,
    last_used_at TEXT
) STRICT;

CREATE TRIGGER audit_log_is_never_changed BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'an audit entry never changes');
END;

CREATE TRIGGER audit_log_is_pruned_up_to_the_anchor BEFORE DELETE ON audit_log
WHEN OLD.seq > coalesce((SELECT seq FROM audit_anchor), 0)
BEGIN
    SELECT RAISE(ABORT, 'an audit entry after the anchor is not deleted');
END;

CREATE TRIGGER batch_canary_succeeded AFTER UPDATE OF outcome ON runs
WHEN NEW.canary = 1 AND OLD.outcome IS NULL AND NEW.outcome = 'succeeded'
BEGIN
    UPDATE batches SET gate = NULL, gate_since = NEW.updated_at
    WHERE id = NEW.batch AND gate = 'canary'
      AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.batch = NEW.batch AND runs.batch <> '' AND runs.canary = 1
                      AND runs.outcome IS NOT 'succeeded');
END;

CREATE TRIGGER batch_gate_closed AFTER UPDATE OF gate ON batches WHEN NEW.gate = 'stopped' AND OLD.gate IS NOT 'stopped'
BEGIN
    INSERT INTO events (time, type, level, actor, message)
    VALUES (NEW.gate_since, 'batch.stopped', 'warn', 'engine',
            'batch ' || NEW.id || iif(OLD.gate = 'canary' AND NOT EXISTS
                (SELECT 1 FROM runs WHERE runs.batch = NEW.id AND runs.batch <> '' AND runs.canary = 1),
                ' stopped because each of its canary rows was refused', ' stopped after ' || NEW.failures || ' failed jobs')
            || ': no further job of it starts until an operator'
            || ' continues or cancels it; shoal batch show ' || NEW.id || ' groups the failures by cause');
END;

CREATE TRIGGER batch_gate_opened AFTER UPDATE OF gate ON batches WHEN OLD.gate IS NOT NULL AND NEW.gate IS NULL
BEGIN
    UPDATE runs SET next_run_at = NEW.gate_since
    WHERE batch = NEW.id AND batch <> '' AND lease_epoch = 0 AND phase IN ('queued', 'waiting') AND next_run_at IS NOT NULL;
    INSERT INTO events (time, type, level, actor, message)
    VALUES (NEW.gate_since, 'batch.opened', 'info', 'engine', 'batch ' || NEW.id || ': its jobs start');
END;

CREATE TRIGGER batch_job_ended_badly AFTER UPDATE OF outcome ON runs
WHEN NEW.batch <> '' AND NEW.parent IS NULL AND OLD.outcome IS NULL AND NEW.outcome <> 'succeeded'
BEGIN
    UPDATE batches SET failures = failures + 1 WHERE id = NEW.batch AND NEW.outcome = 'failed';
    UPDATE batches SET gate = 'stopped', gate_since = NEW.updated_at
    WHERE id = NEW.batch AND gate IS NOT 'stopped'
      AND (NEW.outcome = 'failed' AND failures >= stop_after OR gate = 'canary' AND NEW.canary = 1);
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

CREATE TRIGGER labels_of_new_server AFTER INSERT ON servers WHEN NEW.labels <> '{}'
BEGIN
    INSERT INTO server_labels (key, value, serial)
    SELECT label.key, label.value, NEW.serial FROM json_each(NEW.labels) AS label;
END;

CREATE VIEW job_events AS
SELECT events.seq AS id, events.run AS job_id, events.time, events.level, events.message, events.step
FROM events JOIN jobs ON jobs.id = events.run;
