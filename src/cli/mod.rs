//! The command line: the commands for local files and data directories, one file per command. Commands that are clients of a running
//! controller only are in the crate `client`, with the output and the errors of all.
//!
//! ```text
//! selftest                      simulated worlds, each in one thread
//! serve, demo, sim              run something here, on a multi-threaded runtime
//! worker                        runs steps of a running controller here; its commands are clients of it
//! user, token, secret           clients of a running controller; with --offline local, refused while a controller runs
//! recipe, config, iso, openapi  local; `config show --online` is a client of a running controller
//! doctor, dashboards            local
//! maintenance                   local; `fetch` is a client of a mirror of the distribution, `push` one of a running controller
//! registry …                    local, refused while a controller runs; with --online a client of it
//! ca                            local, or a client of a running controller
//! backup                        a client of a running controller; with a directory local, also while a controller runs
//! restore                       local, refused while a controller runs
//! all others                    clients of a running controller: the crate `client`
//! ```
//!
//! Invariants: `-o json` (`--json`) is the unchanged response of the controller, `-o yaml` the same as YAML; a pipe receives no colour
//! and no cut cell; the exit code is one of the list in `shoal --help`.
//!
//! See docs/operating.md.

mod about;
mod accounts;
mod agent;
mod audit;
mod backup;
mod ca;
mod command;
mod config;
mod dashboards;
mod doctor;
mod examples;
mod iso;
mod maintenance;
mod openapi;
mod recipe;
mod registry;
mod secret;
mod serve;
mod settings_args;
mod shell;
mod token;
mod user;
mod worker;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use client::connection::Client;
use client::current_thread;
use client::error::CliError;
use client::exit::{self, Exit};
use client::output::{Format, Output, Screen, Times, is_broken_pipe};
use client::registry_online;

use command::Command;
use examples::with_examples;

/// The heading of the options that every command has.
const COMMON: &str = "Common options";

/// Installs servers through their BMCs: recipe in, installed machine out.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, after_help = exit::HELP, arg_required_else_help = true)]
struct Cli {
    /// Print JSON instead of text: the same as -o json
    #[arg(long, global = true, help_heading = COMMON)]
    json: bool,
    /// The form of lists and things; wide shows all columns, name one id per line. Some commands write a file with -o instead
    // The type of an option that a command has under this name, because clap copies its value here.
    #[arg(long, short, global = true, help_heading = COMMON, value_name = "FORMAT",
          value_parser = PossibleValuesParser::new(Format::NAMES).map(PathBuf::from))]
    output: Option<PathBuf>,
    /// Show times as RFC 3339 in UTC instead of ages
    #[arg(long, global = true, help_heading = COMMON)]
    utc: bool,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Parses a command line, with the form of its output.
    fn read(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<(Self, Format), clap::Error> {
        let mut command = definition();
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        let writes_file = has_own_output(&command, &matches);
        let cli = Self::from_arg_matches_mut(&mut matches)?;
        let given = cli.output.as_ref().filter(|_| !writes_file).and_then(|name| name.to_str());
        let usual = if cli.json { Format::Json } else { Format::Text };
        let format = given.and_then(Format::named).unwrap_or(usual);
        Ok((cli, format))
    }

    /// How times are shown.
    fn times(&self) -> Times {
        Times { utc: self.utc, ..Times::AGES }
    }
}

/// The definition of the command line with its examples.
fn definition() -> clap::Command {
    with_examples(Cli::command(), "")
}

/// Whether `-o` of the selected command names a file.
fn has_own_output(command: &clap::Command, matches: &ArgMatches) -> bool {
    let own = command.get_arguments().find(|argument| argument.get_id() == "output");
    match matches.subcommand().and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches))) {
        Some((command, matches)) => has_own_output(command, matches),
        None => own.is_some_and(|argument| !argument.is_global_set()),
    }
}

/// Parses the arguments of the process and runs the command.
pub fn main() -> ExitCode {
    let (cli, format) = match Cli::read(std::env::args_os()) {
        Ok(read) => read,
        Err(error) => {
            // Help and version end with 0, wrong arguments with 2. A closed terminal is ignored.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    // Not locked: `serve` writes its log from many threads.
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut output = Output::new(&mut out, &mut err, format).on(Screen::of_stdout(), cli.times());
    match dispatch(cli.command, &mut output) {
        Ok(code) => code,
        Err(error) => report(&error, &mut output),
    }
}

fn dispatch(command: Command, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
    // Images, their files, installed systems and the files of a monitoring are for others and have the modes that their user chose.
    let is_for_others = matches!(
        command,
        Command::Iso(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Dashboards(_)
            | Command::Agent(_)
    );
    if !is_for_others {
        ::controller::app::make_private();
    }
    match command {
        Command::Serve(settings) => return serve::run(&settings),
        #[cfg(feature = "lab")]
        Command::Lab(command) => return Ok(command.run(output.json)),
        Command::Client(command) => return command.run(output),
        Command::About { sbom: true, .. } => about::sbom(output),
        Command::About { connection, sbom: false } => {
            let client = Client::new(&connection)?;
            current_thread()?.block_on(Box::pin(about::run(&client, output)))
        }
        Command::Ca { settings, command } => {
            current_thread()?.block_on(Box::pin(ca::run(command, *settings, output)))
        }
        Command::User { place, command } => {
            current_thread()?.block_on(Box::pin(user::run(command, *place, output)))
        }
        Command::Token { place, command } => {
            current_thread()?.block_on(Box::pin(token::run(command, *place, output)))
        }
        Command::Worker { connection, mut arguments } => match arguments.command.take() {
            Some(command) => {
                let client = Client::new(&connection)?;
                current_thread()?.block_on(Box::pin(worker::ask(command, &client, output)))
            }
            None => return worker::run(*arguments, &connection),
        },
        Command::Doctor { settings, arguments } => return doctor::run(&arguments, *settings, output),
        Command::Dashboards(command) => dashboards::run(command, output),
        Command::Audit { settings, connection, command } => {
            current_thread()?.block_on(Box::pin(audit::run(command, *settings, connection, output)))
        }
        Command::Secret { place, command } => {
            current_thread()?.block_on(Box::pin(secret::run(command, *place, output)))
        }
        Command::Registry { settings, connection, command } => match command.online() {
            Some(ask) => {
                let client = Client::new(&connection)?;
                current_thread()?.block_on(Box::pin(registry_online::run(ask, &client, output)))
            }
            None => {
                let settings = settings.load()?;
                current_thread()?.block_on(Box::pin(registry::run(command, settings, output)))
            }
        },
        Command::Backup { settings, connection, mut command } => match command.command.take() {
            Some(command) => {
                let client = Client::new(&connection)?;
                current_thread()?.block_on(Box::pin(client::backup_online::run(command, &client, output)))
            }
            None => backup::back_up(*command, &settings.load()?, output),
        },
        Command::Restore { settings, command } => backup::restore(command, &settings.load()?, output),
        Command::Recipe(command) => recipe::run(command, output),
        Command::Config(command) => match command.online() {
            Some(connection) => {
                let client = Client::new(connection)?;
                current_thread()?.block_on(config::show_online(&client, output))
            }
            None => config::run(command, output),
        },
        Command::Openapi => openapi::run(output),
        Command::Iso(command) => iso::run(command, output),
        Command::Maintenance(command) => maintenance::run(command, output),
        Command::Completions(completions) => completions.run(definition(), output),
        Command::Man(man) => man.run(definition(), output),
        Command::Agent(agent) => agent.run(),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Reports why a command failed and what to do next.
fn report(error: &CliError, output: &mut Output<'_>) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    if output.json {
        output.error(&error.json());
    } else {
        output.note(format!("shoal: {error}"));
        if let Some(hint) = error.hint() {
            output.note(format!("hint: {hint}"));
        }
    }
    error.exit().into()
}

/// The names of the commands.
#[cfg(test)]
fn command_words() -> Vec<String> {
    use clap::CommandFactory as _;
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests;
