//! The commands of the program, with the arguments of each. A command is run by `dispatch` of the module above.

use clap::Subcommand;

use super::settings_args::SettingsArgs;
use super::{
    accounts, agent, audit, backup, ca, config, dashboards, doctor, iso, maintenance, recipe, registry,
    secret, shell, token, user, worker,
};
use client::connection::ConnectionArgs;

/// One command of the program.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the controller until SIGTERM, SIGINT or SIGQUIT
    Serve(Box<SettingsArgs>),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab_worlds::Command),
    #[command(flatten)]
    Client(client::Command),
    /// Show version, build, features and database schema of a controller and of this program
    About {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Print the software bill of materials of this program as CycloneDX JSON, without a controller
        #[arg(long)]
        sbom: bool,
    },
    /// Export the certificate authority of a controller
    Ca {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        #[command(subcommand)]
        command: ca::CaCommand,
    },
    /// Manage the users of a controller
    User {
        #[command(flatten)]
        place: Box<accounts::PlaceArgs>,
        #[command(subcommand)]
        command: user::UserCommand,
    },
    /// Manage the API tokens of a controller
    Token {
        #[command(flatten)]
        place: Box<accounts::PlaceArgs>,
        #[command(subcommand)]
        command: token::TokenCommand,
    },
    /// Execute the steps of a queue near its BMCs, until SIGTERM, SIGINT or SIGQUIT; manage workers and their tokens
    Worker {
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(flatten)]
        arguments: Box<worker::WorkerArgs>,
    },
    /// Check this host for a controller: ports, network, disk, clock, files, limits, certificate
    Doctor {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        #[command(flatten)]
        arguments: doctor::DoctorArgs,
    },
    /// Write files for Prometheus and Grafana
    #[command(subcommand)]
    Dashboards(dashboards::DashboardsCommand),
    /// List, verify and export the audit log
    Audit {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: audit::AuditCommand,
    },
    /// List and rotate the keys of a controller
    Secret {
        #[command(flatten)]
        place: Box<accounts::PlaceArgs>,
        #[command(subcommand)]
        command: secret::SecretCommand,
    },
    /// Manage the OS images of a data directory, directly or through its running controller
    Registry {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(subcommand)]
        command: registry::RegistryCommand,
    },
    /// Back up the data directory into a new directory, also while the controller runs; or the backups that it makes itself
    Backup {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        #[command(flatten)]
        connection: ConnectionArgs,
        #[command(flatten)]
        command: Box<backup::BackUp>,
    },
    /// Restore a backup into empty directories; nothing is done to a server until it is released
    Restore {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        #[command(flatten)]
        command: backup::RestoreBackup,
    },
    /// Validate recipes without a controller
    #[command(subcommand)]
    Recipe(recipe::RecipeCommand),
    /// Show and check the settings
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print the API as an OpenAPI 3.1 document, without a controller
    Openapi,
    /// Build, check, change and read ISO images
    #[command(subcommand)]
    Iso(iso::IsoCommand),
    /// Build the bootable image of the maintenance OS
    #[command(subcommand)]
    Maintenance(maintenance::MaintenanceCommand),
    /// Run the agent of the maintenance OS on this machine: it carries out the task that it finds
    Agent(agent::AgentArgs),
    /// Print the completions of a shell: commands, options, serial numbers and ids of jobs
    Completions(shell::Completions),
    /// Write manual pages, one for each command
    Man(shell::Man),
}
