//! Destination and format of log lines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Why logging cannot be initialised.
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
}

/// Writes log lines to standard error. Only the first call in a process has an effect.
///
/// # Errors
/// [`LogsError`] when the filter is malformed.
pub fn init(filter: &str, format: LogFormat) -> Result<(), LogsError> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|source| LogsError::Filter { filter: filter.to_owned(), source })?;
    let text = match format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let already_set = if text {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(true).try_init()
    };
    drop(already_set);
    Ok(())
}
