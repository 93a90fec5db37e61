//! A question before a change: what would happen, and the form that does it.

use askama::Template;

use super::frame::Frame;
use crate::state::State;

/// One thing that would happen.
pub struct AskEffect {
    /// Its colour and icon.
    pub state: State,
    /// What would happen.
    pub text: String,
}

/// A question before a change.
#[derive(Template)]
#[template(path = "ask.html")]
pub struct Ask {
    /// What is around the page.
    pub f: Frame,
    /// The question.
    pub question: String,
    /// What is known, in one sentence.
    pub intro: String,
    /// What would happen.
    pub effects: Vec<AskEffect>,
    /// Where the form is sent.
    pub action: String,
    /// The key under which a repetition does nothing; empty where none is needed.
    pub key: String,
    /// The revision to which the question is bound; empty when the answer is for any.
    pub revision: String,
    /// Whether a reason is asked for.
    pub reason: bool,
    /// The label of the button that does it.
    pub yes: String,
    /// The label of the way back.
    pub no: &'static str,
    /// The way back.
    pub back: String,
    /// Whether the change destroys something.
    pub risk: bool,
}
