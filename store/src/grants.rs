//! Media grants and pull grants: the rights of jobs to read images, and what was read.

use rusqlite::{Connection, ToSql, params};

use super::rows::{Columns, all, execute, first};
use super::{Store, StoreError};
use model::mutant::{self, Mutant};
use model::{Artifact, Grant, GrantReads, MediaEvidence, PullGrant, RunId, StoredGrant, Time};

macro_rules! but_inputs {
    () => {
        "token_hash, run, artifact, sha256, size, created_at, ended_at, first_read_at, boot_read_at, last_read_at, bytes,
             (SELECT server FROM runs WHERE runs.id = media_grants.run) AS server FROM media_grants"
    };
}

/// The columns of a grant with its table.
const COLUMNS: &str = concat!(
    "(SELECT inputs FROM media_inputs WHERE media_grant = media_grants.id) AS inputs, ",
    but_inputs!()
);
/// The columns of a grant without its recorded inputs, which are longer than all others.
pub(super) const WITHOUT_INPUTS: &str = concat!("NULL AS inputs, ", but_inputs!());
/// A grant of a run whose server is restored and not released does not exist.
const EXISTS: &str = "NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = media_grants.run AND runs.restored = 1)";

impl Store {
    /// The grant with this token hash, ended ones included. A grant of a run whose server is restored and not released does not
    /// exist: a machine that reads a boot image of the past would be installed again.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn grant(&self, token_hash: &str) -> Result<Option<StoredGrant>, StoreError> {
        const OPERATION: &str = "read a media grant";
        let token_hash = token_hash.to_owned();
        self.read(OPERATION, move |connection| find(connection, OPERATION, COLUMNS, &token_hash)).await
    }

    /// The grant with this token hash as [`Self::grant`] returns it, but without its recorded inputs.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn grant_without_inputs(&self, token_hash: &str) -> Result<Option<StoredGrant>, StoreError> {
        const OPERATION: &str = "read the reads of a media grant";
        let token_hash = token_hash.to_owned();
        self.read(OPERATION, move |connection| without_inputs(connection, OPERATION, &token_hash)).await
    }

    /// All grants of a run without their recorded inputs, ended ones included.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn grants(&self, run: RunId) -> Result<Vec<StoredGrant>, StoreError> {
        const OPERATION: &str = "read the media grants of a run";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                &format!("SELECT {WITHOUT_INPUTS} WHERE run = ?1 ORDER BY created_at, artifact, token_hash"),
                &[&run.to_string()],
                grant,
            )
        })
        .await
    }

    /// The open pull grant with this token hash.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn pull_grant(&self, token_hash: &str) -> Result<Option<PullGrant>, StoreError> {
        const OPERATION: &str = "read a pull grant";
        let token_hash = token_hash.to_owned();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT token_hash, run, repository FROM pull_grants WHERE token_hash = ?1 AND ended_at IS NULL",
                &[&token_hash],
                |columns| {
                    Ok(PullGrant {
                        token_hash: columns.get("token_hash")?,
                        run: columns.parse("run", str::parse)?,
                        repository: columns.get("repository")?,
                    })
                },
            )
        })
        .await
    }

    /// Whether a job may still pull from a repository.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn pull_is_open(&self, run: RunId, repository: &str) -> Result<bool, StoreError> {
        const OPERATION: &str = "read the pull grant of a job";
        let parameters = [run.to_string(), repository.to_owned()];
        self.read(OPERATION, move |connection| {
            let open = first(
                connection,
                OPERATION,
                "SELECT 1 AS open FROM pull_grants WHERE run = ?1 AND repository = ?2 AND ended_at IS NULL",
                &[&parameters[0], &parameters[1]],
                |columns| columns.get::<i64>("open"),
            )?;
            Ok(open.is_some())
        })
        .await
    }
}

/// The grant with this token hash, without its recorded inputs.
pub(super) fn without_inputs(
    connection: &Connection,
    operation: &'static str,
    token_hash: &str,
) -> Result<Option<StoredGrant>, StoreError> {
    find(connection, operation, WITHOUT_INPUTS, token_hash)
}

/// The grant with this token hash, from these columns.
fn find(
    connection: &Connection,
    operation: &'static str,
    columns: &str,
    token_hash: &str,
) -> Result<Option<StoredGrant>, StoreError> {
    let sql = format!("SELECT {columns} WHERE token_hash = ?1 AND {EXISTS}");
    first(connection, operation, &sql, &[&token_hash], grant)
}

/// The grant of a row of [`COLUMNS`] or [`WITHOUT_INPUTS`].
pub(super) fn grant(columns: &Columns<'_>) -> Result<StoredGrant, StoreError> {
    Ok(StoredGrant {
        grant: Grant {
            token_hash: columns.get("token_hash")?,
            run: columns.parse("run", str::parse)?,
            artifact: artifact(columns)?,
            inputs: columns.get("inputs")?,
            sha256: columns.get("sha256")?,
            size: columns.count("size")?,
            created_at: columns.time("created_at")?,
        },
        server: columns.parse_opt("server", str::parse)?,
        ended_at: columns.time_opt("ended_at")?,
        reads: reads(columns)?,
    })
}

fn artifact(columns: &Columns<'_>) -> Result<Artifact, StoreError> {
    columns.parse("artifact", |name| Artifact::parse(name).ok_or_else(|| format!("unknown {name:?}")))
}

fn reads(columns: &Columns<'_>) -> Result<GrantReads, StoreError> {
    Ok(GrantReads {
        first_read_at: columns.time_opt("first_read_at")?,
        boot_read_at: columns.time_opt("boot_read_at")?,
        last_read_at: columns.time_opt("last_read_at")?,
        bytes: columns.count("bytes")?,
    })
}

/// The reads of all media grants of a run, ended ones included, in the order of their issue.
pub(super) fn media_evidence(
    connection: &Connection,
    operation: &'static str,
    run: RunId,
) -> Result<Vec<MediaEvidence>, StoreError> {
    all(
        connection,
        operation,
        "SELECT artifact, size, first_read_at, boot_read_at, last_read_at, bytes FROM media_grants
         WHERE run = ?1 ORDER BY created_at, artifact, token_hash",
        &[&run.to_string()],
        |columns| {
            let (artifact, size) = (artifact(columns)?, columns.count("size")?);
            Ok(MediaEvidence { artifact, size, reads: reads(columns)? })
        },
    )
}

/// Writes a new grant with its recorded inputs. A second insert with the same token (a step that ran twice) changes nothing.
pub(super) fn insert(connection: &Connection, grant: &Grant) -> Result<(), StoreError> {
    const OPERATION: &str = "issue a media grant";
    let new = execute(
        connection,
        OPERATION,
        "INSERT INTO media_grants (token_hash, run, artifact, sha256, size, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (token_hash) DO NOTHING",
        params![
            grant.token_hash,
            grant.run.to_string(),
            grant.artifact.as_str(),
            grant.sha256,
            i64::try_from(grant.size).unwrap_or(i64::MAX),
            grant.created_at.to_string()
        ],
    )?;
    if let Some(inputs) = grant.inputs.as_ref().filter(|_| new > 0) {
        execute(
            connection,
            OPERATION,
            "INSERT INTO media_inputs (media_grant, inputs)
             SELECT id, reseal_text(?2, 'media-inputs', 'media-grant/' || run) FROM media_grants WHERE token_hash = ?1",
            params![grant.token_hash, inputs],
        )?;
    }
    Ok(())
}

/// Writes a new pull grant. A second insert with the same token changes nothing.
pub(super) fn insert_pull(connection: &Connection, pull: &PullGrant, now: Time) -> Result<(), StoreError> {
    execute(
        connection,
        "issue a pull grant",
        "INSERT INTO pull_grants (token_hash, run, repository, created_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (token_hash) DO NOTHING",
        params![pull.token_hash, pull.run.to_string(), pull.repository, now.to_string()],
    )
    .map(drop)
}

/// Ends all grants of a run and deletes their recorded inputs.
pub(super) fn end(connection: &Connection, run: RunId, now: Time) -> Result<(), StoreError> {
    if mutant::active(Mutant::KeepsGrants) {
        return Ok(());
    }
    let parameters = [run.to_string(), now.to_string()];
    let parameters: [&dyn ToSql; 2] = [&parameters[0], &parameters[1]];
    execute(
        connection,
        "delete the recorded inputs of images",
        "DELETE FROM media_inputs WHERE media_grant IN (SELECT id FROM media_grants WHERE run = ?1)",
        &parameters[..1],
    )?;
    execute(
        connection,
        "end media grants",
        "UPDATE media_grants SET ended_at = ?2 WHERE run = ?1 AND ended_at IS NULL",
        &parameters,
    )?;
    execute(
        connection,
        "end pull grants",
        "UPDATE pull_grants SET ended_at = ?2 WHERE run = ?1 AND ended_at IS NULL",
        &parameters,
    )
    .map(drop)
}
