//! `POST /api/v1/support-bundle`: what a person who helps needs to see, as one bounded document without secrets.
//!
//! ```text
//!   about.json  settings.json  readyz.json  metrics.txt  tables.json  events.jsonl  jobs.jsonl  log.txt
//!        each at most 1 MiB; a longer one is cut at a line and says so ──> shoal support-bundle writes a .tar.gz
//! ```
//!
//! Invariant: every part is something that the API, `config show` or the log shows already, so that it holds no secret. What may hold
//! one is not in the bundle: task images, recipes, the log that an installer reported, dumps of the database.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Api;
use super::about::about_now;
use super::error::ApiError;
use super::extract::CanAdminister;
use super::health;
use super::jobs::explanation;
use super::jobs::view::JobView;
use super::openapi::types;
use model::{NewEvent, Outcome, Time};
use store::{EventFilter, JobFilter};
use telemetry::recent_log_lines;

/// The maximum size of one file.
const MAX_FILE: usize = 1 << 20;
/// The number of the newest events.
const EVENTS: u32 = 2000;
/// The number of the newest failed jobs.
const JOBS: u32 = 20;
/// The number of the last events of each of these jobs.
const EVENTS_OF_JOB: u32 = 100;
/// The maximum size of a response that becomes a file before it is cut.
const MAX_PART: usize = 8 << 20;

/// The state of a controller for a person who helps. It contains no secret.
#[derive(Serialize, JsonSchema)]
pub(super) struct SupportBundle {
    /// When it was made.
    #[schemars(with = "types::Timestamp")]
    made_at: Time,
    /// The files.
    files: Vec<SupportFile>,
}

/// One file of a support bundle.
#[derive(Serialize, JsonSchema)]
struct SupportFile {
    /// The name of the file.
    name: &'static str,
    /// The text of the file.
    text: String,
    /// Whether the beginning of a longer text is missing.
    cut: bool,
}

impl SupportFile {
    /// A file with the end of a text.
    fn of(name: &'static str, text: String) -> Self {
        let Some(mut from) = text.len().checked_sub(MAX_FILE).filter(|from| *from > 0) else {
            return Self { name, text, cut: false };
        };
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let rest = text.get(from..).unwrap_or_default();
        let whole = rest.split_once('\n').map_or(rest, |(_half_a_line, whole)| whole);
        Self { name, text: whole.to_owned(), cut: true }
    }

    /// A file with a part, or with the reason why the part cannot be read: a bundle is made when something is broken.
    fn part(name: &'static str, part: Result<String, ApiError>) -> Self {
        match part {
            Ok(text) => Self::of(name, text),
            Err(error) => Self::of(name, format!("this part cannot be read: {}\n", error.message())),
        }
    }
}

/// Makes a support bundle.
pub(super) async fn make(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
) -> Result<Json<SupportBundle>, ApiError> {
    let made_at = api.now();
    let files = vec![
        SupportFile::of("about.json", document(&json!(about_now(&api)))),
        SupportFile::of("settings.json", document(&settings(&api))),
        SupportFile::part("readyz.json", text_of(health::readyz(State(api.clone())).await).await),
        SupportFile::part("metrics.txt", metrics(&api).await),
        SupportFile::part("tables.json", tables(&api).await),
        SupportFile::part("events.jsonl", events(&api).await),
        SupportFile::part("jobs.jsonl", jobs(&api).await),
        SupportFile::of("log.txt", recent_log_lines()),
    ];
    let event = NewEvent::info(
        "controller.support-bundle",
        format!("a support bundle was made by {}", principal.name),
    )
    .by(&principal.name);
    api.store().append(None, None, vec![event], made_at).await?;
    Ok(Json(SupportBundle { made_at, files }))
}

/// The settings of the start with their origins.
fn settings(api: &Api) -> Value {
    let row = |shown: &settings::Shown| json!({ "name": shown.name, "value": shown.value, "origin": shown.origin.to_string() });
    json!({ "settings": api.configuration.iter().map(row).collect::<Vec<_>>() })
}

async fn metrics(api: &Api) -> Result<String, ApiError> {
    text_of(health::rendered_metrics(api).await?).await
}

async fn tables(api: &Api) -> Result<String, ApiError> {
    let size = api.store().size().await?;
    let tables: Vec<Value> =
        size.tables.iter().map(|(name, rows)| json!({ "table": name, "rows": rows })).collect();
    let open = json!({ "bytes": size.bytes, "free_bytes": size.free_bytes, "tables": tables });
    Ok(document(&open))
}

async fn events(api: &Api) -> Result<String, ApiError> {
    let after = api.store().last_seq().await?.saturating_sub(i64::from(EVENTS));
    let events = api.store().events(EventFilter { run: None, after, limit: EVENTS }).await?;
    Ok(events.iter().map(line).collect())
}

/// The newest failed jobs, each with its explanation and its last events.
async fn jobs(api: &Api) -> Result<String, ApiError> {
    let filter = JobFilter { outcome: Some(Outcome::Failed), limit: JOBS, ..JobFilter::default() };
    let mut lines = String::new();
    for job in api.store().jobs(filter).await?.jobs {
        let id = job.run.id;
        let explained = match explanation(api, id).await {
            Ok(explained) => json!(explained),
            Err(error) => json!({ "error": error.message() }),
        };
        let events = api.store().last_events(id, EVENTS_OF_JOB).await?;
        lines += &line(&json!({ "job": JobView::of(&job), "explain": explained, "events": events }));
    }
    Ok(lines)
}

/// The body of a response as text.
async fn text_of(response: impl IntoResponse) -> Result<String, ApiError> {
    let response: Response = response.into_response();
    let body = axum::body::to_bytes(response.into_body(), MAX_PART).await;
    let body =
        body.map_err(|_longer| ApiError::new(super::ErrorCode::Internal, "it is longer than 8 MiB"))?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// A document as text. Our own types are always representable.
fn document(value: &Value) -> String {
    format!("{value:#}\n")
}

fn line(value: &impl Serialize) -> String {
    format!("{}\n", json!(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_cut_at_a_line_and_says_so() {
        let short = SupportFile::of("a", "line\n".to_owned());
        assert_eq!((short.text.as_str(), short.cut), ("line\n", false));
        let long: String = (0..200_000).map(|number| format!("líne {number}\n")).collect();
        let cut = SupportFile::of("a", long.clone());
        assert!(cut.cut && cut.text.len() <= MAX_FILE && long.ends_with(&cut.text), "{}", cut.text.len());
        assert!(cut.text.starts_with("líne "), "{}", &cut.text[..20]);
        let one = SupportFile::of("a", "ü".repeat(MAX_FILE));
        assert!(one.cut && one.text.len() <= MAX_FILE);
    }
}
