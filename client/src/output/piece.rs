//! Recorded output: what a command shows, before it is fitted to a screen.

use serde_json::Value;

use super::format;
use super::table::Column;

/// A piece of output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// A line of text.
    Line(String),
    /// A table.
    Table {
        /// The columns of the table.
        columns: Vec<OwnedColumn>,
        /// The rows of the table.
        rows: Vec<Vec<String>>,
    },
    /// Labels with their values.
    Fields(Vec<(String, String)>),
    /// A document.
    Document(Value),
    /// A message that is not data.
    Note(String),
}

/// A column with a head of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnedColumn {
    head: String,
    rank: usize,
    wide: bool,
}

impl OwnedColumn {
    pub(super) fn borrowed(&self) -> Column<'_> {
        Column { head: &self.head, rank: self.rank, wide: self.wide }
    }
}

impl Piece {
    pub(super) fn table(columns: &[Column<'_>], rows: &[Vec<String>]) -> Self {
        let owned = |column: &Column<'_>| OwnedColumn {
            head: column.head.to_owned(),
            rank: column.rank,
            wide: column.wide,
        };
        Self::Table { columns: columns.iter().map(owned).collect(), rows: rows.to_vec() }
    }

    /// The piece in parts that change on their own: the head and the rows of a table, the rows of a document.
    pub(crate) fn rows(&self) -> Vec<RecordedRow> {
        match self {
            Self::Table { columns, rows } => {
                let heads = columns.iter().map(|column| column.head.clone()).collect();
                std::iter::once(heads).chain(rows.iter().cloned()).map(RecordedRow::Cells).collect()
            }
            Self::Document(document) => match format::rows(document) {
                Some(rows) => rows.iter().cloned().map(RecordedRow::Document).collect(),
                None => vec![RecordedRow::Document(document.clone())],
            },
            Self::Note(note) => vec![RecordedRow::Note(note.clone())],
            Self::Line(line) => vec![RecordedRow::Cells(vec![line.clone()])],
            Self::Fields(fields) => fields
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(label, value)| RecordedRow::Cells(vec![label.clone(), value.clone()]))
                .collect(),
        }
    }
}

/// A part of a piece that changes on its own.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum RecordedRow {
    /// Cells of a table.
    Cells(Vec<String>),
    /// A row of a document.
    Document(Value),
    /// A message that is not data.
    Note(String),
}
