//! A page with one form: what it asks for, what would happen, and what was wrong.
//!
//! Most changes are such a page: a question with fields first, then the change. A page that previews shows its tables below the
//! form, and keeps what was entered. A password is never shown again.

use askama::Template;

use super::ask::AskEffect;
use super::frame::Frame;
use super::section::Section;
use crate::data::ErrorDetail;
use crate::state::State;

/// A page with one form.
#[derive(Template)]
#[template(path = "form.html")]
pub struct FormView {
    f: Frame,
    title: String,
    intro: String,
    crumb: Option<(String, String)>,
    notes: Vec<(State, String)>,
    refused: Vec<ErrorDetail>,
    effects: Vec<AskEffect>,
    action: String,
    hidden: Vec<(&'static str, String)>,
    fields: Vec<Field>,
    preview: Option<&'static str>,
    yes: Option<String>,
    risk: bool,
    upload: bool,
    no: &'static str,
    back: String,
    links: Vec<(String, &'static str)>,
    sections: Vec<Section>,
}

/// A field of a form.
pub struct Field {
    name: &'static str,
    label: &'static str,
    value: String,
    hint: &'static str,
    kind: Kind,
    required: bool,
}

enum Kind {
    /// A field of one line.
    Text,
    /// A password that exists; the browser may fill it in.
    Password,
    /// A password that is set; the browser may offer one.
    NewPassword,
    /// A whole number from one to another.
    Number(i64, i64),
    /// A field of several lines; the number is that of its rows.
    Area(u8),
    /// A file.
    File(&'static str),
    /// A field with one of several values; each has its words.
    Choice(Vec<(String, String)>),
    /// A switch: yes or no.
    Switch,
}

impl Field {
    fn new(name: &'static str, label: &'static str, value: &str, kind: Kind) -> Self {
        Self { name, label, value: value.to_owned(), hint: "", kind, required: false }
    }

    /// A field of one line.
    pub fn text(name: &'static str, label: &'static str, value: &str) -> Self {
        Self::new(name, label, value, Kind::Text)
    }

    /// A password that exists.
    pub fn password(name: &'static str, label: &'static str) -> Self {
        Self::new(name, label, "", Kind::Password)
    }

    /// A password that is set.
    pub fn new_password(name: &'static str, label: &'static str) -> Self {
        Self::new(name, label, "", Kind::NewPassword)
    }

    /// A field for a whole number from `least` to `most`.
    pub fn number(name: &'static str, label: &'static str, value: &str, (least, most): (i64, i64)) -> Self {
        Self::new(name, label, value, Kind::Number(least, most))
    }

    /// A field of several lines; `rows` is their number.
    pub fn area(name: &'static str, label: &'static str, value: &str, rows: u8) -> Self {
        Self::new(name, label, value, Kind::Area(rows))
    }

    /// A file of these kinds.
    pub fn file(name: &'static str, label: &'static str, kinds: &'static str) -> Self {
        Self::new(name, label, "", Kind::File(kinds))
    }

    /// A field with one of several values.
    pub fn choice(
        name: &'static str,
        label: &'static str,
        value: &str,
        choices: Vec<(String, String)>,
    ) -> Self {
        Self::new(name, label, value, Kind::Choice(choices))
    }

    /// A switch: yes or no.
    pub fn switch(name: &'static str, label: &'static str, on: bool) -> Self {
        Self::new(name, label, if on { "yes" } else { "" }, Kind::Switch)
    }

    /// Adds a sentence below the field.
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// Makes the field required: a browser does not send the form without it.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

impl FormView {
    /// A form that is sent to `action`. `back` is where the way back leads.
    pub fn new(
        f: Frame,
        title: impl Into<String>,
        action: impl Into<String>,
        back: impl Into<String>,
    ) -> Self {
        Self {
            f,
            title: title.into(),
            intro: String::new(),
            crumb: None,
            notes: Vec::new(),
            refused: Vec::new(),
            effects: Vec::new(),
            action: action.into(),
            hidden: Vec::new(),
            fields: Vec::new(),
            preview: None,
            yes: None,
            risk: false,
            upload: false,
            no: "Not now",
            back: back.into(),
            links: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Sets the facts before the form, in one sentence.
    pub fn intro(mut self, intro: impl Into<String>) -> Self {
        self.intro = intro.into();
        self
    }

    /// Sets the page above this one, to which the breadcrumb leads.
    pub fn below(mut self, path: impl Into<String>, name: impl Into<String>) -> Self {
        self.crumb = Some((path.into(), name.into()));
        self
    }

    /// Adds a note above the form.
    pub fn note(mut self, state: State, text: impl Into<String>) -> Self {
        self.notes.push((state, crate::words::cut(&text.into())));
        self
    }

    /// Sets the problems of the form that was sent.
    pub fn refused(mut self, refused: Vec<ErrorDetail>) -> Self {
        self.refused = refused;
        self
    }

    /// One thing that would happen.
    pub fn effect(mut self, state: State, text: impl Into<String>) -> Self {
        self.effects.push(AskEffect { state, text: text.into() });
        self
    }

    /// A field that is not shown.
    pub fn hidden(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.hidden.push((name, value.into()));
        self
    }

    /// Adds a field to the form.
    pub fn field(mut self, field: Field) -> Self {
        self.upload |= matches!(field.kind, Kind::File(_));
        self.fields.push(field);
        self
    }

    /// A button that shows what would happen: `do=preview`.
    pub fn previews(mut self, label: &'static str) -> Self {
        self.preview = Some(label);
        self
    }

    /// Adds the button that makes the change: `do=yes`. A form without it only previews.
    pub fn yes(mut self, label: impl Into<String>) -> Self {
        self.yes = Some(label.into());
        self
    }

    /// The change destroys something.
    pub fn risky(mut self) -> Self {
        self.risk = true;
        self
    }

    /// Adds a link below the form, to another question about the same thing.
    pub fn link(mut self, path: impl Into<String>, label: &'static str) -> Self {
        self.links.push((path.into(), label));
        self
    }

    /// Adds a table below the form.
    pub(crate) fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    fn is_wrong(&self, field: &Field) -> bool {
        let is_of =
            |detail: &ErrorDetail| detail.path.trim_start_matches('/').split('/').next() == Some(field.name);
        self.refused.iter().any(is_of)
    }
}
