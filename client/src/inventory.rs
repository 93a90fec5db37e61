//! The inventory of a machine, as cards with tables: as the machine reported it, and as its BMC shows it ([`super::hardware`]).
//!
//! The maintenance OS of any maker may report an inventory, so every member is optional and a type that is not expected is left out.

use serde_json::Value;

use super::connection::Client;
use super::error::CliError;
use super::hardware::{self, rows, size};
use super::output::{Output, join, text};

/// Shows the inventory of a server.
pub(super) async fn show(serial: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let response = client.get(&["servers", serial, "inventory"], &[]).await?.body;
    if output.json {
        return output.document(&response);
    }
    let found = |name: &str| response.get(name).filter(|found| found.is_object());
    match (found("inventory"), found("out_of_band")) {
        (None, None) => output.line(
            "no inventory: no maintenance OS of this server has reported one (run inventory.target), and its BMC was not \
             read (shoal server inventory SERIAL --refresh)",
        ),
        (reported, read) => {
            if let Some(reported) = reported {
                show_reported(&response, reported, output)?;
            }
            if let Some(read) = read {
                if reported.is_some() {
                    output.line("")?;
                }
                hardware::show(&text(&response, "/out_of_band_read_at"), read, output)?;
            }
            Ok(())
        }
    }
}

/// Shows what the maintenance OS reported.
fn show_reported(response: &Value, inventory: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let of = |pointer: &str| text(inventory, pointer);
    output.fields(&[
        ("source", "the machine itself (maintenance OS)".to_owned()),
        ("reported", text(response, "/received_at")),
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
                text(disk, "/firmware"),
                text(disk, "/by_path"),
            ]
        })
        .collect();
    if !disks.is_empty() {
        output.line("")?;
        output.table(&["DISK", "SIZE", "KIND", "MODEL", "SERIAL", "FIRMWARE", "PATH"], &disks)?;
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
