//! Runs other programs.
//!
//! ```text
//! run(program, arguments) -> output | Err after a failure or a complaint        missing program: panic
//! ```
//!
//! Language and time zone are fixed, so the output has one form on every machine.

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Words that no program prints about a good image.
const COMPLAINTS: [&str; 8] = ["warning", "error", "sorry", "failure", "fatal", "invalid", "corrupt", "bad "];

/// Returns a command with a fixed language and time zone.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env_remove("SOURCE_DATE_EPOCH");
    command
}

/// Runs a program to its end. Panics when it is missing, because a check that did not run proves nothing.
pub(crate) fn output<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Output {
    command(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"))
}

/// Returns the output of a program, if it succeeds without complaint.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<Vec<u8>, String> {
    let output = output(program, arguments);
    let printed = String::from_utf8_lossy(&output.stderr).to_lowercase();
    match (output.status.success(), COMPLAINTS.iter().find(|word| printed.contains(**word))) {
        (true, None) => Ok(output.stdout),
        _ => Err(format!("{program}: {}: {}", output.status, printed.trim())),
    }
}
