-- The tokens of workers elsewhere. They are no API tokens, so that no route of the API accepts one.
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
