//! Pages that are tables: a head, and sections with rows of cells.

use askama::Template;

use super::frame::Frame;
use crate::parts::{Badge, Copy, Meter};
use crate::time::When;

/// A page of tables.
#[derive(Template)]
#[template(path = "table.html")]
pub struct TableView {
    pub(crate) f: Frame,
    pub(crate) title: String,
    pub(crate) sub: String,
    pub(crate) crumb: Option<(&'static str, &'static str)>,
    pub(crate) acts: Vec<(String, &'static str)>,
    pub(crate) sections: Vec<Section>,
    pub(crate) search: bool,
}

/// One table with its heading.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) note: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) empty: &'static str,
    pub(crate) more: Option<(String, &'static str)>,
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
    /// A state.
    State(Badge),
    /// A time.
    Time(When),
    /// A text that can be copied.
    Copy(Copy),
    /// A bar with its words.
    Bar(Meter, String),
    /// A link to a question.
    Ask(String, String, String),
}

impl Cell {
    /// A time, or a word where there is none.
    pub(crate) fn time_or(time: Option<When>, none: &str) -> Self {
        time.map_or_else(|| Self::Text(none.to_owned()), Self::Time)
    }
}
