//! `shoal maintenance inspect`.

use std::path::Path;

use super::failed;
use client::error::CliError;
use client::output::{Output, plain};

/// Shows the record of an image.
pub(super) fn run(image: &Path, output: &mut Output<'_>) -> Result<(), CliError> {
    let record = maintenance::inspect(image).map_err(failed)?;
    if output.json {
        let value = serde_json::to_value(&record).map_err(|error| CliError::failed(error.to_string()))?;
        return output.document(&value);
    }
    let initramfs = &record.initramfs;
    let firmware: Vec<&str> = record.firmware.iter().map(String::as_str).collect();
    let date = i64::try_from(record.epoch).ok().and_then(|epoch| jiff::Timestamp::from_second(epoch).ok());
    output.fields(&[
        ("profile", plain(&record.profile)),
        ("kernel", plain(&record.kernel)),
        ("date", date.map(|date| date.to_string()).unwrap_or_default()),
        ("command line", plain(&record.command_line)),
        ("agent", plain(&format!("{} bytes, sha256:{}", record.agent.bytes, record.agent.sha256))),
        (
            "initramfs",
            plain(&format!(
                "{} bytes, {} packed with {}",
                initramfs.bytes, initramfs.packed_bytes, initramfs.packing
            )),
        ),
        ("drivers", plain(&format!("{}: {}", record.modules.len(), record.modules.join(" ")))),
        ("not in kernel", plain(&record.drivers_missing.join(" "))),
        ("firmware", plain(&firmware.join(" "))),
        ("programs", plain(&record.programs.join(" "))),
        (
            "not included",
            plain(
                &record
                    .programs_missing
                    .iter()
                    .map(|program| format!("{} ({})", program.path, program.package))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        ),
    ])?;
    output.line("")?;
    let rows: Vec<Vec<String>> = record
        .files
        .iter()
        .map(|file| vec![plain(&file.path), file.bytes.to_string(), plain(&file.sha256)])
        .collect();
    output.table(&["FILE", "BYTES", "SHA-256"], &rows)?;
    output.line("")?;
    let rows: Vec<Vec<String>> = record
        .packages
        .iter()
        .map(|package| {
            let licences = if package.licences.is_empty() {
                "see its copyright file".to_owned()
            } else {
                package.licences.join(", ")
            };
            [&package.name, &package.version, &package.source, &licences].map(|text| plain(text)).into()
        })
        .collect();
    output.table(&["PACKAGE", "VERSION", "SOURCE", "LICENCES"], &rows)?;
    if !record.firmware_missing.is_empty() {
        output.line("")?;
        let rows: Vec<Vec<String>> = record
            .firmware_missing
            .iter()
            .map(|missing| [&missing.file, &missing.module, &missing.without].map(|text| plain(text)).into())
            .collect();
        output.table(&["MISSING FIRMWARE", "DRIVER", "WITHOUT IT"], &rows)?;
    }
    Ok(())
}
