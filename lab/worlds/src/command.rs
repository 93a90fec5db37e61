//! The laboratory's commands, as the program's command line takes them.

use std::io::{self, Write};
use std::pin::Pin;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use tokio::runtime::Builder;

use crate::{DemoArgs, SelftestArgs, SimArgs, bench, demo, selftest, sim};

/// Commands that run simulated servers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the whole thing working on this machine, with simulated servers
    Demo(DemoArgs),
    /// Run simulated servers
    Sim(SimArgs),
    /// Run simulated data centres on virtual time, with faults, and verify that no job is lost or done twice
    Selftest(SelftestArgs),
}

impl Command {
    /// Runs the command to its end. The exit code is 0 when everything went as expected, otherwise 1; the reason of a
    /// failure is on standard error.
    pub fn run(self, json: bool) -> ExitCode {
        let done = match self {
            Self::Demo(args) => on_threads(Box::pin(async move { demo::run(&args, json).await })),
            Self::Sim(args) => on_threads(Box::pin(async move { sim::run(args, json).await.map(|()| true) })),
            Self::Selftest(args) => match args.measures() {
                Some(options) => {
                    on_threads(Box::pin(async move { bench::run(options, json).await.map(|()| true) }))
                }
                None => selftest::run(&args, json),
            },
        };
        match done {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) if reader_left(&error) => ExitCode::SUCCESS,
            Err(error) => {
                let _closed = writeln!(io::stderr(), "error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Runs a command on all processors.
fn on_threads(work: Pin<Box<dyn Future<Output = anyhow::Result<bool>>>>) -> anyhow::Result<bool> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the asynchronous runtime; are there too many threads?")?.block_on(work)
}

/// Whether an error only says that the reader of standard output has seen enough (`shoal selftest --trace | head`).
fn reader_left(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
