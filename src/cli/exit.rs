//! Exit codes, so that scripts need not read sentences.
//!
//! ```text
//! 0   done; for watched jobs: every one succeeded     5   401 or 403: no or wrong credentials, or not allowed
//! 1   failed, also: the recipe is invalid             6   nobody answers, or a proxy answers for nobody (502-504)
//! 2   wrong arguments                                 64  the configuration has problems
//! 3   404: no such server, job or file
//! 4   409 or 412: in conflict with what is there
//! ```

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Unauthorised = 5,
    Unreachable = 6,
    Configuration = 64,
}

impl Exit {
    /// What an HTTP status that is no success means.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            404 => Self::NotFound,
            409 | 412 => Self::Conflict,
            401 | 403 => Self::Unauthorised,
            502..=504 => Self::Unreachable,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Shown under `shoal --help`.
pub(super) const HELP: &str = "\
Exit codes:
  0   done; a watched job succeeded
  1   failed; a watched job did not succeed; the recipe is invalid
  2   wrong arguments
  3   no such server, job or file
  4   in conflict with what is there
  5   no or wrong credentials, or not allowed
  6   the controller cannot be reached
  64  the configuration has problems";
