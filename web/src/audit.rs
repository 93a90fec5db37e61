//! The audit log: its page with filters, and its download.
//!
//! ```text
//!   filters ──> GET /api/v1/audit ──page──> table
//!           ──> the same, page by page ───> lines of a file, as fast as the browser takes them
//! ```
//!
//! Invariants: a download has what the filters of the page select, and is made by the requests of its caller, so that it needs the
//! permission of the page; one page of the log is in memory; a download that cannot go on breaks off, so that a browser reports
//! it as failed.

use std::io;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use ui::data::AuditPage;
use ui::view::{AuditSearch, Tab, TableView};

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Visit, encoded, html};

/// Rows on one page.
const PAGE: u32 = 50;
/// Entries that a download reads at once: the most that the API returns.
const AT_ONCE: u32 = 1000;
/// The columns of a table, in the order of the entries.
const COLUMNS: [&str; 13] = [
    "seq",
    "time",
    "actor_kind",
    "actor",
    "actor_id",
    "source",
    "action",
    "target",
    "result",
    "request_id",
    "count",
    "previous",
    "hash",
];

/// The filters of a query.
fn filter(query: &Form) -> AuditSearch {
    let text = |name: &str| query.get(name).trim().to_owned();
    AuditSearch { actor: text("actor"), action: text("action"), target: text("target"), since: text("since") }
}

/// The path of a page of the API.
fn path(filter: &AuditSearch, limit: u32, cursor: Option<&str>) -> String {
    let mut path = format!("/api/v1/audit?limit={limit}");
    let cursor = cursor.map(|cursor| ("cursor", cursor.to_owned()));
    for (name, value) in filter.parameters().into_iter().chain(cursor) {
        path.push_str(&format!("&{name}={}", encoded(&value)));
    }
    path
}

/// Shows the audit log.
pub(super) async fn show(visit: Visit) -> Response {
    let shown = async {
        let filter = filter(&visit.query);
        let cursor = Some(visit.query.get("cursor")).filter(|cursor| !cursor.is_empty());
        let (page, refused) = match visit.get::<AuditPage>(&path(&filter, PAGE, cursor)).await {
            Ok(page) => (page, None),
            Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
                (AuditPage::default(), Some(refusal.text()))
            }
            Err(refusal) => return Err(refusal),
        };
        let status = if refused.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        let frame = visit.frame("Audit log", Tab::Settings).await?;
        Ok((status, html(&TableView::audit(frame, &page, &filter, refused))?).into_response())
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// The form of a downloaded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// A table with a header.
    Csv,
    /// One entry on each line, as the log has it.
    JsonLines,
}

/// A page of the log, whose entries are passed on as they are.
#[derive(Deserialize)]
struct Entries {
    entries: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// Downloads the entries of the filters.
pub(super) async fn download(visit: Visit, Path(file): Path<String>) -> Response {
    let format = match file.as_str() {
        "audit.csv" => Format::Csv,
        "audit.jsonl" => Format::JsonLines,
        _ => return visit.respond(Err(Refusal::unknown_page())).await,
    };
    let filter = filter(&visit.query);
    // The first page is read before the response begins, so that a refusal is a page and no broken file.
    let first = match visit.get::<Entries>(&path(&filter, AT_ONCE, None)).await {
        Ok(first) => first,
        Err(refusal) => return visit.respond(Err(refusal)).await,
    };
    let name = format!(
        "attachment; filename=\"audit-{}.{}\"",
        visit.now().strftime("%Y%m%dT%H%M%SZ"),
        format.ending()
    );
    let Ok(name) = HeaderValue::from_str(&name) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let kind = HeaderValue::from_static(format.media_type());
    let body = Body::from_stream(pages(visit, filter, format, first));
    ([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], body).into_response()
}

/// The next part of a download.
enum Part {
    /// The first page, after the header.
    First(Entries),
    /// The page after this cursor.
    After(String),
}

/// The parts of a file: one for each page of the log. A page is read when the part before it was taken.
fn pages(
    visit: Visit,
    filter: AuditSearch,
    format: Format,
    first: Entries,
) -> impl stream::Stream<Item = io::Result<String>> {
    stream::try_unfold((visit, Some(Part::First(first))), move |(visit, part)| {
        let filter = filter.clone();
        async move {
            let (mut text, page) = match part {
                None => return Ok(None),
                Some(Part::First(page)) => (format.header(), page),
                Some(Part::After(cursor)) => {
                    let read = visit.get::<Entries>(&path(&filter, AT_ONCE, Some(&cursor))).await;
                    let read = read.map_err(|refusal| {
                        tracing::warn!(why = refusal.text(), "a download of the audit log broke off");
                        io::Error::other("the audit log cannot be read further")
                    })?;
                    (String::new(), read)
                }
            };
            for entry in &page.entries {
                text.push_str(&format.line(entry)?);
            }
            Ok(Some((text, (visit, page.next.map(Part::After)))))
        }
    })
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::JsonLines => "application/x-ndjson",
        }
    }

    fn header(self) -> String {
        match self {
            Self::Csv => format!("{}\r\n", COLUMNS.join(",")),
            Self::JsonLines => String::new(),
        }
    }

    fn line(self, entry: &RawValue) -> io::Result<String> {
        match self {
            Self::JsonLines => Ok(format!("{}\n", entry.get())),
            Self::Csv => {
                let entry: Map<String, Value> = serde_json::from_str(entry.get())?;
                let cell = |name: &&str| match entry.get(*name) {
                    Some(Value::String(text)) => cell(text),
                    Some(value) => value.to_string(),
                    None => String::new(),
                };
                Ok(format!("{}\r\n", COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",")))
            }
        }
    }
}

/// A text as a cell (RFC 4180). A spreadsheet takes a cell that begins with one of some characters for a formula, and names of
/// callers are in the log: an apostrophe before it makes it a text.
fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::extract::{FromRequestParts, RawQuery};
    use axum::http::Request;
    use axum::routing::get;
    use futures_util::StreamExt;
    use model::SystemClock;
    use secrets::KeyRing;

    use super::super::Pages;
    use super::super::seal::Seal;
    use super::*;

    /// The parts of a download of a log whose first page ends with the cursor `7`; `second` is the response to the second page.
    async fn downloaded(format: Format, second: (StatusCode, &'static str)) -> Vec<io::Result<String>> {
        let api = Router::new().route(
            "/api/v1/audit",
            get(async move |RawQuery(query): RawQuery| {
                assert_eq!(
                    query.as_deref(),
                    Some("limit=1000&actor=ann&since=2026-11-23T00%3A00%3A00Z&cursor=7")
                );
                second
            }),
        );
        let pages = Pages {
            api,
            clock: Arc::new(SystemClock),
            seal: Arc::new(Seal::new(&KeyRing::from_bytes(&[1; 32]))),
            public_https_host: None,
        };
        let (mut parts, ()) = Request::new(()).into_parts();
        let Ok(visit) = Visit::from_request_parts(&mut parts, &pages).await;
        let filter =
            AuditSearch { actor: "ann".to_owned(), since: "2026-11-23".to_owned(), ..AuditSearch::default() };
        let first = serde_json::from_str(r#"{"entries":[{"seq":8,"action":"a","actor":"=1+1"}],"next":"7"}"#)
            .unwrap();
        super::pages(visit, filter, format, first).collect().await
    }

    const LAST: &str = r#"{"entries":[{"seq":7,"action":"b, \"c\"","count":2}],"next":null,"head":"8:ab"}"#;

    #[tokio::test]
    async fn a_download_has_every_page_of_the_filters() {
        let lines = downloaded(Format::JsonLines, (StatusCode::OK, LAST)).await;
        let lines: String = lines.into_iter().map(Result::unwrap).collect();
        let expected = "{\"seq\":8,\"action\":\"a\",\"actor\":\"=1+1\"}\n{\"seq\":7,\"action\":\"b, \\\"c\\\"\",\"count\":2}\n";
        assert_eq!(lines, expected, "an entry is passed on as it is");
        let table = downloaded(Format::Csv, (StatusCode::OK, LAST)).await;
        let table: String = table.into_iter().map(Result::unwrap).collect();
        let expected =
            format!("{}\r\n8,,,'=1+1,,,a,,,,,,\r\n7,,,,,,\"b, \"\"c\"\"\",,,,2,,\r\n", COLUMNS.join(","));
        assert_eq!(table, expected);
    }

    #[tokio::test]
    async fn a_download_that_cannot_go_on_breaks_off() {
        let parts = downloaded(Format::Csv, (StatusCode::SERVICE_UNAVAILABLE, "{}")).await;
        assert_eq!(parts.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_cell_is_quoted_where_it_must_be_and_is_never_a_formula() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=cmd|'x'!A1", "'=cmd|'x'!A1"),
            ("@a\r\n", "\"'@a\r\n\""),
            ("-1", "'-1"),
        ] {
            assert_eq!(cell(text), expected);
        }
    }
}
