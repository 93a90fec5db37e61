//! The commands of the laboratory for the command line of the program.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use tokio::runtime::Builder;

use crate::{ControlArgs, DemoArgs, SelftestArgs, SimArgs, bench, control, demo, selftest, sim, vm};

/// Commands that run simulated servers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install simulated servers on this machine and show every step
    Demo(Box<DemoArgs>),
    /// Run simulated servers
    Sim(Box<SimArgs>),
    /// Set faults of running simulated servers, and read their journals
    SimBmc(ControlArgs),
    /// Carry one connection over standard input and output; QEMU starts it
    #[command(hide = true)]
    VmConnect {
        /// The address to connect to.
        address: SocketAddr,
    },
    /// Simulate data centres with faults on virtual time, and verify that no job is lost or done twice
    Selftest(SelftestArgs),
}

impl Command {
    /// Runs the command. The exit code is 0 if the result is as expected, otherwise 1. The reason of a failure is printed on
    /// standard error.
    pub fn run(self, json: bool) -> ExitCode {
        let result = match self {
            Self::Demo(args) => {
                run_multi_threaded(Box::pin(async move { Box::pin(demo::run(&args, json)).await }))
            }
            Self::Sim(args) => {
                run_multi_threaded(Box::pin(async move { sim::run(*args, json).await.map(|()| true) }))
            }
            Self::SimBmc(args) => {
                run_multi_threaded(Box::pin(async move { control::run(&args, json).await.map(|()| true) }))
            }
            Self::VmConnect { address } => vm::connect(address).map(|()| true),
            Self::Selftest(args) => match args.bench_options() {
                Some(options) => {
                    run_multi_threaded(Box::pin(
                        async move { bench::run(options, json).await.map(|()| true) },
                    ))
                }
                None => selftest::run(&args, json),
            },
        };
        match result {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) if output_closed(&error) => ExitCode::SUCCESS,
            Err(error) => {
                let _closed = writeln!(io::stderr(), "error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Runs a command on all processors.
fn run_multi_threaded(work: Pin<Box<dyn Future<Output = anyhow::Result<bool>>>>) -> anyhow::Result<bool> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the asynchronous runtime; check the limit of threads")?.block_on(work)
}

/// Whether the error is a closed standard output (`shoal selftest --trace | head`).
fn output_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
