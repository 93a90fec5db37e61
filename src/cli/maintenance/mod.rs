//! `shoal maintenance`: the bootable image of the maintenance OS.

mod build;
mod fetch;
mod inspect;
mod push;

use std::path::PathBuf;

use clap::Subcommand;
use maintenance::Error;

use client::error::CliError;
use client::output::{Output, plain};

/// Commands for the image of the maintenance OS.
#[derive(Debug, Subcommand)]
pub(super) enum MaintenanceCommand {
    /// Build the image from a folder of Debian packages; equal packages give equal bytes
    Build(Box<build::BuildArgs>),
    /// Push an image into the registry of a controller, from where its jobs boot it
    Push(push::PushArgs),
    /// Download the packages for an image from a Debian mirror, or list them
    Fetch(fetch::FetchArgs),
    /// Show what is in an image: packages, versions, licences, drivers, missing firmware
    Inspect {
        /// The image
        image: PathBuf,
    },
}

/// Runs a command.
pub(super) fn run(command: MaintenanceCommand, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        MaintenanceCommand::Build(build) => build.run(output),
        MaintenanceCommand::Push(push) => push.run(output),
        MaintenanceCommand::Fetch(fetch) => fetch.run(output),
        MaintenanceCommand::Inspect { image } => inspect::run(&image, output),
    }
}

fn failed(error: Error) -> CliError {
    match error {
        Error::File { path, source } => CliError::Input { path, source },
        other => CliError::failed(plain(&model::error_chain(&other).to_string())),
    }
}
