//! The asynchronous runtime of a command that is a client of one controller.

use std::io;

use tokio::runtime::{Builder, Runtime};

use super::error::CliError;

/// A runtime with one thread: a command is one conversation.
///
/// # Errors
/// When the system refuses the runtime.
pub fn current_thread() -> Result<Runtime, CliError> {
    Builder::new_current_thread().enable_all().build().map_err(|error| no_runtime(&error))
}

/// The error of a runtime that cannot start.
pub fn no_runtime(error: &io::Error) -> CliError {
    CliError::failed(format!(
        "cannot start the asynchronous runtime: {error}; check the limits of threads and memory"
    ))
}
