-- Sets of firmware files. The files themselves are artifacts of the registry; a set holds the manifest of each as it was when the
-- set was made, so that a set is readable without the registry.

CREATE TABLE firmware_sets (
    name       TEXT PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE, -- the owner of the pins in the registry
    labels     TEXT NOT NULL DEFAULT '{}', -- JSON
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE firmware_set_files (
    set_name   TEXT NOT NULL REFERENCES firmware_sets (name) ON DELETE CASCADE,
    repository TEXT NOT NULL,
    digest     TEXT NOT NULL, -- of the manifest
    manifest   TEXT NOT NULL, -- the document
    PRIMARY KEY (set_name, digest)
) STRICT;

CREATE INDEX idx_firmware_set_files_digest ON firmware_set_files (digest);

-- One file for each component, vendor and model of a set.
CREATE TABLE firmware_set_models (
    set_name  TEXT NOT NULL,
    component TEXT NOT NULL,
    vendor    TEXT NOT NULL,
    model     TEXT NOT NULL, -- in lower case
    digest    TEXT NOT NULL,
    PRIMARY KEY (set_name, component, vendor, model),
    FOREIGN KEY (set_name, digest) REFERENCES firmware_set_files (set_name, digest) ON DELETE CASCADE
) STRICT;
