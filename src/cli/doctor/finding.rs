//! The result of one check.

use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Nothing to do.
    Pass,
    /// A controller works, but not well or not for long.
    Warn,
    /// A controller does not start, or jobs fail.
    Fail,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check with what was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    /// The name of the check.
    pub(super) check: &'static str,
    pub(super) state: State,
    /// The result of the check, as one sentence.
    pub(super) what: String,
    /// Why the check matters.
    pub(super) why: &'static str,
    /// The next step; empty when there is none.
    pub(super) what_to_do: String,
}

impl Finding {
    /// A check whose result is open.
    pub(super) fn new(check: &'static str, why: &'static str) -> Self {
        Self { check, state: State::Pass, what: String::new(), why, what_to_do: String::new() }
    }

    pub(super) fn passed(self, what: impl Into<String>) -> Self {
        Self { what: what.into(), ..self }
    }

    pub(super) fn warned(self, what: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { state: State::Warn, what: what.into(), what_to_do: what_to_do.into(), ..self }
    }

    pub(super) fn failed(self, what: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { state: State::Fail, what: what.into(), what_to_do: what_to_do.into(), ..self }
    }
}
