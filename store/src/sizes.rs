//! The sizes of the tables, for an operator who asks what fills the disk.

use rusqlite::Connection;

use super::rows::{all, first};
use super::{Store, StoreError};

const OPERATION: &str = "read the sizes of the tables";

/// The size of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSize {
    /// The bytes of the database file, without its log.
    pub bytes: u64,
    /// The free bytes in the database file.
    pub free_bytes: u64,
    /// The tables by name with their numbers of rows.
    pub tables: Vec<(String, u64)>,
}

impl Store {
    /// The size of the database and the number of rows of every table.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn size(&self) -> Result<DatabaseSize, StoreError> {
        self.read(OPERATION, |connection| {
            let names = all(
                connection,
                OPERATION,
                "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name",
                &[],
                |columns| columns.get::<String>("name"),
            )?;
            let tables = names
                .into_iter()
                .map(|name| {
                    // The name comes from the schema of this program.
                    let sql = format!("SELECT count(*) AS entries FROM \"{name}\"");
                    let rows = first(connection, OPERATION, &sql, &[], |columns| columns.count("entries"))?;
                    Ok((name, rows.unwrap_or(0)))
                })
                .collect::<Result<_, StoreError>>()?;
            let page = pragma(connection, "page_size")?;
            let of = |pages: u64| pages.saturating_mul(page);
            Ok(DatabaseSize {
                bytes: of(pragma(connection, "page_count")?),
                free_bytes: of(pragma(connection, "freelist_count")?),
                tables,
            })
        })
        .await
    }
}

fn pragma(connection: &Connection, name: &'static str) -> Result<u64, StoreError> {
    let sql = format!("SELECT {name} AS number FROM pragma_{name}");
    Ok(first(connection, OPERATION, &sql, &[], |columns| columns.count("number"))?.unwrap_or(0))
}
