//! The plans of conditions as tables: of an installation of firmware, and of settings of the BIOS.

use serde_json::Value;

use super::error::CliError;
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
