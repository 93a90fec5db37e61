//! A question before a change: what would happen, and the form that does it.

use askama::Template;

use super::frame::Frame;
use crate::state::State;

/// One thing that would happen.
pub struct AskEffect {
    /// The state whose colour and icon the effect has.
    pub state: State,
    /// The effect in words.
    pub text: String,
}

/// A question before a change.
#[derive(Template)]
#[template(path = "ask.html")]
pub struct Ask {
    /// The frame of the page.
    pub f: Frame,
    /// The question.
    pub question: String,
    /// The facts before the question, in one sentence.
    pub intro: String,
    /// The effects of the change.
    pub effects: Vec<AskEffect>,
    /// The path to which the form is sent.
    pub action: String,
    /// The key under which a repetition does nothing; empty where none is needed.
    pub key: String,
    /// The revision to which the question is bound; empty when the confirmation is for any revision.
    pub revision: String,
    /// Whether a reason is asked for.
    pub reason: bool,
    /// The label of the button that confirms the change.
    pub yes: String,
    /// The label of the way back.
    pub no: &'static str,
    /// The path of the way back.
    pub back: String,
    /// Whether the change destroys something.
    pub risk: bool,
}
