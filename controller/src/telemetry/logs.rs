//! Destination and format of log lines.

use std::fmt;
use std::io::IsTerminal;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::util::SubscriberInitExt;

use super::json_line::JsonLine;
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
    let terminal = std::io::stderr().is_terminal();
    let lines = match format {
        LogFormat::Text => Lines::Text { colour: terminal },
        LogFormat::Auto if terminal => Lines::Text { colour: true },
        LogFormat::Json | LogFormat::Auto => Lines::Json,
    };
    drop(subscriber(filter, lines, timestamp, std::io::stderr).try_init());
    Ok(())
}

/// The current time as log lines show it: UTC with milliseconds.
fn timestamp() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// How log lines look.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lines {
    /// For people.
    Text {
        /// Whether levels have colours.
        colour: bool,
    },
    /// One JSON object for each line.
    Json,
}

/// A subscriber that writes one line for each event that passes the filter.
pub(super) fn subscriber<W>(
    filter: EnvFilter,
    lines: Lines,
    now: fn() -> String,
    writer: W,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match lines {
        Lines::Text { colour } => {
            Box::new(builder.with_ansi(colour).with_target(false).with_timer(Now(now)).finish())
        }
        Lines::Json => {
            Box::new(builder.fmt_fields(JsonFields::new()).event_format(JsonLine { now }).finish())
        }
    }
}

/// A clock for lines of text.
struct Now(fn() -> String);

impl FormatTime for Now {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&(self.0)())
    }
}
