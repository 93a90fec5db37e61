//! `shoal agent`: runs the agent of the maintenance OS on this machine, for trying a task image or under an own maintenance system.
//!
//! The agent is a program of its own, so that boot media stay small. This command finds it and becomes it: the process, its
//! signals and its exit code are those of the agent.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use client::error::CliError;
use client::output::plain;

/// Arguments of `shoal agent`.
#[derive(Args, Debug)]
pub(super) struct AgentArgs {
    /// The program of the agent [default: shoal-agent beside this program, or in ../lib/shoal]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The arguments of the agent, after `--`; `shoal agent -- --help` shows them
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl AgentArgs {
    /// Becomes the agent. It returns only when that fails.
    pub(super) fn run(self) -> Result<(), CliError> {
        let program = agent_or_default(self.program, "--program")?;
        let failed = become_program(&program, &self.arguments);
        Err(CliError::failed(plain(&format!("cannot start {}: {failed}", program.display()))))
    }
}

/// The file of the agent that was named, or the one that belongs to this program. `option` is what names another one.
pub(super) fn agent_or_default(named: Option<PathBuf>, option: &str) -> Result<PathBuf, CliError> {
    named.or_else(maintenance::agent_of_this_program).ok_or_else(|| {
        CliError::failed(plain(&format!(
            "no agent belongs to this program: the packages of Shoal have it in ../lib/shoal, and `cargo static-agent` builds it; name it with {option}"
        )))
    })
}

#[cfg(unix)]
fn become_program(program: &std::path::Path, arguments: &[OsString]) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    std::process::Command::new(program).args(arguments).exec()
}

#[cfg(not(unix))]
fn become_program(_program: &std::path::Path, _arguments: &[OsString]) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, "the agent runs on Linux")
}
