//! Running other people's programs.
//!
//! ```text
//! run(program, arguments) -> what it printed | Err when it failed or sounded unhappy        missing program: panic
//! ```
//!
//! Language and time zone are fixed, so that the output means the same on every machine.

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Words that no program says about a good image.
const COMPLAINTS: [&str; 8] = ["warning", "error", "sorry", "failure", "fatal", "invalid", "corrupt", "bad "];

/// A command with a fixed language and time zone.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env_remove("SOURCE_DATE_EPOCH");
    command
}

/// Runs a program to its end; panics when it is not there, because a check that did not run proves nothing.
pub(crate) fn output<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Output {
    command(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"))
}

/// What a program printed, if it ended well and complained about nothing.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<Vec<u8>, String> {
    let output = output(program, arguments);
    let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
    match (output.status.success(), COMPLAINTS.iter().find(|word| said.contains(**word))) {
        (true, None) => Ok(output.stdout),
        _ => Err(format!("{program}: {}: {}", output.status, said.trim())),
    }
}
