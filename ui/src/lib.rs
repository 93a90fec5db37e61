//! The pages of the web interface.
//!
//! ```text
//!   JSON of the API --serde--> data --view--> page --template--> HTML
//! ```
//!
//! Invariants: this crate reads no database and no network; every text of a page is escaped unless its type is made here
//! ([`parts`]); no page has inline script or inline style, so that a strict content security policy holds; what a page shows
//! comes from the JSON of the API, so that page and API cannot differ.

pub mod assets;
pub mod data;
mod parts;
mod state;
pub mod time;
pub mod view;
mod words;

pub use state::State;
pub use words::INSTALLATION;

use parts::{Icon, Prose};

/// The icon of that name, for templates.
pub(crate) fn i(name: &'static str) -> Icon {
    Icon { name }
}

/// A sentence of the API or of a machine, for templates.
pub(crate) fn prose(text: &str) -> Prose<'_> {
    Prose::of(text, false)
}

/// A sentence whose jobs are links, for templates: not within a link.
pub(crate) fn linked(text: &str) -> Prose<'_> {
    Prose::of(text, true)
}
