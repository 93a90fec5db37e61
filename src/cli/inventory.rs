//! What a machine reported that it is made of, as a card with a table of disks and one of network interfaces.
//!
//! The maintenance OS of any maker may report an inventory, so every member is optional and a type that is not expected is left out.

use serde_json::Value;

use super::client::Client;
use super::error::CliError;
use super::output::{Output, join, text};

/// Shows the inventory of a server.
pub(super) async fn show(serial: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let response = client.get(&["servers", serial, "inventory"], &[]).await?.body;
    if output.json {
        return output.document(&response);
    }
    let Some(inventory) = response.get("inventory").filter(|inventory| inventory.is_object()) else {
        return output
            .line("no inventory: no maintenance OS of this server has reported one; run inventory.target");
    };
    let of = |pointer: &str| text(inventory, pointer);
    output.fields(&[
        ("reported", text(&response, "/received_at")),
        ("product", join(&[of("/manufacturer"), of("/product")], " ")),
        ("firmware", join(&[of("/boot_mode"), of("/firmware_version"), of("/firmware_date")], " ")),
        ("tpm", of("/tpm")),
        ("processors", join(&[of("/cpus"), of("/cpu_model")], " x ")),
        ("memory", size(inventory.get("memory_bytes"))),
    ])?;
    let disks: Vec<Vec<String>> = rows(inventory, "disks")
        .map(|disk| {
            let kind = match disk.get("rotational").and_then(Value::as_bool) {
                Some(true) => "rotating",
                Some(false) => "solid state",
                None => "",
            };
            vec![
                text(disk, "/name"),
                size(disk.get("bytes")),
                kind.to_owned(),
                text(disk, "/model"),
                text(disk, "/serial"),
                text(disk, "/by_path"),
            ]
        })
        .collect();
    if !disks.is_empty() {
        output.line("")?;
        output.table(&["DISK", "SIZE", "KIND", "MODEL", "SERIAL", "PATH"], &disks)?;
    }
    let interfaces: Vec<Vec<String>> = rows(inventory, "nics")
        .map(|nic| {
            let link = match nic.get("link").and_then(Value::as_bool) {
                Some(true) => "up",
                Some(false) => "down",
                None => "not known",
            };
            let speed = nic.get("speed").and_then(Value::as_u64).map(|speed| format!("{speed} Mbit/s"));
            vec![
                text(nic, "/name"),
                text(nic, "/mac"),
                link.to_owned(),
                speed.unwrap_or_default(),
                text(nic, "/driver"),
            ]
        })
        .collect();
    if !interfaces.is_empty() {
        output.line("")?;
        output.table(&["INTERFACE", "MAC", "LINK", "SPEED", "DRIVER"], &interfaces)?;
    }
    Ok(())
}

/// The objects of a list; none if it is no list.
fn rows<'a>(inventory: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    inventory.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// A number of bytes in GiB; empty if it is no number.
fn size(bytes: Option<&Value>) -> String {
    bytes
        .and_then(Value::as_u64)
        .map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)))
        .unwrap_or_default()
}
