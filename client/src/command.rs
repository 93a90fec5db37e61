//! The commands of a client, with the arguments of each.

use std::process::ExitCode;

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use super::connection::{Client, ConnectionArgs};
use super::error::CliError;
use super::output::Output;
use super::{
    batch, bmc, controller, current_thread, event, firmware, image, job, log, media, server, session,
    support, top, webhook, whoami,
};

/// One command that is a client of a running controller. What its arguments are is known here only.
#[derive(Debug)]
pub struct Command(Kind);

/// The commands.
#[derive(Debug, Subcommand)]
enum Kind {
    /// Register, show, change and delete servers
    Server(Box<Group<server::ServerCommand>>),
    /// Create, follow, explain and cancel jobs
    Job(Box<Group<job::JobCommand>>),
    /// Create many jobs in one request and follow them
    Batch(Box<Group<batch::BatchCommand>>),
    /// Show what needs a person, what runs and what waits, on one screen; q ends
    Top(Single<top::TopArgs>),
    /// List the event log: what happened to all jobs and servers
    Event(Box<Group<event::EventCommand>>),
    /// Show the boot and task images that are served, and what BMCs read of them
    Media(Box<Group<media::MediaCommand>>),
    /// Manage outgoing webhooks
    Webhook(Box<Group<webhook::WebhookCommand>>),
    /// Add, list and remove firmware files, and make sets of them
    Firmware(Box<Group<firmware::FirmwareCommand>>),
    /// Check a BMC before the first job
    Bmc(Box<Group<bmc::BmcCommand>>),
    /// Push images of whole disks (raw, qcow2, gzip, zstd) into the registry of a controller
    Image(Box<Group<image::ImageCommand>>),
    /// Drain the controller, and release restored data
    Controller(Box<Group<controller::ControllerCommand>>),
    /// List and end the logins of browsers
    Session(Box<Group<session::SessionCommand>>),
    /// Show who this client is for the controller, and what it may do
    Whoami(ConnectionArgs),
    /// Show and change the log filter of a controller
    Log(Box<Group<log::LogCommand>>),
    /// Write the state of a controller, without secrets, into an archive for a person who helps
    SupportBundle(Single<support::SupportArgs>),
}

/// Commands of one subject, and the controller that they are for.
#[derive(Args, Debug)]
struct Group<C: Subcommand> {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: C,
}

/// The arguments of a command without others below it, and the controller that it is for.
#[derive(Args, Debug)]
struct Single<A: Args> {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    arguments: A,
}

impl Command {
    /// Runs the command on a runtime of its own. Returns the exit code of what it found.
    ///
    /// # Errors
    /// When the controller cannot be reached or refuses, or an argument or file is not valid.
    pub fn run(self, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
        match self.0 {
            Kind::Server(group) => group.run(server::run, output),
            Kind::Job(group) => group.run(job::run, output),
            Kind::Batch(group) => group.run(batch::run, output),
            Kind::Top(top) => with(&top.connection, top.arguments, top::run, output),
            Kind::Event(group) => group.run(event::run, output),
            Kind::Media(group) => group.run(media::run, output),
            Kind::Webhook(group) => group.run(webhook::run, output),
            Kind::Firmware(group) => group.run(firmware::run, output),
            Kind::Bmc(group) => {
                let Group { connection, command } = *group;
                current_thread()?.block_on(Box::pin(bmc::run(command, &connection, output)))
            }
            Kind::Image(group) => group.run(image::run, output),
            Kind::Controller(group) => group.run(controller::run, output),
            Kind::Session(group) => group.run(session::run, output),
            Kind::Whoami(connection) => {
                with(&connection, (), async |(), client, output| whoami::run(client, output).await, output)
            }
            Kind::Log(group) => group.run(log::run, output),
            Kind::SupportBundle(bundle) => with(&bundle.connection, bundle.arguments, support::run, output),
        }
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Kind::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        Kind::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for Command {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        Kind::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Kind::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Kind::has_subcommand(name)
    }
}

impl<C: Subcommand> Group<C> {
    fn run(
        self,
        run: impl AsyncFnOnce(C, &Client, &mut Output<'_>) -> Result<(), CliError>,
        output: &mut Output<'_>,
    ) -> Result<ExitCode, CliError> {
        let Self { connection, command } = self;
        with(&connection, command, run, output)
    }
}

/// Runs a command as a client of the controller of `connection`.
fn with<A>(
    connection: &ConnectionArgs,
    arguments: A,
    run: impl AsyncFnOnce(A, &Client, &mut Output<'_>) -> Result<(), CliError>,
    output: &mut Output<'_>,
) -> Result<ExitCode, CliError> {
    let client = Client::new(connection)?;
    current_thread()?.block_on(Box::pin(run(arguments, &client, output)))?;
    Ok(ExitCode::SUCCESS)
}
