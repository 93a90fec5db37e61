//! Filters of log lines: how they are read and replaced, and why one is refused.

use std::io;

use tracing_subscriber::{EnvFilter, reload};

/// The target of the lines that an operator requested by a signal; they pass every filter.
pub const REQUESTED: &str = "requested";

/// Why logging cannot be initialised or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The log filter is malformed.
    #[error("LOG_LEVEL {filter:?} is malformed; give a level (info) or a list (info,engine=debug)")]
    Filter {
        /// The filter.
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

/// A crate that logs texts of a server. What matters of them is logged by `nats-carrier`.
const FOREIGN: &str = "async_nats";

/// A filter that also passes the lines of [`REQUESTED`], and those of [`FOREIGN`] only if it names that crate.
pub(super) fn parse(filter: &str) -> Result<EnvFilter, LogsError> {
    let malformed = |source| LogsError::Filter { filter: filter.to_owned(), source };
    let requested = format!("{REQUESTED}=info").parse().map_err(malformed)?;
    let parsed = EnvFilter::try_new(filter).map_err(malformed)?.add_directive(requested);
    if filter.contains(FOREIGN) {
        return Ok(parsed);
    }
    Ok(parsed.add_directive(format!("{FOREIGN}=off").parse().map_err(malformed)?))
}
