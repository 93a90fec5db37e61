//! `shoal registry` as a client of a running controller: how its registry stands, and what it is asked to do.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::client::Client;
use super::error::CliError;
use super::output::{Output, join, plain, text};

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// How it stands.
    Status,
    /// To refuse pushes and deletes, with a reason, or to take them again.
    ReadOnly(Option<String>),
    /// To collect garbage.
    Gc {
        /// Only to say what would go.
        dry_run: bool,
        /// How long what nobody refers to is kept, in seconds; as configured when unset.
        grace: Option<u32>,
        /// Also images no tag leads to.
        untagged: bool,
    },
    /// To remove tags by the rules.
    Retain {
        /// Only to say which would go.
        dry_run: bool,
    },
    /// To verify everything.
    Scrub,
}

/// Asks the controller.
pub(super) async fn run(ask: Ask, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    match ask {
        Ask::Status => {
            let status = client.get(&["registry"], &[]).await?.body;
            show(&status, output)
        }
        Ask::ReadOnly(reason) => {
            let path = ["registry", "read-only"];
            let status = match reason {
                Some(reason) => {
                    client.post(&path, &json!({ "reason": reason }), HeaderMap::new()).await?.body
                }
                None => client.delete(&path, HeaderMap::new()).await?.body,
            };
            if output.json {
                return output.document(&status);
            }
            match &status["read_only"] {
                Value::Null => output.line("the registry takes pushes and deletes"),
                _ => output.line(format!("the registry is read-only: {}", text(&status, "/read_only"))),
            }
        }
        Ask::Gc { dry_run, grace, untagged } => {
            let mut query = vec![("dry_run", dry_run.to_string())];
            query.extend(grace.map(|seconds| ("grace", seconds.to_string())));
            query.extend(untagged.then(|| ("untagged", "true".to_owned())));
            let report = client.ask(&["registry", "gc"], &query).await?.body;
            if output.json {
                return output.document(&report);
            }
            if goes_on(&report) {
                return output.line("garbage is being collected; `shoal registry status` tells the end");
            }
            let verb = if dry_run { "would remove" } else { "removed" };
            output.line(format!(
                "{verb} {} manifests and {} layers from their repositories, {} blobs of {} bytes from the disk",
                text(&report, "/manifests"),
                text(&report, "/layers"),
                text(&report, "/blobs"),
                text(&report, "/bytes"),
            ))
        }
        Ask::Retain { dry_run } => {
            let query = [("dry_run", dry_run.to_string())];
            let report = client.ask(&["registry", "retention"], &query).await?.body;
            if output.json {
                return output.document(&report);
            }
            if goes_on(&report) {
                return output.line("tags are being removed; `shoal registry status` tells the end");
            }
            let tags = report["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
            output.note(format!("{} {} tags", if dry_run { "would remove" } else { "removed" }, tags.len()));
            tags.iter().filter_map(Value::as_str).try_for_each(|tag| output.line(plain(tag)))
        }
        Ask::Scrub => {
            let answer = client.ask(&["registry", "scrub"], &[]).await?.body;
            if output.json {
                return output.document(&answer);
            }
            output.line(match answer["began"].as_bool() {
                Some(true) => "everything is being verified; `shoal registry status` tells the end",
                _ => "everything is being verified already; `shoal registry status` tells the end",
            })
        }
    }
}

fn goes_on(report: &Value) -> bool {
    report["running"].as_bool() == Some(true)
}

fn show(status: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(status);
    }
    let part = |pointer: &str| text(status, pointer);
    let running = |pointer: &str| match status.pointer(pointer).and_then(Value::as_bool) {
        Some(true) => "at work now".to_owned(),
        _ => String::new(),
    };
    let list = |pointer: &str| status.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    output.fields(&[
        ("read-only", part("/read_only")),
        ("room for pushes", part("/accepts_pushes")),
        ("free bytes", part("/free_bytes")),
        ("repositories", part("/repositories")),
        ("pins", part("/pins")),
        ("last collected", join(&[part("/gc/last/at"), running("/gc/running")], ", ")),
        ("it removed bytes", part("/gc/last/bytes")),
        ("last retention", join(&[part("/retention/last/at"), running("/retention/running")], ", ")),
        ("last verified", join(&[part("/scrub/last_verified"), running("/scrub/running")], ", ")),
    ])?;
    for digest in list("/scrub/quarantined").iter().filter_map(Value::as_str) {
        output.note(format!("{} has rotted and was put aside: push its image again", plain(digest)));
    }
    let row = |quota: &Value| {
        ["/repositories", "/limit_bytes", "/used_bytes", "/reserved_bytes"]
            .map(|field| text(quota, field))
            .to_vec()
    };
    let rows: Vec<Vec<String>> = list("/quotas").iter().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    output.table(&["QUOTA OF", "LIMIT", "USED", "BEING PUSHED"], &rows)
}
