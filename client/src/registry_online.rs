//! `shoal registry` as a client of a running controller.

use std::cell::RefCell;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::live::{Source, WatchArgs};
use super::many;
use super::output::{Output, join, plain, text};
use super::registry_content;

/// A request to the registry of a running controller.
#[derive(Debug, PartialEq, Eq)]
pub enum RegistryRequest {
    /// List the repositories, or the tags of one, once or until the process is ended.
    List(Option<String>, WatchArgs),
    /// Delete tags or manifests, or preview it.
    Delete {
        /// Each as `REPOSITORY:TAG`, with `*` and `?` in the tag for all that are like it, or `REPOSITORY@DIGEST`.
        images: Vec<String>,
        /// Whether the images are deleted, and not only previewed.
        yes: bool,
        /// The number of images that a preview showed; another number of now is an error.
        expect: Option<usize>,
    },
    /// Show the status.
    Status,
    /// With a reason, refuse pushes and deletes; with `None`, accept them again.
    ReadOnly(Option<String>),
    /// Collect garbage.
    Gc {
        /// Only report what would be removed.
        dry_run: bool,
        /// The grace period in seconds; `None` uses the setting.
        grace: Option<u32>,
        /// Also remove untagged manifests.
        untagged: bool,
    },
    /// Remove tags by the retention rules.
    Retain {
        /// Only report which tags would be removed.
        dry_run: bool,
    },
    /// Start a scrub.
    Scrub,
    /// List the upload sessions, once or until the process is ended.
    Uploads(WatchArgs),
    /// Cancel upload sessions by their ids.
    CancelUploads(Vec<String>),
}

/// Sends a request and shows its result.
///
/// # Errors
/// When the controller cannot be reached or refuses.
pub async fn run(request: RegistryRequest, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    match request {
        RegistryRequest::List(name, watch) => {
            let show = async |output: &mut Output<'_>| match &name {
                None => {
                    let page = client.get(&["registry", "repositories"], &[]).await?.body;
                    registry_content::show_repositories(&page, output)
                }
                Some(name) => {
                    let repository = registry_content::repository(name, client).await?;
                    registry_content::show_repository(&repository, output)
                }
            };
            watch.list(Source::Events(client), output, show).await
        }
        RegistryRequest::Delete { images, yes, expect } => {
            registry_content::delete(&images, yes, expect, client, output).await
        }
        RegistryRequest::Status => {
            let status = client.get(&["registry"], &[]).await?.body;
            show(&status, output)
        }
        RegistryRequest::ReadOnly(reason) => {
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
                Value::Null => output.line("the registry accepts pushes and deletes"),
                _ => output.line(format!("the registry is read-only: {}", text(&status, "/read_only"))),
            }
        }
        RegistryRequest::Gc { dry_run, grace, untagged } => {
            let mut query = vec![("dry_run", dry_run.to_string())];
            query.extend(grace.map(|seconds| ("grace", seconds.to_string())));
            query.extend(untagged.then(|| ("untagged", "true".to_owned())));
            let report = client.post_empty(&["registry", "gc"], &query).await?.body;
            if output.json {
                return output.document(&report);
            }
            if is_running(&report) {
                return output
                    .line("garbage collection is running; `shoal registry status` shows its result");
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
        RegistryRequest::Retain { dry_run } => {
            let query = [("dry_run", dry_run.to_string())];
            let report = client.post_empty(&["registry", "retention"], &query).await?.body;
            if output.json {
                return output.document(&report);
            }
            if is_running(&report) {
                return output.line("retention is running; `shoal registry status` shows its result");
            }
            let tags = report["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
            output.note(format!("{} {} tags", if dry_run { "would remove" } else { "removed" }, tags.len()));
            tags.iter().filter_map(Value::as_str).try_for_each(|tag| output.line(plain(tag)))
        }
        RegistryRequest::Uploads(watch) => {
            watch
                .list(Source::Pauses, output, async |output| {
                    let page = client.get(&["registry", "uploads"], &[]).await?.body;
                    show_uploads(&page, output)
                })
                .await
        }
        RegistryRequest::CancelUploads(ids) => {
            let cancelled = RefCell::new(Vec::new());
            let cancel = async |id: &str, output: &mut Output<'_>| {
                client.delete(&["registry", "uploads", id], HeaderMap::new()).await?;
                cancelled.borrow_mut().push(id.to_owned());
                match output.json {
                    true => Ok(()),
                    false => output.line(format!("the upload session {} is cancelled", plain(id))),
                }
            };
            let all = match ids.as_slice() {
                [id] => {
                    cancel(id, output).await?;
                    Ok(())
                }
                _ => many::each_of(("upload session", "upload sessions"), &ids, output, cancel).await,
            };
            if output.json {
                output.document(&json!({ "cancelled": cancelled.take() }))?;
            }
            all
        }
        RegistryRequest::Scrub => {
            let response = client.post_empty(&["registry", "scrub"], &[]).await?.body;
            if output.json {
                return output.document(&response);
            }
            output.line(match response["started"].as_bool() {
                Some(true) => "a scrub was started; `shoal registry status` shows its result",
                _ => "a scrub is already running; `shoal registry status` shows its result",
            })
        }
    }
}

fn show_uploads(page: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(page);
    }
    let uploads = page["uploads"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |upload: &Value| {
        let active = if upload["active"].as_bool() == Some(true) { "yes" } else { "no" };
        let mut row = ["/id", "/repository", "/uploader", "/received_bytes", "/written"]
            .map(|field| text(upload, field))
            .to_vec();
        row.push(active.to_owned());
        row
    };
    let rows: Vec<Vec<String>> = uploads.iter().map(row).collect();
    output.table(&["ID", "REPOSITORY", "UPLOADER", "BYTES", "LAST WRITE", "ACTIVE"], &rows)
}

fn is_running(report: &Value) -> bool {
    report["running"].as_bool() == Some(true)
}

fn show(status: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(status);
    }
    let part = |pointer: &str| text(status, pointer);
    let running = |pointer: &str| match status.pointer(pointer).and_then(Value::as_bool) {
        Some(true) => "running now".to_owned(),
        _ => String::new(),
    };
    let list = |pointer: &str| status.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    output.fields(&[
        ("read-only", part("/read_only")),
        ("accepts pushes", part("/accepts_pushes")),
        ("free bytes", part("/free_bytes")),
        ("repositories", part("/repositories")),
        ("pins", part("/pins")),
        ("uploads", join(&[part("/uploads/sessions"), part("/uploads/receiving")], " open, receiving ")),
        ("last collection", join(&[part("/gc/last/at"), running("/gc/running")], ", ")),
        ("removed bytes", part("/gc/last/bytes")),
        ("last retention", join(&[part("/retention/last/at"), running("/retention/running")], ", ")),
        ("last scrub", join(&[part("/scrub/last_verified"), running("/scrub/running")], ", ")),
    ])?;
    for digest in list("/scrub/quarantined").iter().filter_map(Value::as_str) {
        output.note(format!("{} is corrupted and was quarantined: push its image again", plain(digest)));
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
    output.table(&["QUOTA OF", "LIMIT", "USED", "IN PROGRESS"], &rows)
}
