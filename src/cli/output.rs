//! Output: data on standard output, all other text on standard error; with `--json` unchanged JSON.
//!
//! Text from other sources (a BMC's name, a log message, a file name in an image) passes [`plain`]: control characters could
//! move the cursor or change the title of the terminal.

use std::io::{self, Write};

use serde_json::Value;

use super::error::CliError;

/// The output streams of a command.
pub(super) struct Output<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
    /// JSON instead of tables and sentences.
    pub(super) json: bool,
}

impl Output<'_> {
    /// Writes one line of data.
    pub(super) fn line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        writeln!(self.out, "{}", text.as_ref())?;
        Ok(self.out.flush()?)
    }

    /// Writes an indented JSON document.
    pub(super) fn document(&mut self, value: &Value) -> Result<(), CliError> {
        self.line(format!("{value:#}"))
    }

    /// Writes a JSON document in one line.
    pub(super) fn row(&mut self, value: &Value) -> Result<(), CliError> {
        self.line(value.to_string())
    }

    /// Writes a message that is not data to standard error. A closed standard error is no failure of the command.
    pub(super) fn note(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.err, "{}", text.as_ref());
    }

    /// Writes a table with columns as wide as their longest cell.
    pub(super) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> Result<(), CliError> {
        let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for line in &lines {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            self.line(cells.join("  ").trim_end())?;
        }
        Ok(())
    }

    /// Writes labels with their values; empty values are left out.
    pub(super) fn fields(&mut self, fields: &[(&str, String)]) -> Result<(), CliError> {
        let fields: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
        let width = fields.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        for (label, value) in fields {
            self.line(format!("{label:<width$}  {value}"))?;
        }
        Ok(())
    }
}

/// Whether the error is a closed output pipe, as after `shoal job list | head`.
pub(super) fn is_broken_pipe(error: &CliError) -> bool {
    matches!(error, CliError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
}

/// Replaces control characters of a text.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|character| if unsafe_to_print(character) { '\u{fffd}' } else { character }).collect()
}

/// Control characters and characters that change the text direction.
fn unsafe_to_print(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The value at a JSON Pointer as text; empty for null and absent values.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => plain(text),
        Some(Value::Object(map)) if map.is_empty() => String::new(),
        Some(Value::Array(list)) if list.is_empty() => String::new(),
        Some(other) => plain(&other.to_string()),
    }
}

/// Joins the texts that are not empty.
pub(super) fn join(parts: &[String], between: &str) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join(between)
}
