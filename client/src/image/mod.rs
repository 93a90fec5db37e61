//! `shoal image`: images of whole disks in the registry of a controller.

mod add;
mod content;

use clap::Subcommand;

use super::connection::Client;
use super::error::CliError;
use super::output::Output;

/// Commands for images of whole disks.
#[derive(Debug, Subcommand)]
pub(super) enum ImageCommand {
    /// Push the image of a disk for install-image.target and print the oci_url for a recipe; qcow2 is converted while it is sent
    Add(add::AddImage),
}

/// Runs a command of `shoal image`.
pub(super) async fn run(
    command: ImageCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        ImageCommand::Add(add) => add.run(client, output).await,
    }
}
