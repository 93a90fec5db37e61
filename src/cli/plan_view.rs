//! The plan of an installation of firmware as a table.

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
