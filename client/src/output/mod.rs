//! Output: data on standard output, all other text on standard error.
//!
//! ```text
//!   a list or a thing ── -o text, wide ──> table, fields: fitted to the screen, ages, colour
//!                     └─ -o json, yaml, name ──> document: as the controller sent it
//! ```
//!
//! Text from other sources (a BMC's name, a log message, a file name in an image) passes [`plain`]: control characters could
//! move the cursor or change the title of the terminal.

mod age;
mod format;
mod paint;
mod piece;
mod plain;
mod screen;
mod table;

use std::io::{self, Write};

use serde_json::{Value, json};

use super::error::CliError;
use table::TableStyle;

pub use age::{Since, Times};
pub(crate) use age::{age, between, coarse, duration, remaining, time_of};
pub use format::{Format, yaml};
#[cfg(test)]
pub(crate) use paint::bare;
pub(crate) use paint::{bold, faint, state};
pub(crate) use piece::{Piece, RecordedRow};
pub(crate) use plain::{Cut, shorten, width, wrap};
pub use plain::{counted, items, join, labels, plain, text};
use plain::{escaped, plain_lines};
pub use screen::Screen;
pub use table::Column;

/// The output streams of a command.
pub struct Output<'a> {
    /// Standard output: data.
    pub out: &'a mut dyn Write,
    /// Standard error: all other text.
    pub err: &'a mut dyn Write,
    /// A document (`-o json`, `yaml` or `name`) instead of tables and sentences.
    pub json: bool,
    /// The form of the output.
    pub format: Format,
    /// The properties of standard output: width, colour, rewriting.
    pub screen: Screen,
    /// The form in which times are shown.
    pub times: Times,
    /// If set, the output is recorded here instead of written, to be shown again or compared.
    pub(crate) record: Option<Vec<Piece>>,
}

impl<'a> Output<'a> {
    /// Output in a form, as into a pipe.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, format: Format) -> Self {
        Self {
            out,
            err,
            json: format.is_document(),
            format,
            screen: Screen::PIPE,
            times: Times::AGES,
            record: None,
        }
    }

    /// Output for a screen.
    pub fn on(mut self, screen: Screen, times: Times) -> Self {
        self.screen = screen;
        self.times = times;
        self
    }
}

impl Output<'_> {
    /// Writes one line of data.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        if let Some(record) = &mut self.record {
            record.push(Piece::Line(text.as_ref().to_owned()));
            return Ok(());
        }
        writeln!(self.out, "{}", text.as_ref())?;
        Ok(self.out.flush()?)
    }

    /// Writes a document: indented JSON, YAML, or the names of what is in it.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn document(&mut self, value: &Value) -> Result<(), CliError> {
        if let Some(record) = &mut self.record {
            record.push(Piece::Document(value.clone()));
            return Ok(());
        }
        match self.format {
            Format::Yaml => self.line(escaped(&format::yaml(value))),
            Format::Name => {
                format::names(value).iter().try_for_each(|name| self.line(name))?;
                // Names alone do not show that the list goes on. The cursor of a list is a text.
                if value["next"].is_string() {
                    self.note("there are more; give a larger --limit");
                }
                Ok(())
            }
            _ => self.line(escaped(&format!("{value:#}"))),
        }
    }

    /// Writes a document whose rows are the list `rows`. Its names are theirs, whatever else the document has.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn list_document(&mut self, value: &Value, rows: &str) -> Result<(), CliError> {
        match self.format {
            Format::Name => self.document(&json!({ rows: value[rows], "next": value["next"] })),
            _ => self.document(value),
        }
    }

    /// Writes a document of a stream: JSON in one line, a YAML document, or its name.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn row(&mut self, value: &Value) -> Result<(), CliError> {
        match self.format {
            Format::Yaml => self.line(escaped(&format!("---\n{}", format::yaml(value)))),
            Format::Name => self.document(value),
            _ => self.line(escaped(&value.to_string())),
        }
    }

    /// Writes a message that is not data to standard error, without control characters: it may hold the text of a controller. A closed
    /// standard error is no failure of the command.
    pub fn note(&mut self, text: impl AsRef<str>) {
        let text = plain_lines(text.as_ref());
        match &mut self.record {
            Some(record) => record.push(Piece::Note(text)),
            None => drop(writeln!(self.err, "{text}")),
        }
    }

    /// Writes an error as a message in JSON.
    pub fn error(&mut self, error: &Value) {
        self.note(escaped(&error.to_string()));
    }

    /// Writes a table whose first columns are the most important ones.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> Result<(), CliError> {
        let columns: Vec<Column<'_>> =
            head.iter().enumerate().map(|(rank, head)| Column::new(head, rank)).collect();
        self.columns(&columns, rows)
    }

    /// Writes a table. A cell that is a timestamp is shown as an age.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn columns(&mut self, columns: &[Column<'_>], rows: &[Vec<String>]) -> Result<(), CliError> {
        if let Some(record) = &mut self.record {
            record.push(Piece::table(columns, rows));
            return Ok(());
        }
        let style = TableStyle { screen: self.screen, times: self.times, wide: self.format == Format::Wide };
        table::lines(columns, rows, style).iter().try_for_each(|line| self.line(line))
    }

    /// Writes labels with their values; empty values are left out. On a terminal a long value continues below its beginning.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn fields(&mut self, fields: &[(&str, String)]) -> Result<(), CliError> {
        if let Some(record) = &mut self.record {
            let fields = fields.iter().map(|(label, value)| ((*label).to_owned(), value.clone()));
            record.push(Piece::Fields(fields.collect()));
            return Ok(());
        }
        let fields: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
        let label_width = fields.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        let room = self.screen.width.map(|width| width.saturating_sub(label_width + 2).max(20));
        for (label, value) in fields {
            let value = time_of(value).map_or_else(|| value.clone(), |time| self.times.field(time));
            let lines = room.map_or_else(|| vec![value.clone()], |room| wrap(&value, room));
            for (place, line) in lines.iter().enumerate() {
                let shown = if place == 0 { *label } else { "" };
                let label = format!("{shown:<label_width$}");
                let label = if self.screen.colour { faint(&label) } else { label };
                let line = if self.screen.colour { state(line) } else { line.clone() };
                self.line(format!("{label}  {line}"))?;
            }
        }
        Ok(())
    }

    /// Shows a recorded piece.
    pub(crate) fn replay(&mut self, piece: &Piece) -> Result<(), CliError> {
        match piece {
            Piece::Line(line) => self.line(line),
            Piece::Table { columns, rows } => {
                let columns: Vec<Column<'_>> = columns.iter().map(|column| column.borrowed()).collect();
                self.columns(&columns, rows)
            }
            Piece::Fields(fields) => {
                let fields: Vec<(&str, String)> =
                    fields.iter().map(|(label, value)| (label.as_str(), value.clone())).collect();
                self.fields(&fields)
            }
            Piece::Document(document) => self.document(document),
            Piece::Note(note) => self.message(note),
        }
    }

    /// Writes a message where it stands in a drawing, on as many lines as it needs there.
    fn message(&mut self, text: &str) -> Result<(), CliError> {
        let Some(room) = self.screen.width else { return self.line(text) };
        for line in text.lines().flat_map(|line| wrap(line, room)) {
            let line = shorten(&line, room, Cut::End, self.screen.ellipsis);
            self.line(line)?;
        }
        Ok(())
    }

    /// An id as a table shows it: whole with `-o wide`, otherwise its short form if there is one.
    pub(crate) fn id(&self, thing: &Value, short: &str, whole: &str) -> String {
        let short = if self.format == Format::Wide { String::new() } else { text(thing, short) };
        if short.is_empty() { text(thing, whole) } else { short }
    }
}

/// Whether the error is a closed output pipe, as after `shoal job list | head`.
pub fn is_broken_pipe(error: &CliError) -> bool {
    matches!(error, CliError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether the time at a place of a document is not before another. A document without a time passes.
pub(crate) fn is_since(document: &Value, pointer: &str, from: jiff::Timestamp) -> bool {
    time_of(&text(document, pointer)).is_none_or(|time| time >= from)
}

#[cfg(test)]
mod tests;
