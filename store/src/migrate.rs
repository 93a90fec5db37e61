//! Forward-only migrations of the database schema. How to add one: migrations/README.md.
//!
//! ```text
//!  settings.schema_version = n        schema_migrations(version, name, sha256, applied_at)
//!  for each script > n:  BEGIN IMMEDIATE; script; record; schema_version = n+1; COMMIT
//! ```
//!
//! Invariants: an applied script is never edited (its hash is compared at every start); a database that is newer than the
//! program is refused; before an existing database is changed, a copy is written next to it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use model::Time;

struct Script {
    name: &'static str,
    sql: &'static str,
}

/// All scripts, in order. The version of a script is its position in this list, from 1.
const SCRIPTS: &[Script] =
    &[Script { name: "0001_init", sql: include_str!("../../migrations/0001_init.sql") }];

/// The schema version that this program works on.
pub(super) const VERSION: usize = SCRIPTS.len();

/// Why the schema was not migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database was written by a newer program.
    #[error(
        "the database has schema version {found}, this program knows {known}: start the newer program, or restore the \
         backup it made before migrating"
    )]
    Newer {
        /// The version of the database.
        found: i64,
        /// The newest version that this program has.
        known: i64,
    },
    /// A copy of the database needs the program that wrote the database.
    #[error(
        "the database has schema version {found}, this program has {known}: use the version of the program that wrote it"
    )]
    Other {
        /// The version of the database.
        found: i64,
        /// The newest version that this program has.
        known: i64,
    },
    /// An applied script differs from the script in this program.
    #[error(
        "migration {name} was applied with other content than this program has: start the program that applied it"
    )]
    Changed {
        /// The script.
        name: String,
    },
    /// The copy before the migration could not be written.
    #[error("back up the database to {} before migrating; make room or move the file away", path.display())]
    Backup {
        /// The file of the copy.
        path: PathBuf,
        /// The error of SQLite or of the file system.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A script failed. Its transaction was rolled back.
    #[error("apply migration {name}; it was rolled back and changed nothing")]
    Apply {
        /// The script.
        name: String,
        /// The error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
    /// The schema version could not be read.
    #[error("read the schema version; is this a Shoal database?")]
    Read(#[source] rusqlite::Error),
}

/// Applies the scripts that the database does not have yet.
pub(super) fn run(connection: &mut Connection, path: &Path, now: Time) -> Result<(), MigrateError> {
    apply(connection, path, now, SCRIPTS)
}

/// Refuses a database with another schema than this program has.
pub(super) fn require_current(connection: &Connection) -> Result<(), MigrateError> {
    require(connection, SCRIPTS, SCRIPTS.len())
}

/// Refuses a database whose schema a start of this program could not use or migrate.
pub(super) fn require_known(connection: &Connection) -> Result<(), MigrateError> {
    require(connection, SCRIPTS, 1)
}

/// Refuses a database whose schema has less than `least` of the scripts, or others.
fn require(connection: &Connection, scripts: &[Script], least: usize) -> Result<(), MigrateError> {
    let least = number(least);
    match applied(connection, scripts) {
        Ok(found) if found < least => Err(MigrateError::Other { found, known: number(scripts.len()) }),
        Ok(_) => Ok(()),
        Err(MigrateError::Newer { found, known }) => Err(MigrateError::Other { found, known }),
        Err(error) => Err(error),
    }
}

/// The schema version of a database. Refuses one that is newer than the scripts, and one whose applied scripts have other content.
fn applied(connection: &Connection, scripts: &[Script]) -> Result<i64, MigrateError> {
    let found: i64 = connection
        .query_row("SELECT coalesce(max(version), 0) FROM schema_migrations", [], |row| row.get(0))
        .map_err(MigrateError::Read)?;
    let known = number(scripts.len());
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
    Ok(found)
}

fn number(scripts: usize) -> i64 {
    i64::try_from(scripts).unwrap_or(i64::MAX)
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
    let found = applied(connection, scripts)?;
    let known = number(scripts.len());
    if found == known {
        return Ok(());
    }
    if found > 0 {
        backup(connection, path, found)?;
    }
    for (version, script) in (1_i64..).zip(scripts).filter(|(version, _)| *version > found) {
        let begun = Instant::now();
        apply_one(connection, version, script, now)
            .map_err(|source| MigrateError::Apply { name: script.name.to_owned(), source })?;
        // A new database has all of them at once; that is no migration.
        if found > 0 {
            let (migration, seconds) = (script.name, begun.elapsed().as_secs_f64());
            tracing::info!(version, of = known, migration, seconds, "the database was migrated one version");
        }
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
    let copy = path.with_file_name(&name);
    if copy.exists() {
        // An earlier start wrote the copy from the same state, and its migration failed. The first copy is kept.
        return Ok(());
    }
    let begun = Instant::now();
    tracing::info!(copy = %copy.display(), "the database is copied before its migration");
    // A start that is killed meanwhile leaves a part, never a copy: the way back is whole or not there.
    name.push(".part");
    let part = path.with_file_name(name);
    let io_failed = |why: std::io::Error| MigrateError::Backup { path: copy.clone(), source: Box::new(why) };
    match std::fs::remove_file(&part) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(io_failed(why)),
        _ => {}
    }
    if let Err(source) = connection.execute("VACUUM INTO ?", [part.to_string_lossy()]) {
        return Err(MigrateError::Backup { path: copy, source: Box::new(source) });
    }
    let folder =
        copy.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::File::open(&part)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&part, &copy))
        .and_then(|()| std::fs::File::open(folder)?.sync_all())
        .map_err(io_failed)?;
    tracing::info!(seconds = begun.elapsed().as_secs_f64(), "the database was copied; its migration begins");
    Ok(())
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
    fn a_new_script_is_applied_to_an_existing_database_and_its_rows_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shoal.db");
        let mut connection = Connection::open(&path).unwrap();
        apply(&mut connection, &path, now(), &SCRIPTS[..1]).unwrap();
        connection.execute("INSERT INTO settings (key, value) VALUES ('kept', 'x')", []).unwrap();
        let next = [
            Script { name: SCRIPTS[0].name, sql: SCRIPTS[0].sql },
            Script {
                name: "0002_notes",
                sql: "ALTER TABLE settings ADD COLUMN note TEXT NOT NULL DEFAULT 'none';",
            },
        ];
        for _ in 0..2 {
            apply(&mut connection, &path, now(), &next).unwrap();
            let notes: String = connection
                .query_row(
                    "SELECT group_concat(key || '=' || value || ' ' || note, ', ')
                     FROM (SELECT * FROM settings ORDER BY key)",
                    [],
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(notes, "kept=x none, schema_version=2 none");
            let recorded: String = connection
                .query_row(
                    "SELECT group_concat(version || ' ' || name, ', ') FROM schema_migrations",
                    [],
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(recorded, "1 0001_init, 2 0002_notes");
        }
        let copy = Connection::open(folder.path().join("shoal.db.before-schema-2")).unwrap();
        let version: String = copy
            .query_row("SELECT value FROM settings WHERE key = 'schema_version'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(version, "1");
    }

    #[test]
    fn a_set_has_one_file_per_component_and_model_and_a_grant_is_for_a_known_kind_of_image() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, Path::new("unused"), now(), SCRIPTS).unwrap();
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        connection
            .execute_batch(
                "INSERT INTO firmware_sets VALUES ('a', 'id', '{}', 'x', 'y');
                 INSERT INTO firmware_set_files VALUES ('a', 'r', 'd1', '{}'), ('a', 'r', 'd2', '{}');
                 INSERT INTO firmware_set_models VALUES ('a', 'bios', 'v', 'm', 'd1');",
            )
            .unwrap();
        let second = "INSERT INTO firmware_set_models VALUES ('a', 'bios', 'v', 'm', 'd2')";
        assert!(connection.execute(second, []).is_err(), "a second file for one component of one model");
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        let grant = |artifact: &str| {
            connection.execute(
                "INSERT INTO media_grants (token_hash, run, artifact, sha256, size, created_at) VALUES (?1, 'r', ?1, 's', 7, '2026')",
                [artifact],
            )
        };
        for artifact in ["task", "boot", "firmware"] {
            grant(artifact).unwrap();
        }
        assert!(grant("other").is_err(), "an unknown kind of image");
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
    fn what_a_killed_start_left_of_a_copy_is_no_copy() {
        let mut connection = Connection::open_in_memory().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shoal.db");
        apply(&mut connection, &path, now(), &TWO[..1]).unwrap();
        std::fs::write(folder.path().join("shoal.db.before-schema-2.part"), b"SQLite format 3, torn")
            .unwrap();
        apply(&mut connection, &path, now(), TWO).unwrap();
        let names: Vec<_> =
            folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["shoal.db.before-schema-2"]);
        let copy = Connection::open(folder.path().join("shoal.db.before-schema-2")).unwrap();
        require(&copy, TWO, 1).unwrap();
    }

    #[test]
    fn a_copy_of_an_older_schema_is_known_and_one_of_another_or_a_newer_schema_is_not() {
        let mut connection = Connection::open_in_memory().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shoal.db");
        apply(&mut connection, &path, now(), &TWO[..1]).unwrap();
        require(&connection, TWO, 1).unwrap();
        let refused = require(&connection, TWO, TWO.len()).unwrap_err();
        assert!(matches!(refused, MigrateError::Other { found: 1, known: 2 }), "{refused}");
        let edited = [Script { name: "0001_a", sql: "CREATE TABLE settings (key TEXT) STRICT;" }];
        let refused = require(&connection, &edited, 1).unwrap_err();
        assert!(matches!(refused, MigrateError::Changed { .. }), "{refused}");
        apply(&mut connection, &path, now(), TWO).unwrap();
        require(&connection, TWO, TWO.len()).unwrap();
        let refused = require(&connection, &TWO[..1], 1).unwrap_err();
        assert!(matches!(refused, MigrateError::Other { found: 2, known: 1 }), "{refused}");
        connection.execute("DELETE FROM schema_migrations", []).unwrap();
        assert!(require(&connection, TWO, 1).is_err(), "a file without a schema");
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
        let half_tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'half'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(half_tables, 0);
        assert!(folder.path().join("shoal.db.before-schema-2").exists());
        apply(&mut connection, &path, now(), TWO).unwrap();
    }

    #[test]
    fn the_schema_has_every_documented_column() {
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
            let count: i64 = connection
                .query_row("SELECT count(*) FROM sqlite_schema WHERE name = ?", [index], |row| row.get(0))
                .unwrap();
            assert_eq!(count, 1, "{index}");
        }
    }
}
