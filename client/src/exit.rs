//! Exit codes for scripts.
//!
//! ```text
//! 0   done; all watched jobs succeeded                5   401 or 403: no or wrong credentials, or no permission
//! 1   failed, also: the recipe is invalid             6   no response, or a proxy without a controller (502-504)
//! 2   wrong arguments                                 7   servers differ from their firmware sets, or may
//! 3   404: the server, job or file does not exist     64  the configuration has problems
//! 4   409 or 412: conflict with the present state
//! ```

use std::process::ExitCode;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// The command failed, or a watched job did not succeed.
    Failed = 1,
    /// The arguments are wrong.
    Usage = 2,
    /// The server, job or file does not exist.
    NotFound = 3,
    /// A conflict with the present state.
    Conflict = 4,
    /// The credentials are missing or wrong, or lack the permission.
    Unauthorised = 5,
    /// No controller responded.
    Unreachable = 6,
    /// A server differs from its firmware set, or may.
    Differs = 7,
    /// The configuration has problems.
    Configuration = 64,
}

impl Exit {
    /// The exit code of an HTTP error status.
    pub fn of_status(status: u16) -> Self {
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

/// The exit codes as `shoal --help` shows them.
pub const HELP: &str = "\
Exit codes:
  0   done; a watched job succeeded
  1   failed; a watched job did not succeed; rows were refused; a plan or a dry run would fail; the
      recipe is invalid
  2   wrong arguments
  3   the server, job or file does not exist
  4   conflict with the present state, such as an active job, also of what a dry run would send, or a number that --expect did not expect
  5   no or wrong credentials, or no permission
  6   the controller cannot be reached
  7   a server differs from its firmware set, or it is not known whether it does
  64  the configuration has problems";
