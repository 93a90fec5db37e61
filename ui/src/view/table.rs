//! Pages that are tables: a head, and sections with rows of cells.

use askama::Template;

use super::frame::Frame;
use super::section::Section;

/// A page of tables.
#[derive(Template)]
#[template(path = "table.html")]
pub struct TableView {
    pub(crate) f: Frame,
    pub(crate) title: String,
    pub(crate) sub: String,
    pub(crate) crumb: Option<(String, String)>,
    pub(crate) acts: Vec<(String, &'static str)>,
    pub(crate) sections: Vec<Section>,
    pub(crate) search: bool,
    pub(crate) filters: Vec<FilterField>,
    pub(crate) refused: Option<String>,
}

/// A filter of the rows, as a field of the form above them. The form leads to the path of the page.
pub(crate) struct FilterField {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: String,
    pub(crate) example: &'static str,
}

impl TableView {
    pub(crate) fn new(f: Frame, title: &str, sub: &str, sections: Vec<Section>) -> Self {
        let (title, sub) = (title.to_owned(), sub.to_owned());
        Self {
            f,
            title,
            sub,
            crumb: None,
            acts: Vec::new(),
            sections,
            search: false,
            filters: Vec::new(),
            refused: None,
        }
    }

    /// Sets the page above this one, to which the breadcrumb leads.
    pub(crate) fn below(mut self, path: &str, name: &str) -> Self {
        self.crumb = Some((path.to_owned(), name.to_owned()));
        self
    }

    /// Sets the links of the head.
    pub(crate) fn acts(mut self, acts: Vec<(String, &'static str)>) -> Self {
        self.acts = acts;
        self
    }
}
