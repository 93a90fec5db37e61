//! A table with its heading: the part of which most pages are made.

use askama::Template;
use askama::filters::HtmlSafe;

use crate::parts::{Badge, Copy, Meter};
use crate::time::When;
use crate::words;

/// One table with its heading. Its HTML is used in templates as it is; its texts are escaped.
#[derive(Template)]
#[template(path = "section.html")]
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) empty: &'static str,
    pub(crate) more: Option<(String, &'static str)>,
    /// Whether the links of the rows are hits of a search.
    pub(crate) hits: bool,
}

impl HtmlSafe for Section {}

impl Section {
    /// A table; without rows it shows the text of [`Section::or`].
    pub(crate) fn new(
        id: &'static str,
        title: impl Into<String>,
        columns: &[&'static str],
        rows: Vec<Vec<Cell>>,
    ) -> Self {
        let (title, columns) = (title.into(), columns.to_vec());
        Self { id, title, note: String::new(), columns, rows, empty: "", more: None, hits: false }
    }

    /// Sets the note beside the heading.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Sets the text that stands in place of rows when there are none.
    pub(crate) fn or(mut self, empty: &'static str) -> Self {
        self.empty = empty;
        self
    }

    /// The word before a cell on a phone, where a row has no columns: of times, except under "When", and of values before and after
    /// a change.
    fn label(&self, cell: &Cell, index: &usize) -> Option<String> {
        let column = self.columns.get(*index).filter(|column| !column.is_empty() && **column != "When")?;
        let compared = ["Now", "Then"].contains(column);
        (compared || matches!(cell, Cell::Time(_))).then(|| column.to_lowercase())
    }

    /// The link to further rows.
    pub(crate) fn more(mut self, more: Option<(String, &'static str)>) -> Self {
        self.more = more;
        self
    }
}

/// A cell of a table.
pub(crate) enum Cell {
    /// A text.
    Text(String),
    /// A text in the font of programs.
    Code(String),
    /// A text with a smaller line below it.
    Two(String, String),
    /// A link.
    Link(String, String),
    /// A link with a smaller line below it.
    Named(String, String, String),
    /// A state.
    State(Badge),
    /// A state with a smaller line below it.
    Said(Badge, String),
    /// A time.
    Time(When),
    /// A text that can be copied.
    Copy(Copy),
    /// A bar with its words.
    Bar(Meter, String),
    /// Links to questions: path, name, and what a screen reader says.
    Acts(Vec<(String, &'static str, String)>),
}

impl Cell {
    /// A time, or a word where there is none.
    pub(crate) fn time_or(time: Option<When>, none: &str) -> Self {
        time.map_or_else(|| Self::Text(none.to_owned()), Self::Time)
    }

    /// A text of a machine or a person, cut to its maximum.
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(words::cut(text))
    }
}
