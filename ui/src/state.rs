//! The states of a job on a page, each with a colour, an icon and a word.

use crate::parts::Badge;

/// The state of a job, as an operator sorts jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// The job failed.
    Failed,
    /// The job waits for a decision of an operator.
    Held,
    /// The job waits for a thing that happens by itself.
    Waiting,
    /// A worker executes a step, or is about to.
    Working,
    /// The job has not begun.
    Queued,
    /// The job succeeded.
    Done,
    /// An operator cancelled the job.
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
