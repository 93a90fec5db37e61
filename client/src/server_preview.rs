//! `shoal server update --dry-run`: what a change of a server would change.
//!
//! Invariants: the controller checks the request as it would the change, so a refusal here is a refusal there; nothing is stored
//! and nothing is sent to a BMC; a password is named and never shown.

use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use super::connection::Client;
use super::error::CliError;
use super::output::{Output, text};

/// Members of a server that differ after every change.
const ALWAYS: [&str; 2] = ["updated_at", "revision"];
/// The member of a request that no response has.
const PASSWORD: &str = "bmc_password";

/// The preview of a change of one server: `{"dry_run", "serial", "revision", "changes": [{"field", "now", "then"}]}`.
pub(super) async fn preview(
    serial: &str,
    patch: &Map<String, Value>,
    headers: HeaderMap,
    client: &Client,
) -> Result<Value, CliError> {
    let now = client.get(&["servers", serial], &[]).await?.body;
    let query = [("dry_run", "true".to_owned())];
    let then = client.patch_query(&["servers", serial], &query, patch, headers).await?.body;
    let mut changes = differences(&now, &then);
    if patch.contains_key(PASSWORD) {
        changes.push(json!({ "field": PASSWORD, "now": "(stored)", "then": "(given)" }));
    }
    Ok(json!({ "dry_run": true, "serial": now["serial"], "revision": now["revision"], "changes": changes }))
}

/// Shows a preview.
pub(super) fn show(preview: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let serial = text(preview, "/serial");
    let row = |change: &Value| ["/field", "/now", "/then"].map(|part| text(change, part)).to_vec();
    let rows: Vec<Vec<String>> = preview["changes"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return output.line(format!("server {serial}: nothing would change"));
    }
    output.line(format!("server {serial}, revision {}, would change:", text(preview, "/revision")))?;
    output.table(&["FIELD", "NOW", "THEN"], &rows)
}

/// The members that differ. Of labels and flags each one is a row.
fn differences(now: &Value, then: &Value) -> Vec<Value> {
    let mut changes = Vec::new();
    for (name, after) in then.as_object().into_iter().flatten() {
        let before = &now[name.as_str()];
        if before == after || ALWAYS.contains(&name.as_str()) {
            continue;
        }
        match (before, after) {
            (Value::Object(old), Value::Object(new)) => {
                let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
                let changed = keys.filter(|key| old.get(*key) != new.get(*key));
                changes.extend(changed.map(|key| {
                    json!({ "field": format!("{name}.{key}"), "now": old.get(key), "then": new.get(key) })
                }));
            }
            _ => changes.push(json!({ "field": name, "now": before, "then": after })),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_and_each_label_alone() {
        let now = json!({ "serial": "A", "vendor": null, "labels": { "a": "1", "b": "2" }, "revision": 1, "updated_at": "x" });
        let then = json!({ "serial": "A", "vendor": "v", "labels": { "a": "1", "c": "3" }, "revision": 1, "updated_at": "y" });
        assert_eq!(
            differences(&now, &then),
            [
                json!({ "field": "labels.b", "now": "2", "then": null }),
                json!({ "field": "labels.c", "now": null, "then": "3" }),
                json!({ "field": "vendor", "now": null, "then": "v" }),
            ]
        );
        assert!(differences(&now, &now).is_empty());
    }
}
