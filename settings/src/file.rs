//! The configuration file: one flat TOML table of `key = value`.
//!
//! ```text
//! # /etc/shoal/shoal.toml
//! storage_root = "/srv/shoal"         text as in the environment variable
//! worker_concurrency = 8              whole numbers and booleans need no quotes
//! metrics_anonymous = true
//! ```
//!
//! Invariant: no problem repeats a line of the file, because the file may contain secrets.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::{Origin, Problem};

/// The maximum size of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// One `key = value` of the file.
pub(super) struct FileValue {
    pub(super) key: String,
    pub(super) origin: Origin,
    /// The value as text, or the name of its TOML type when it is not a scalar of a setting.
    pub(super) text: Result<String, &'static str>,
}

/// Reads the file. The valid lines of a malformed file are returned too, so that all problems are reported together.
pub(super) fn read(path: &Path) -> (Vec<FileValue>, Vec<Problem>) {
    let text = match content(path) {
        Ok(text) => text,
        Err(reason) => return (Vec::new(), vec![Problem::File { path: path.to_owned(), reason }]),
    };
    parse(&text, path)
}

/// Reads the text of the file.
pub(super) fn parse(text: &str, path: &Path) -> (Vec<FileValue>, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let problems = errors
        .iter()
        .map(|error| Problem::Syntax {
            path: path.to_owned(),
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            reason: error.message().to_owned(),
        })
        .collect();
    let mut values: Vec<FileValue> = table
        .get_ref()
        .iter()
        .map(|(key, value)| {
            let line = line_of(text, key.span().start);
            let key = key.get_ref().to_string();
            let origin = Origin::File { path: path.to_owned(), line, key: key.clone() };
            FileValue { key, origin, text: scalar(value.get_ref()) }
        })
        .collect();
    values.sort_by_key(|value| match value.origin {
        Origin::File { line, .. } => line,
        _ => 0,
    });
    (values, problems)
}

fn content(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    // Checked before the open, because opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it is longer than {MAX_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

fn scalar(value: &DeValue<'_>) -> Result<String, &'static str> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(on) => Ok(on.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Integer(_) => Err("a number in another base than ten"),
        DeValue::Float(_) => Err("a number with a fraction"),
        DeValue::Datetime(_) => Err("a date"),
        DeValue::Array(_) => Err("a list"),
        DeValue::Table(_) => Err("a table"),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
