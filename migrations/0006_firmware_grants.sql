-- A grant can be for a firmware image. SQLite changes no constraint in place, so the table is made again with its rows.
CREATE TABLE media_grants_with_firmware (
    token_hash    TEXT PRIMARY KEY,
    run           TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    artifact      TEXT NOT NULL CHECK (artifact IN ('task', 'boot', 'firmware')),
    inputs        TEXT, -- recorded inputs, sealed; the image is rebuilt from them
    sha256        TEXT NOT NULL,
    size          INTEGER NOT NULL,
    created_at    TEXT NOT NULL,
    ended_at      TEXT,
    first_read_at TEXT,
    boot_read_at  TEXT,
    last_read_at  TEXT,
    bytes         INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO media_grants_with_firmware
    (token_hash, run, artifact, inputs, sha256, size, created_at, ended_at, first_read_at, boot_read_at, last_read_at, bytes)
SELECT token_hash, run, artifact, inputs, sha256, size, created_at, ended_at, first_read_at, boot_read_at, last_read_at, bytes
FROM media_grants;

DROP TABLE media_grants;

ALTER TABLE media_grants_with_firmware RENAME TO media_grants;

CREATE INDEX idx_media_grants_run ON media_grants (run);
