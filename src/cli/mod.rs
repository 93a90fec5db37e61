//! The command line: one file per command.
//!
//! ```text
//! selftest                      simulated worlds, each in one thread
//! serve, demo, sim              run something here, on a multi-threaded runtime
//! server, job, batch, webhook,
//! controller                    ask a running controller over HTTP; they never open its database
//! bmc …                         ask a running controller, or a BMC straight from here
//! recipe, config, iso           local
//! registry …                    local, refused while a controller runs
//! ```
//!
//! Invariants: data goes to standard output, everything else to standard error; `--json` is what the controller said,
//! unchanged; nothing asks questions; the exit code is one of the list in `shoal --help`. What a controller or a file
//! says is stripped of control characters before a terminal sees it.
//!
//! DESIGN section 10.

mod batch;
mod bmc;
mod client;
mod config;
mod controller;
mod error;
mod exit;
mod input;
mod iso;
mod job;
mod output;
mod recipe;
mod registry;
mod registry_online;
mod serve;
mod server;
mod settings_args;
mod timeline;
mod watch;
mod webhook;

use std::io;
use std::pin::Pin;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use client::{Client, ConnectionArgs};
use error::CliError;
use output::{Output, reader_left};
use settings_args::SettingsArgs;

/// Installs servers through their BMCs: recipe in, installed machine out.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, after_help = exit::HELP, arg_required_else_help = true)]
struct Cli {
    /// Print JSON instead of text for people
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller
    Serve(Box<SettingsArgs>),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab_worlds::Command),
    /// Register servers and look at them
    Server {
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: Box<server::Command>,
    },
    /// Create jobs and follow them
    Job {
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: Box<job::Command>,
    },
    /// Create many jobs in one call and follow them
    Batch {
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: Box<batch::Command>,
    },
    /// Manage outgoing webhooks
    Webhook {
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: Box<webhook::Command>,
    },
    /// Look at a BMC before the first job
    Bmc {
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: Box<bmc::Command>,
    },
    /// Keep jobs from beginning, and let them begin again
    Controller {
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: controller::Command,
    },
    /// Work on the images of a data directory, or ask the controller that runs on it
    Registry {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: registry::Command,
    },
    /// Check recipes without a controller
    #[command(subcommand)]
    Recipe(recipe::Command),
    /// Look at the settings
    #[command(subcommand)]
    Config(config::Command),
    /// Look into ISO images
    #[command(subcommand)]
    Iso(iso::Command),
}

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version end with 0, everything else with 2. A closed terminal is no reason for more.
            let _ = error.print();
            return if error.use_stderr() { exit::Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    // Not locked: what serves others logs from many threads.
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut output = Output { out: &mut out, err: &mut err, json: cli.json };
    match dispatch(cli.command, &mut output) {
        Ok(code) => code,
        Err(error) => report(&error, &mut output),
    }
}

fn dispatch(command: Command, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
    let json = output.json;
    match command {
        Command::Serve(settings) => return on_threads(Box::pin(serve::run(settings.load()?))),
        #[cfg(feature = "lab")]
        Command::Lab(command) => return Ok(command.run(json)),
        Command::Server { connection, command } => {
            let client = Client::new(&connection)?;
            asking()?.block_on(Box::pin(server::run(*command, &client, output)))
        }
        Command::Job { connection, command } => {
            let client = Client::new(&connection)?;
            asking()?.block_on(Box::pin(job::run(*command, &client, output)))
        }
        Command::Batch { connection, command } => {
            let client = Client::new(&connection)?;
            asking()?.block_on(Box::pin(batch::run(*command, &client, output)))
        }
        Command::Webhook { connection, command } => {
            let client = Client::new(&connection)?;
            asking()?.block_on(Box::pin(webhook::run(*command, &client, output)))
        }
        Command::Bmc { connection, command } => {
            return asking()?.block_on(Box::pin(bmc::run(*command, &connection, output)));
        }
        Command::Controller { connection, command } => {
            let client = Client::new(&connection)?;
            asking()?.block_on(Box::pin(controller::run(command, &client, output)))
        }
        Command::Registry { settings, connection, command } => match command.online() {
            Some(ask) => {
                let client = Client::new(&connection)?;
                asking()?.block_on(Box::pin(registry_online::run(ask, &client, output)))
            }
            None => {
                let settings = settings.load()?;
                asking()?.block_on(Box::pin(registry::run(command, settings, output)))
            }
        },
        Command::Recipe(command) => recipe::run(command, output),
        Command::Config(command) => config::run(command, output),
        Command::Iso(command) => iso::run(command, output),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Says why a command failed and what to do next.
fn report(error: &CliError, output: &mut Output<'_>) -> ExitCode {
    if reader_left(error) {
        return ExitCode::SUCCESS;
    }
    if output.json {
        output.note(error.json().to_string());
    } else {
        output.note(format!("shoal: {error}"));
        if let Some(hint) = error.hint() {
            output.note(format!("hint: {hint}"));
        }
    }
    error.exit().into()
}

/// The runtime of a command that asks one controller: one thread is enough.
fn asking() -> Result<Runtime, CliError> {
    Builder::new_current_thread().enable_all().build().map_err(|error| no_runtime(&error))
}

/// Runs what serves others, on all processors.
fn on_threads(work: Pin<Box<dyn Future<Output = ExitCode>>>) -> Result<ExitCode, CliError> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(|error| no_runtime(&error))?;
    Ok(runtime.block_on(work))
}

fn no_runtime(error: &io::Error) -> CliError {
    CliError::failed(format!("cannot start the asynchronous runtime: {error}; are there too many threads?"))
}

#[cfg(test)]
mod tests;
