//! One log line as one JSON object.
//!
//! ```text
//! {"timestamp":"2026-11-23T03:00:00.123Z","level":"ERROR","message":"the job failed: …","target":"store::log",
//!  "job_id":"…","server_serial":"…","workflow":"provision","worker_id":"…","epoch":3,"step":"redfish.mount.task","class":"media", …}
//! ```
//!
//! The fields of all open spans and of the event are members of the same object, so that a log search for a job needs one name:
//! `job_id`. A field of an inner span or of the event replaces one of an outer span.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats events as JSON lines.
pub(super) struct JsonLine {
    /// The current time as text.
    pub(super) now: fn() -> String,
}

impl<S> FormatEvent<S, JsonFields> for JsonLine
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Map::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let recorded = extensions.get::<FormattedFields<JsonFields>>();
            let parsed = recorded.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
            fields.extend(parsed.unwrap_or_default());
        }
        event.record(&mut Members(&mut fields));
        let metadata = event.metadata();
        let message = fields.remove("message").unwrap_or_default();
        write!(
            writer,
            "{{\"timestamp\":{:?},\"level\":{:?},\"message\":{message},\"target\":{:?}",
            (self.now)(),
            metadata.level().as_str(),
            metadata.target(),
        )?;
        for (name, value) in fields {
            write!(writer, ",{}:{value}", Value::String(name))?;
        }
        writeln!(writer, "}}")
    }
}

/// Writes the fields of an event into a JSON object.
struct Members<'a>(&'a mut Map<String, Value>);

impl Members<'_> {
    fn set(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Members<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }
}
