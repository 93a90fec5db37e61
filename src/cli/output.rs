//! Output: data on standard output, everything else on standard error, JSON as it is when it is asked for.
//!
//! Text that comes from elsewhere (a BMC's name, a log message, a file name in an image) goes through [`plain`]: it
//! could otherwise move the cursor or retitle the terminal of whoever reads it.

use std::io::{self, Write};

use serde_json::Value;

use super::error::CliError;

/// Where a command writes.
pub(super) struct Output<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
    /// Raw JSON instead of tables and sentences.
    pub(super) json: bool,
}

impl Output<'_> {
    /// One line of data.
    pub(super) fn line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        writeln!(self.out, "{}", text.as_ref())?;
        Ok(self.out.flush()?)
    }

    /// A JSON document for people's eyes and for machines.
    pub(super) fn document(&mut self, value: &Value) -> Result<(), CliError> {
        self.line(format!("{value:#}"))
    }

    /// A JSON document in one line of many.
    pub(super) fn row(&mut self, value: &Value) -> Result<(), CliError> {
        self.line(value.to_string())
    }

    /// Something to know that is not data. A standard error nobody reads is no reason to fail.
    pub(super) fn note(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.err, "{}", text.as_ref());
    }

    /// Columns as wide as their longest cell.
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

    /// Labels with their values; what has no value is left out.
    pub(super) fn fields(&mut self, fields: &[(&str, String)]) -> Result<(), CliError> {
        let fields: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
        let width = fields.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        for (label, value) in fields {
            self.line(format!("{label:<width$}  {value}"))?;
        }
        Ok(())
    }
}

/// Whether an output error only says that the reader has seen enough (`shoal job list | head`).
pub(super) fn reader_left(error: &CliError) -> bool {
    matches!(error, CliError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
}

/// A text without control characters.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|character| if unsafe_to_print(character) { '\u{fffd}' } else { character }).collect()
}

/// Control characters, and those that turn the direction of the text around.
fn unsafe_to_print(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The value at a JSON Pointer as text for people: nothing for null and what is not there.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => plain(text),
        Some(Value::Object(map)) if map.is_empty() => String::new(),
        Some(Value::Array(list)) if list.is_empty() => String::new(),
        Some(other) => plain(&other.to_string()),
    }
}

/// Texts joined, without the empty ones.
pub(super) fn join(parts: &[String], between: &str) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join(between)
}
