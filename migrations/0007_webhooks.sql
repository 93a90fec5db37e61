-- Events sent to others: who gets them, what is late, what was given up.

CREATE TABLE webhooks (
    id            TEXT PRIMARY KEY,
    url           TEXT NOT NULL,
    secret        TEXT NOT NULL, -- a credential reference, sealed for this webhook
    types         TEXT NOT NULL, -- JSON: event types, such as "job.created" or "report.*"; empty for all
    labels        TEXT NOT NULL, -- JSON: labels a job must carry
    created_by    TEXT NOT NULL,
    created_at    TEXT NOT NULL,
    disabled      TEXT,          -- why nothing is sent
    cursor        INTEGER NOT NULL, -- every event up to here is delivered, of no interest, late or dead
    delivered     INTEGER NOT NULL DEFAULT 0,
    failing_since TEXT,          -- the first failure since the last success
    last_error    TEXT
) STRICT;

-- One row for each job whose next event could not be delivered yet; its later events wait behind it.
CREATE TABLE webhook_late (
    webhook  TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    stream   TEXT NOT NULL, -- the job; empty for events of no job
    seq      INTEGER NOT NULL, -- the event to go on with
    attempts INTEGER NOT NULL,
    since    TEXT NOT NULL,
    next_at  TEXT NOT NULL,
    error    TEXT NOT NULL,
    PRIMARY KEY (webhook, stream)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_webhook_late_due ON webhook_late (webhook, next_at);

-- What was given up, with its body: the event itself may be forgotten.
CREATE TABLE webhook_dead (
    webhook  TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    seq      INTEGER NOT NULL,
    stream   TEXT NOT NULL,
    type     TEXT NOT NULL,
    body     TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    since    TEXT NOT NULL,
    died_at  TEXT NOT NULL,
    error    TEXT NOT NULL,
    again    INTEGER NOT NULL DEFAULT 0, -- an operator wants it tried once more
    PRIMARY KEY (webhook, seq)
) STRICT, WITHOUT ROWID;
