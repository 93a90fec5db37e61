//! The disk that an attempt wrote: a retry names it in `job.json`, and the maintenance OS writes to no other one.
//!
//! ```text
//!   report with disk.written = true --signal "disk"--> the job --retry--> JobOrder.disk_before --> job.json
//!                                                                            (from attempt to attempt until one writes)
//! ```
//!
//! A second run of the same job, after a power loss, has the same `job.json`: its report of another disk is refused before it writes.
//!
//! Invariant: a disk counts as written only if the machine said so. A system that does not say it is retried as before.

use serde_json::{Map, Value, json};

use media::FormerDisk;
use model::Snapshot;

/// The signal that records the disk before the first write to it. No wait ends by it.
pub(super) const WRITTEN: &str = "disk";
/// Reported serial numbers are cut to this number of characters.
const MAX_TEXT: usize = 128;

/// Returns the part of a reported disk that identifies it, if the machine has begun to write to it.
pub(super) fn written(disk: &Map<String, Value>) -> Option<Value> {
    if disk.get("written") != Some(&Value::Bool(true)) {
        return None;
    }
    let text = |key: &str| {
        let text = disk.get(key).and_then(Value::as_str).unwrap_or_default();
        let text: String = text.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
        (!text.is_empty()).then_some(text)
    };
    Some(json!({ "disk": { "serial": text("serial"), "wwn": text("wwn") } }))
}

/// Returns what identifies the disk that the job has written, if `reported`, of [`written`], is not known to be the same. The rule is
/// that of the maintenance OS for a retry: both have a WWN: it decides; else both have a serial number: it decides.
pub(super) fn other_than_written(snapshot: &Snapshot, reported: &Value) -> Option<String> {
    let disk = |value: &Value| serde_json::from_value::<FormerDisk>(value.get("disk")?.clone()).ok();
    let signal = snapshot.signals.iter().find(|signal| signal.name == WRITTEN)?;
    let (first, now) = (disk(&signal.payload)?, disk(reported)?);
    let kinds = [("WWN", first.wwn, now.wwn), ("serial number", first.serial, now.serial)];
    let both = kinds.iter().find_map(|(_, first, now)| Some((first.as_ref()?, now.as_ref()?)));
    if both.is_some_and(|(first, now)| first.eq_ignore_ascii_case(now)) {
        return None;
    }
    // A disk without any identity, as of some virtual machines, cannot be compared.
    kinds.into_iter().find_map(|(kind, first, _)| Some(format!("{kind} {}", first?)))
}

/// Returns the disk that an attempt wrote, by its signals, of which `last` is the one of its final report; `before` is the disk of the
/// attempts before it.
pub(super) fn of_attempt(snapshot: &Snapshot, last: &str, before: Option<FormerDisk>) -> Option<FormerDisk> {
    let named = |name: &str| snapshot.signals.iter().find(|signal| signal.name == name);
    let said = [WRITTEN, last].into_iter().find_map(|name| {
        serde_json::from_value::<FormerDisk>(named(name)?.payload.get("disk")?.clone()).ok()
    });
    match said {
        // A disk without any identity, as of some virtual machines, cannot be compared.
        Some(disk) => (disk != FormerDisk { serial: None, wwn: None }).then_some(disk),
        None => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_counts_as_written_only_if_the_machine_says_so_and_is_known_by_serial_number_and_wwn() {
        let disk = |value: Value| written(value.as_object().unwrap());
        let named = json!({ "name": "sda", "serial": " S1\u{7} ", "wwn": "" });
        assert_eq!(disk(named.clone()), None);
        let mut began = named;
        began["written"] = json!(false);
        assert_eq!(disk(began.clone()), None);
        began["written"] = json!(true);
        assert_eq!(disk(began), Some(json!({ "disk": { "serial": "S1", "wwn": null } })));
        let long = disk(json!({ "written": true, "wwn": "x".repeat(900) })).unwrap();
        assert_eq!(long["disk"]["wwn"].as_str().unwrap().len(), MAX_TEXT);
    }
}
