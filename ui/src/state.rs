//! The six states of a job on a page, each with its colour, its icon and its word.

use crate::parts::Badge;

/// What a job does, as an operator sorts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// It failed.
    Failed,
    /// It waits for a decision of an operator.
    Held,
    /// It waits for a thing that happens by itself.
    Waiting,
    /// A worker executes a step, or is about to.
    Working,
    /// It has not begun.
    Queued,
    /// It succeeded.
    Done,
    /// An operator cancelled it.
    Cancelled,
}

impl State {
    /// The class of the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Working => "working",
            Self::Queued | Self::Cancelled => "queued",
            Self::Done => "done",
        }
    }

    /// The icon of the sprite.
    pub fn icon(self) -> &'static str {
        match self {
            Self::Cancelled => "skip",
            other => other.class(),
        }
    }

    /// The state in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Held => "Held",
            Self::Waiting => "Waiting",
            Self::Working => "Working",
            Self::Queued => "Queued",
            Self::Done => "Done",
            Self::Cancelled => "Cancelled",
        }
    }

    /// The state with its icon.
    pub fn badge(self) -> Badge {
        self.badge_saying(self.word())
    }

    /// The state with its icon and another word.
    pub fn badge_saying(self, word: &str) -> Badge {
        Badge { class: self.class(), icon: self.icon(), word: word.to_owned() }
    }
}
