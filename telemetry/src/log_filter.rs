//! The filters of log lines: reading, replacement, and the reason why a filter is refused.

use std::io;

use tracing_subscriber::{EnvFilter, reload};

/// The target of the lines that an operator requested by a signal; they pass every filter.
pub const REQUESTED: &str = "requested";

/// The reason why logging cannot be initialised or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The log filter is malformed.
    #[error("LOG_LEVEL {filter:?} is malformed; give a level (info) or a list (info,engine=debug)")]
    Filter {
        /// The text of the filter.
        filter: String,
        /// The error of the parser.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The thread that writes log lines did not start.
    #[error("start the thread that writes log lines; check the limits of threads and memory")]
    Thread(#[source] io::Error),
    /// The filter cannot be changed.
    #[error("change the log filter")]
    Reload(#[source] reload::Error),
}

/// Replaces the filter of a subscriber.
pub(super) type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

/// A filter that also passes the lines of [`REQUESTED`].
pub(super) fn parse(filter: &str) -> Result<EnvFilter, LogsError> {
    let malformed = |source| LogsError::Filter { filter: filter.to_owned(), source };
    let requested = format!("{REQUESTED}=info").parse().map_err(malformed)?;
    Ok(EnvFilter::try_new(filter).map_err(malformed)?.add_directive(requested))
}
