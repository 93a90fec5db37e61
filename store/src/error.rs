//! The errors of the store.

use std::path::PathBuf;
use std::sync::Arc;

use super::migrate::MigrateError;

/// Why an operation of the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database file could not be opened.
    #[error("open the database {}", path.display())]
    Open {
        /// The database file.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The database's schema could not be brought up to date.
    #[error("migrate the database")]
    Migrate(#[source] Arc<MigrateError>),
    /// A copy of the database is damaged.
    #[error("the copy of the database {} is damaged: {detail}; make another backup, or use an older one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage that SQLite found, in words.
        detail: String,
    },
    /// SQLite returned an error.
    #[error("{operation}")]
    Sqlite {
        /// The operation, in words.
        operation: &'static str,
        /// The error of SQLite.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// A row has content that this program cannot read.
    #[error("{operation}: column {column} has content that this version cannot read: {detail}")]
    Corrupt {
        /// The operation, in words.
        operation: &'static str,
        /// The column.
        column: &'static str,
        /// The fault of the content, in words.
        detail: String,
    },
    /// The operation panicked; it wrote nothing.
    #[error("{operation}: internal error; nothing was written")]
    Panicked {
        /// The operation, in words.
        operation: &'static str,
    },
    /// The store is shutting down.
    #[error("the database is closed")]
    Closed,
}

impl StoreError {
    /// Wraps an error that SQLite returned during `operation`.
    pub(super) fn sqlite(operation: &'static str, source: rusqlite::Error) -> Self {
        Self::Sqlite { operation, source: Arc::new(source) }
    }

    /// Whether the error comes from the content of a row, not from the database.
    pub fn is_corrupt(&self) -> bool {
        use rusqlite::Error;
        match self {
            Self::Corrupt { .. } => true,
            Self::Sqlite { source, .. } => matches!(
                **source,
                Error::FromSqlConversionFailure(..)
                    | Error::IntegralValueOutOfRange(..)
                    | Error::InvalidColumnType(..)
                    | Error::Utf8Error(..)
            ),
            _ => false,
        }
    }

    /// Whether the database is busy, full or closed: a later attempt may succeed (503).
    pub fn is_unavailable(&self) -> bool {
        use rusqlite::ErrorCode as Code;
        match self {
            Self::Closed => true,
            Self::Sqlite { source, .. } | Self::Open { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(
                    Code::DatabaseBusy
                        | Code::DatabaseLocked
                        | Code::DiskFull
                        | Code::SystemIoFailure
                        | Code::CannotOpen
                )
            ),
            _ => false,
        }
    }
}
