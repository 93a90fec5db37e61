//! Previews: the plans of conditions as tables (an installation of firmware, settings of the BIOS), and whether the request would be accepted.

use serde_json::Value;

use super::error::CliError;
use super::exit::Exit;
use super::output::{Output, text};

/// Shows what happens to each component.
pub(super) fn show_plan(preview: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if preview["plan"].is_null() {
        output.note(text(preview, "/plan_missing"));
        return Ok(());
    }
    let columns = ["/component", "/id", "/now", "/then", "/decision", "/restart", "/size", "/reason"];
    let rows: Vec<Vec<String>> = preview["plan"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| columns.map(|pointer| text(item, pointer)).to_vec())
        .collect();
    output.table(&["COMPONENT", "FIRMWARE", "NOW", "THEN", "DECISION", "RESTART", "BYTES", "WHY"], &rows)
}

/// Shows what happens to each setting of the BIOS.
pub(super) fn show_settings(preview: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let rows = preview["settings"].as_array().into_iter().flatten().map(|item| {
        ["/name", "/now", "/then", "/decision", "/reason"].map(|pointer| text(item, pointer)).to_vec()
    });
    output.table(&["SETTING", "NOW", "THEN", "DECISION", "WHY"], &rows.collect::<Vec<_>>())
}

/// Fails as the request itself would if a preview says that the controller would refuse it. The reason is at `why`.
pub(super) fn would_be_accepted(preview: &Value, why: &str) -> Result<(), CliError> {
    match preview["would"].as_str() {
        Some("refuse") => {
            let message = format!("would be refused: {}", text(preview, why));
            Err(CliError::Local { message, exit: Exit::Conflict })
        }
        _ => Ok(()),
    }
}
