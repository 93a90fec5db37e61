//! The out-of-band inventory of a machine, as a card with one table for each kind of part.

use serde_json::Value;

use super::error::CliError;
use super::output::{Output, join, text};

/// Shows an out-of-band inventory.
pub(super) fn show(read_at: &str, hardware: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let of = |pointer: &str| text(hardware, pointer);
    let memory: u64 =
        rows(hardware, "memory").filter_map(|module| module.get("capacity_mib")?.as_u64()).sum();
    let memory = if memory == 0 { String::new() } else { format!("{} GiB", memory / 1024) };
    let incomplete: Vec<String> =
        hardware["incomplete"].as_array().into_iter().flatten().map(|why| text(why, "")).collect();
    output.fields(&[
        ("source", "the BMC (out of band)".to_owned()),
        ("read", read_at.to_owned()),
        ("product", join(&[of("/system/manufacturer"), of("/system/model")], " ")),
        ("serial", of("/system/serial")),
        ("asset tag", of("/system/asset_tag")),
        ("bios", of("/system/bios_version")),
        ("memory", memory),
        ("not read", join(&incomplete, "; ")),
    ])?;
    for (list, head, columns) in TABLES {
        let cell = |entry: &Value, column: &str| match column {
            "/capacity_bytes" => size(entry.get("capacity_bytes")),
            other => text(entry, other),
        };
        let table: Vec<Vec<String>> = rows(hardware, list)
            .map(|entry| columns.iter().map(|column| cell(entry, column)).collect())
            .collect();
        if !table.is_empty() {
            output.line("")?;
            output.table(head, &table)?;
        }
    }
    Ok(())
}

/// A list of the inventory, the heads of its table, and the members of an entry.
type Table = (&'static str, &'static [&'static str], &'static [&'static str]);

const TABLES: [Table; 6] = [
    (
        "processors",
        &["PROCESSOR", "KIND", "MODEL", "CORES", "THREADS", "HEALTH"],
        &["/id", "/kind", "/model", "/cores", "/threads", "/health"],
    ),
    (
        "memory",
        &["MEMORY", "MIB", "MHZ", "PART", "SERIAL", "HEALTH"],
        &["/id", "/capacity_mib", "/speed_mhz", "/part_number", "/serial", "/health"],
    ),
    (
        "drives",
        &["DRIVE", "SIZE", "KIND", "MODEL", "SERIAL", "FIRMWARE", "HEALTH"],
        &["/id", "/capacity_bytes", "/media", "/model", "/serial", "/firmware", "/health"],
    ),
    (
        "nics",
        &["INTERFACE", "MAC", "LINK", "MBIT/S", "HEALTH"],
        &["/id", "/mac", "/link", "/speed_mbps", "/health"],
    ),
    (
        "power_supplies",
        &["POWER SUPPLY", "WATTS", "MODEL", "SERIAL", "STATE", "HEALTH"],
        &["/id", "/capacity_watts", "/model", "/serial", "/state", "/health"],
    ),
    ("firmware", &["FIRMWARE", "NAME", "VERSION"], &["/id", "/name", "/version"]),
];

/// The objects of a list; none if it is no list.
pub(super) fn rows<'a>(inventory: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    inventory.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// A number of bytes in GiB; empty if it is no number.
pub(super) fn size(bytes: Option<&Value>) -> String {
    bytes
        .and_then(Value::as_u64)
        .map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)))
        .unwrap_or_default()
}
