//! A firmware set: created from files, and shown as a card with a table.

use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use super::super::connection::Client;
use super::super::error::CliError;
use super::super::output::{Output, text};
use super::{HEAD, list_of, row};

/// Creates a set of files by the digests of their manifests.
pub(super) async fn create(
    name: &str,
    digests: &[String],
    labels: &[(String, String)],
    client: &Client,
) -> Result<Value, CliError> {
    let labels: Map<String, Value> = labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let body = json!({ "name": name, "labels": labels, "files": digests });
    Ok(client.post(&["firmware-sets"], &body, HeaderMap::new()).await?.body)
}

/// Shows a set.
pub(super) fn show(set: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(set);
    }
    let part = |pointer: &str| text(set, pointer);
    output.fields(&[
        ("set", part("/name")),
        ("id", part("/id")),
        ("labels", part("/labels")),
        ("created", part("/created_at")),
        ("by", part("/created_by")),
    ])?;
    let rows: Vec<Vec<String>> = list_of(set, "files").iter().map(row).collect();
    output.table(&HEAD, &rows)
}
