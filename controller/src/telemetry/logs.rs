//! Where log lines go and how they look.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter is not one.
    #[error("LOG_LEVEL {filter:?} is not understood; write a level (info) or a list (info,shoal=debug)")]
    Filter {
        /// What was given.
        filter: String,
        /// Why it is not one.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
}

/// Sends log lines to standard error. Only the first call of a process has an effect.
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
