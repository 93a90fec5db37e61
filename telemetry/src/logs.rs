//! Destination, format and filter of log lines.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::util::SubscriberInitExt;

use super::json_line::JsonLine;
use super::log_filter::{LogsError, SetFilter, parse};
use super::log_level::FilterInForce;
use super::log_queue::LogQueue;
use settings::LogFormat;

/// The queue of the process. Log lines are global like standard error.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// The number of log lines that were dropped since the start of the process.
pub fn dropped_log_lines() -> u64 {
    QUEUE.get().map_or(0, LogQueue::dropped)
}

/// The newest log lines that were written, the oldest first; empty in a process that has not called [`init`].
pub fn recent_log_lines() -> String {
    QUEUE.get().map_or_else(String::new, LogQueue::recent)
}

/// The log of this process. Lines that wait are written when this is dropped.
#[must_use]
pub struct Logs {
    queue: LogQueue,
    level: Arc<FilterInForce>,
}

impl Logs {
    /// Puts the filter of the setting in force, also in place of a change while the process ran.
    ///
    /// # Errors
    /// [`LogsError`] when the filter is malformed; the former one stays in force.
    pub fn set_filter(&self, filter: &str) -> Result<(), LogsError> {
        self.level.reload(filter)
    }

    /// Writes a text that is not a log line, such as the error of a command, as one line to standard error.
    pub fn say(&self, text: &str) {
        self.queue.push(format!("{text}\n").as_bytes());
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.queue.flush();
    }
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}

/// Writes log lines to standard error without ever waiting for it. Only the first call in a process has an effect.
///
/// # Errors
/// [`LogsError`] when the filter is malformed or no thread can be started.
pub fn init(filter: &str, format: LogFormat) -> Result<Logs, LogsError> {
    let setting = filter;
    let filter = parse(setting)?;
    let terminal = io::stderr().is_terminal();
    let lines = match format {
        LogFormat::Text => Lines::Text { colour: terminal },
        LogFormat::Auto if terminal => Lines::Text { colour: true },
        LogFormat::Json | LogFormat::Auto => Lines::Json,
    };
    let notice = Box::new(move |dropped| dropped_notice(lines, &timestamp(), dropped));
    let queue = LogQueue::start(standard_error(), notice).map_err(LogsError::Thread)?;
    let (subscriber, set_filter) = subscriber(filter, lines, timestamp, queue.clone());
    let level = Arc::new(FilterInForce::new(set_filter, setting));
    if subscriber.try_init().is_ok() {
        let _of_first_call = QUEUE.set(queue.clone());
        level.install();
    }
    Ok(Logs { queue, level })
}

/// Makes a panic a log line. The hook of the standard library writes to standard error itself and waits for it.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        tracing::error!(thread, place, "a task ended by a panic, which is a fault of this program: {text}");
    }));
}

/// Standard error as a descriptor of its own: the thread that writes log lines would otherwise hold the lock of
/// [`io::stderr`] while it waits.
fn standard_error() -> Box<dyn Write + Send> {
    match io::stderr().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(File::from(descriptor)),
        Err(_no_descriptor_free) => Box::new(io::stderr()),
    }
}

/// The line that states how many lines were dropped.
pub(super) fn dropped_notice(lines: Lines, now: &str, dropped: u64) -> String {
    const MESSAGE: &str = "log lines were dropped, because standard error did not accept them";
    match lines {
        Lines::Text { .. } => format!("{now}  WARN {MESSAGE} dropped={dropped}\n"),
        Lines::Json => format!(
            "{{\"timestamp\":{now:?},\"level\":\"WARN\",\"message\":{MESSAGE:?},\"target\":\"log\",\"dropped\":{dropped}}}\n"
        ),
    }
}

/// The current time as log lines show it: UTC with milliseconds.
fn timestamp() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// The form of log lines.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lines {
    /// Text for people.
    Text {
        /// Whether levels have colours.
        colour: bool,
    },
    /// One JSON object for each line.
    Json,
}

/// A subscriber that writes one line for each event that passes the filter, with the function that replaces the filter.
pub(super) fn subscriber<W>(
    filter: EnvFilter,
    lines: Lines,
    now: fn() -> String,
    writer: W,
) -> (Box<dyn Subscriber + Send + Sync>, SetFilter)
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    // An event that cannot be formatted would otherwise be reported on standard error, which may be closed.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    match lines {
        Lines::Text { colour } => {
            let builder = builder.with_ansi(colour).with_target(false).with_timer(Now(now));
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            (Box::new(builder.finish()), Box::new(move |filter| handle.reload(filter)))
        }
        Lines::Json => {
            let builder = builder.fmt_fields(JsonFields::new()).event_format(JsonLine { now });
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            (Box::new(builder.finish()), Box::new(move |filter| handle.reload(filter)))
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
