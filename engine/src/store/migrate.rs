//! Forward-only migrations.
//!
//! ```text
//!  settings.schema_version = n        schema_migrations(version, name, sha256, applied_at)
//!  for each script > n:  BEGIN IMMEDIATE; script; record; schema_version = n+1; COMMIT
//! ```
//!
//! Invariants: a script that was applied is never edited (its hash is compared at every start); a database newer than the
//! program is refused; before an existing database is changed, a copy is written beside it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::model::Time;

struct Script {
    name: &'static str,
    sql: &'static str,
}

/// All scripts, in order; the version of a script is its place in this list, beginning with 1.
const SCRIPTS: &[Script] = &[
    Script { name: "0001_init", sql: include_str!("../../../migrations/0001_init.sql") },
    Script { name: "0002_retry_of", sql: include_str!("../../../migrations/0002_retry_of.sql") },
    Script { name: "0003_batches", sql: include_str!("../../../migrations/0003_batches.sql") },
    Script { name: "0004_retention", sql: include_str!("../../../migrations/0004_retention.sql") },
    Script { name: "0005_admission", sql: include_str!("../../../migrations/0005_admission.sql") },
    Script { name: "0006_bmc_profiles", sql: include_str!("../../../migrations/0006_bmc_profiles.sql") },
    Script { name: "0007_webhooks", sql: include_str!("../../../migrations/0007_webhooks.sql") },
];

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A newer program has written this database.
    #[error(
        "the database has schema version {found}, this program knows {known}: start the newer program, or restore the \
         backup it made before migrating"
    )]
    Newer {
        /// The version found.
        found: i64,
        /// The newest version known.
        known: i64,
    },
    /// An applied script is not the one this program carries.
    #[error(
        "migration {name} was applied with another content than this program carries: use the program it came from"
    )]
    Changed {
        /// The script.
        name: String,
    },
    /// The copy before migrating could not be written.
    #[error("back up the database to {} before migrating; make room or move the file away", path.display())]
    Backup {
        /// Where to.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rusqlite::Error,
    },
    /// A script failed; the database is as it was before it.
    #[error("apply migration {name}; the database is unchanged by it")]
    Apply {
        /// The script.
        name: String,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The version could not be read.
    #[error("read the schema version; is this a Shoal database?")]
    Read(#[source] rusqlite::Error),
}

/// Brings the schema up to date.
pub(super) fn run(connection: &mut Connection, path: &Path, now: Time) -> Result<(), MigrateError> {
    apply(connection, path, now, SCRIPTS)
}

fn apply(
    connection: &mut Connection,
    path: &Path,
    now: Time,
    scripts: &[Script],
) -> Result<(), MigrateError> {
    connection
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS schema_migrations (
                 version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at TEXT NOT NULL
             ) STRICT",
        )
        .map_err(MigrateError::Read)?;
    let found: i64 = connection
        .query_row("SELECT coalesce(max(version), 0) FROM schema_migrations", [], |row| row.get(0))
        .map_err(MigrateError::Read)?;
    let known = i64::try_from(scripts.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(MigrateError::Newer { found, known });
    }
    for (version, script) in (1_i64..).zip(scripts) {
        let recorded: Option<String> = connection
            .query_row("SELECT sha256 FROM schema_migrations WHERE version = ?", [version], |row| row.get(0))
            .optional()
            .map_err(MigrateError::Read)?;
        if recorded.is_some_and(|recorded| recorded != digest(script.sql)) {
            return Err(MigrateError::Changed { name: script.name.to_owned() });
        }
    }
    if found == known {
        return Ok(());
    }
    if found > 0 {
        backup(connection, path, found)?;
    }
    for (version, script) in (1_i64..).zip(scripts).filter(|(version, _)| *version > found) {
        apply_one(connection, version, script, now)
            .map_err(|source| MigrateError::Apply { name: script.name.to_owned(), source })?;
    }
    Ok(())
}

fn apply_one(connection: &mut Connection, version: i64, script: &Script, now: Time) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(script.sql)?;
    transaction.execute(
        "INSERT INTO schema_migrations (version, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
        params![version, script.name, digest(script.sql), now.to_string()],
    )?;
    transaction.execute(
        "INSERT INTO settings (key, value) VALUES ('schema_version', ?1)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [version.to_string()],
    )?;
    transaction.commit()
}

fn backup(connection: &Connection, path: &Path, version: i64) -> Result<(), MigrateError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".before-schema-{}", version + 1));
    let copy = path.with_file_name(name);
    if copy.exists() {
        // An earlier try wrote it from the same state and then failed to migrate; the first copy is the one to keep.
        return Ok(());
    }
    connection
        .execute("VACUUM INTO ?", [copy.to_string_lossy()])
        .map(drop)
        .map_err(|source| MigrateError::Backup { path: copy, source })
}

fn digest(sql: &str) -> String {
    hex::encode(Sha256::digest(sql.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Time {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    const TWO: &[Script] = &[
        Script { name: "0001_a", sql: "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT) STRICT;" },
        Script { name: "0002_b", sql: "CREATE TABLE b (x TEXT) STRICT;" },
    ];

    #[test]
    fn every_script_is_applied_once_and_the_version_grows() {
        let mut connection = Connection::open_in_memory().unwrap();
        for _ in 0..2 {
            run(&mut connection, Path::new("unused"), now()).unwrap();
            let version: String = connection
                .query_row("SELECT value FROM settings WHERE key = 'schema_version'", [], |row| row.get(0))
                .unwrap();
            assert_eq!(version, SCRIPTS.len().to_string());
        }
    }

    #[test]
    fn a_newer_database_is_refused_and_says_what_to_do() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, Path::new("unused"), now(), &TWO[..1]).unwrap();
        connection.execute("INSERT INTO schema_migrations VALUES (9, 'x', 'y', 'z')", []).unwrap();
        let refused = apply(&mut connection, Path::new("unused"), now(), &TWO[..1]).unwrap_err();
        assert!(refused.to_string().contains("start the newer program"), "{refused}");
    }

    #[test]
    fn an_edited_script_is_noticed() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, Path::new("unused"), now(), &TWO[..1]).unwrap();
        let edited = [Script { name: "0001_a", sql: "CREATE TABLE settings (key TEXT) STRICT;" }];
        let refused = apply(&mut connection, Path::new("unused"), now(), &edited).unwrap_err();
        assert!(matches!(refused, MigrateError::Changed { .. }), "{refused}");
    }

    #[test]
    fn a_failing_script_changes_nothing_and_a_copy_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shoal.db");
        let mut connection = Connection::open(&path).unwrap();
        apply(&mut connection, &path, now(), &TWO[..1]).unwrap();
        let broken = [
            Script { name: "0001_a", sql: TWO[0].sql },
            Script {
                name: "0002_broken",
                sql: "CREATE TABLE half (x TEXT) STRICT; CREATE TABLE settings (y TEXT);",
            },
        ];
        apply(&mut connection, &path, now(), &broken).unwrap_err();
        let halves: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'half'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(halves, 0);
        assert!(folder.path().join("shoal.db.before-schema-2").exists());
        apply(&mut connection, &path, now(), TWO).unwrap();
    }

    #[test]
    fn the_schema_carries_every_column_of_the_contract() {
        let mut connection = Connection::open_in_memory().unwrap();
        run(&mut connection, Path::new("unused"), now()).unwrap();
        for (table, columns) in [
            ("servers", "serial bmc_address bmc_username bmc_password vendor last_seen"),
            (
                "jobs",
                "id server_serial status failed_step recipe_json created_at updated_at picked_at worker_id \
                 lease_expires_at task_iso_path maintenance_iso_url",
            ),
            ("job_events", "id job_id time level message step"),
            ("settings", "key value"),
        ] {
            for column in columns.split_whitespace() {
                connection.prepare(&format!("SELECT {column} FROM {table}")).unwrap();
            }
        }
        for index in ["idx_jobs_status", "idx_jobs_server", "idx_job_events_job_time"] {
            let there: i64 = connection
                .query_row("SELECT count(*) FROM sqlite_schema WHERE name = ?", [index], |row| row.get(0))
                .unwrap();
            assert_eq!(there, 1, "{index}");
        }
    }
}
