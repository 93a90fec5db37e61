//! What a job was to install on what machine, from its first events; and how that differs from the last success.
//!
//! ```text
//!   job.created            the recipe without its payloads      ┐
//!   validate.done          the digest of the OS image           ├─► rows of name and value ──► the card "Recipe"
//!   redfish.discovered     the machine as the job found it      ┘            │
//!                                                                            └─ beside those of the last success
//! ```
//!
//! An older job may lack one of the events: retention removes events before jobs. What one of two jobs lacks is not compared.

use jiff::Timestamp;
use serde_json::Value;

use super::registry;
use super::server::observed_facts;
use crate::data::{EventJson, LastSuccess};
use crate::parts::Copy;
use crate::time::When;
use crate::words;

/// The types of events that the rows are read from.
pub const TYPES: &str = "job.created,validate.done,redfish.discovered";

/// A row: its name and its value.
type Row = (&'static str, String);

/// A value that differs from the one of the last success.
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    /// The value of the last success.
    pub(crate) before: String,
    pub(crate) now: String,
}

/// A failed job beside the last success of its server.
pub(crate) struct Comparison {
    pub(crate) path: String,
    pub(crate) at: When,
    pub(crate) differences: Vec<Difference>,
    /// The names of what is the same.
    pub(crate) same: String,
}

/// The recipe of a job, in rows; without one there are no rows.
pub(crate) fn recipe(begun: &[EventJson]) -> Vec<Row> {
    data_of(begun, "job.created").map(recipe_rows).unwrap_or_default()
}

/// The digest of the OS image, as the job found it behind its tag.
pub(crate) fn image_digest(begun: &[EventJson]) -> Option<Copy> {
    let digest = data_of(begun, "validate.done")?["os_image_digest"].as_str()?;
    Some(Copy { what: "digest of the OS image", text: digest.to_owned(), shown: registry::digest(digest) })
}

/// Compares a job with the last success.
pub(crate) fn compared(begun: &[EventJson], success: &LastSuccess, now: Timestamp) -> Option<Comparison> {
    let mut differences = Vec::new();
    let mut same = Vec::new();
    for (kind, rows_of) in SOURCES {
        let (Some(former), Some(data)) = (data_of(&success.begun, kind), data_of(begun, kind)) else {
            continue;
        };
        let (former, rows) = (rows_of(former), rows_of(data));
        let value = |rows: &[Row], name| {
            rows.iter().find(|row| row.0 == name).map_or("none", |row| row.1.as_str()).to_owned()
        };
        let gone = former.iter().filter(|row| rows.iter().all(|other| other.0 != row.0));
        for name in rows.iter().chain(gone).map(|row| row.0) {
            match (value(&former, name), value(&rows, name)) {
                (before, now) if before == now => same.push(name),
                (before, now) => differences.push(Difference { name, before, now }),
            }
        }
    }
    if differences.is_empty() && same.is_empty() {
        return None;
    }
    Some(Comparison {
        path: format!("/ui/jobs/{}", words::encoded(&success.job_id)),
        at: When::of(success.ended_at, now),
        differences,
        same: same.join(", "),
    })
}

/// The type of an event, and the rows in its data.
type Source = (&'static str, fn(&Value) -> Vec<Row>);

/// What is compared.
const SOURCES: [Source; 3] =
    [("redfish.discovered", observed_facts), ("job.created", recipe_rows), ("validate.done", digest_row)];

fn digest_row(validated: &Value) -> Vec<Row> {
    let digest = validated["os_image_digest"].as_str();
    digest.map(|digest| ("Image digest", registry::digest(digest))).into_iter().collect()
}

/// The data of the last event of a type: a step that was tried again has found the newest.
fn data_of<'a>(begun: &'a [EventJson], kind: &str) -> Option<&'a Value> {
    begun.iter().rev().find(|event| event.kind == kind).map(|event| &event.data)
}

fn recipe_rows(recipe: &Value) -> Vec<Row> {
    let text = |key: &str| recipe[key].as_str().map(words::cut);
    let count =
        |key: &str, one: &str, many: &str| recipe[key].as_u64().map(|count| words::count(count, one, many));
    let disk = text("target_disk").or_else(|| hints(&recipe["disk_hints"]));
    let storage = [
        count("partitions", "partition", "partitions"),
        count("more_disks", "more disk", "more disks"),
        count("arrays", "array", "arrays"),
        count("volume_groups", "volume group", "volume groups"),
    ];
    let storage: Vec<String> = storage.into_iter().flatten().collect();
    let files: Vec<String> = PAYLOADS
        .iter()
        .filter_map(|name| Some(format!("{name} ({})", words::bytes(recipe[*name]["bytes"].as_u64()?))))
        .collect();
    let joined = |parts: Vec<String>| (!parts.is_empty()).then(|| parts.join(", "));
    let rows = [
        ("Target", text("task_target")),
        ("Image", text("oci_url")),
        ("Firmware", text("firmware_url")),
        ("Disk", disk),
        ("Layout", joined(storage)),
        ("Files", joined(files)),
        ("Network", count("network_links", "link in the recipe", "links in the recipe")),
        ("Image travels", text("delivery").map(|delivery| format!("by {delivery}"))),
        ("Erase", text("erase_mode")),
        ("Afterwards", text("after")),
        ("SSH keys", count("ssh_keys", "key", "keys")),
        ("Session", count("session_minutes", "minute", "minutes")),
    ];
    rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The fields of a recipe whose content is in no event; their sizes are.
const PAYLOADS: [&str; 5] = ["user_data", "network_config", "vendor_data", "unattend_xml", "ks_cfg"];

/// The properties of a disk in the words of the recipe.
fn hints(hints: &Value) -> Option<String> {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let parts: Vec<String> =
        hints.as_object()?.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
    (!parts.is_empty()).then(|| words::cut(&parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: &str, data: Value) -> EventJson {
        let event = json!({
            "seq": 1, "time": "2026-11-20T08:00:00Z", "level": "info", "type": kind, "actor": "engine", "message": "", "data": data,
        });
        serde_json::from_value(event).unwrap()
    }

    fn begun(bios: &str, digest: &str) -> Vec<EventJson> {
        vec![
            event(
                "job.created",
                json!({
                    "task_target": "install-linux.target", "oci_url": "c.test/os/u:1", "disk_hints": { "serial": "S1", "min_size_gb": 100 },
                    "partitions": 2, "user_data": { "bytes": 2048 },
                }),
            ),
            event("validate.done", json!({ "os_image_digest": digest })),
            event("redfish.discovered", json!({ "bios_version": "1", "boot_mode": "UEFI" })),
            event("redfish.discovered", json!({ "bios_version": bios, "boot_mode": "UEFI" })),
        ]
    }

    #[test]
    fn a_recipe_is_shown_without_its_payloads() {
        let begun = begun("2.4.1", "sha256:4018a1");
        let rows = recipe(&begun);
        let value = |name: &str| rows.iter().find(|row| row.0 == name).map(|row| row.1.as_str());
        assert_eq!(value("Disk"), Some("min_size_gb 100, serial S1"));
        assert_eq!(value("Layout"), Some("2 partitions"));
        assert_eq!(value("Files"), Some("user_data (2.0 KiB)"));
        assert_eq!(value("Erase"), None);
        assert!(recipe(&[]).is_empty());
        assert_eq!(image_digest(&begun).unwrap().text, "sha256:4018a1");
    }

    #[test]
    fn a_failure_is_compared_with_the_last_success_in_what_both_know() {
        let now = "2026-11-23T08:00:00Z".parse().unwrap();
        let success = |begun| LastSuccess { job_id: "j1".to_owned(), ended_at: now, begun };
        let found =
            compared(&begun("2.4.1", "sha256:4018a1"), &success(begun("2.3.5", "sha256:e41b07")), now);
        let found = found.unwrap();
        let differences: Vec<_> =
            found.differences.iter().map(|row| (row.name, row.before.as_str(), row.now.as_str())).collect();
        assert_eq!(
            differences,
            [("BIOS", "2.3.5", "2.4.1"), ("Image digest", "sha256:e41b07…", "sha256:4018a1…")]
        );
        assert!(found.same.starts_with("Boot mode, Target, Image, Disk"), "{}", found.same);
        assert!(compared(&begun("2.4.1", "sha256:4018a1"), &success(Vec::new()), now).is_none());
        // What only one of the recipes sets is a difference; an event that only one of the jobs has is none.
        let off =
            vec![event("job.created", json!({ "task_target": "install-linux.target", "after": "off" }))];
        let found = compared(&off, &success(begun("1", "sha256:1")), now).unwrap();
        let names: Vec<_> = found.differences.iter().map(|row| (row.name, row.now.as_str())).collect();
        assert_eq!(
            names,
            [
                ("Afterwards", "off"),
                ("Image", "none"),
                ("Disk", "none"),
                ("Layout", "none"),
                ("Files", "none")
            ]
        );
    }
}
