//! Sealing again: a pass over every sealed column after the key was rotated, and the count that proves that it is complete.
//!
//! ```text
//!   rotate ──> pass: column by column, row by row ──> count by version ── 0 of the former ones ──> they can be removed
//!                │ one bounded transaction each            `── more ──> unreadable texts, named by their place
//!                `── a crash: every text names its version, so the next pass seals only what is left
//! ```
//!
//! Invariants
//! - A transaction reads at most [`WINDOW`] rows and seals about [`BATCH_BYTES`] bytes, so other writers wait for it briefly.
//! - A count of 0 stays 0: the versions change between two transactions ([`Store::between_writes`]), and what was sealed before
//!   that is sealed again when it is written ([`super::sealing`]).

use rusqlite::{Connection, params};

use super::rows::{all, execute, first};
use super::sealing::{SEALED, SealedColumn};
use super::{Store, StoreError};

/// The maximum of rows that one transaction reads.
const WINDOW: usize = 256;
/// The length of sealed texts after which a transaction takes no further one.
const BATCH_BYTES: u64 = 4 << 20;

/// The place of a pass over the sealed columns. The default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResealCursor {
    column: usize,
    row: i64,
}

/// The result of one transaction of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResealBatch {
    /// The texts that were sealed again.
    pub resealed: u64,
    /// Where the next transaction continues; `None` at the end of the pass.
    pub next: Option<ResealCursor>,
}

/// How many texts of one column are sealed with one version of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedCount {
    /// Table and column, such as `servers.bmc_password`.
    pub place: String,
    /// The version of the key; empty when the text does not name one.
    pub key: String,
    /// The number of texts.
    pub records: u64,
}

struct Row {
    id: i64,
    size: u64,
    stale: bool,
}

impl Store {
    /// Calls `change` between two write transactions: each one is carried out completely before it or completely after it.
    /// Returns when those before it are durable.
    ///
    /// # Errors
    /// When the writer has stopped.
    pub async fn between_writes(&self, change: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        self.writer
            .write("change the keys", move |_connection| {
                change();
                Ok(())
            })
            .await
    }

    /// Carries out the next transaction of a pass that seals every text with the version in force.
    ///
    /// # Errors
    /// When the database cannot be read or written.
    pub async fn reseal(&self, from: ResealCursor) -> Result<ResealBatch, StoreError> {
        const OPERATION: &str = "seal stored secrets again";
        self.writer
            .write(OPERATION, move |connection| {
                let Some(column) = SEALED.get(from.column) else { return Ok(ResealBatch::default()) };
                column.reseal(connection, OPERATION, from)
            })
            .await
    }

    /// The number of sealed texts by column and version of the key.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn sealed_counts(&self) -> Result<Vec<SealedCount>, StoreError> {
        const OPERATION: &str = "count sealed texts";
        self.read(OPERATION, |connection| counts(connection, OPERATION)).await
    }
}

/// The number of sealed texts by column and version of the key.
pub(super) fn counts(
    connection: &Connection,
    operation: &'static str,
) -> Result<Vec<SealedCount>, StoreError> {
    let mut found = Vec::new();
    for SealedColumn { table, column, .. } in &SEALED {
        let place = format!("{table}.{column}");
        let sql = format!(
            "SELECT coalesce(seal_key({column}), '') AS key, count(*) AS records FROM {table}
             WHERE {column} LIKE 'sealed:%' GROUP BY 1 ORDER BY 1"
        );
        found.extend(all(connection, operation, &sql, &[], |columns| {
            Ok(SealedCount {
                place: place.clone(),
                key: columns.get("key")?,
                records: columns.count("records")?,
            })
        })?);
    }
    Ok(found)
}

impl SealedColumn {
    fn reseal(
        &self,
        connection: &Connection,
        operation: &'static str,
        from: ResealCursor,
    ) -> Result<ResealBatch, StoreError> {
        let Self { table, column, .. } = self;
        let sql = format!(
            "SELECT rowid AS row, coalesce(length({column}), 0) AS size, stale_key({column}) IS NOT NULL AS stale
             FROM {table} WHERE rowid > ?1 ORDER BY rowid LIMIT {WINDOW}"
        );
        let rows = all(connection, operation, &sql, &[&from.row], |columns| {
            let (id, size) = (columns.get("row")?, columns.count("size")?);
            Ok(Row { id, size, stale: columns.get("stale")? })
        })?;
        let (mut resealed, mut bytes, mut last) = (0, 0, from.row);
        for row in &rows {
            if row.stale && bytes > BATCH_BYTES {
                break;
            }
            if row.stale {
                bytes += row.size;
                resealed += u64::from(self.reseal_row(connection, operation, row.id)?);
            }
            last = row.id;
        }
        let complete = rows.len() < WINDOW && rows.last().is_none_or(|row| row.id == last);
        let next = match complete {
            true => ResealCursor { column: from.column + 1, row: 0 },
            false => ResealCursor { row: last, ..from },
        };
        Ok(ResealBatch { resealed, next: (next.column < SEALED.len()).then_some(next) })
    }

    /// Seals the text of one row again; `false` when it cannot be opened.
    fn reseal_row(
        &self,
        connection: &Connection,
        operation: &'static str,
        row: i64,
    ) -> Result<bool, StoreError> {
        let Self { table, column, purpose, context, disposable } = self;
        let purpose = purpose.as_str();
        let sql = format!(
            "UPDATE {table} SET {column} = reseal_text({column}, '{purpose}', {context}) WHERE rowid = ?1"
        );
        execute(connection, operation, &sql, params![row])?;
        let sql = format!("SELECT stale_key({column}) IS NOT NULL AS stale FROM {table} WHERE rowid = ?1");
        let stale = first(connection, operation, &sql, &[&row], |columns| columns.get("stale"))?;
        let stale: bool = stale.unwrap_or(false);
        if stale && *disposable {
            execute(connection, operation, &format!("DELETE FROM {table} WHERE rowid = ?1"), params![row])?;
        }
        Ok(!stale)
    }
}
