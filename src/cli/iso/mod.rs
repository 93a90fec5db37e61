//! `shoal iso`: builds, changes, checks and reads ISO 9660 images of any tool.

mod build;
mod check;
mod extract;
mod inspect;
mod splice;
mod write;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use iso9660::{FileSource, Image, ReadError};

use super::error::CliError;
use super::exit::Exit;
use super::output::{Output, plain};

/// Commands for ISO images.
#[derive(Debug, Subcommand)]
pub(super) enum IsoCommand {
    /// Build an image of a directory; equal directories give equal bytes
    Build(Box<build::BuildArgs>),
    /// List a directory of an image
    Ls {
        /// The image
        image: PathBuf,
        /// The directory or file in it
        #[arg(default_value = "/")]
        path: String,
        /// List all directories below it too
        #[arg(long, short = 'R', conflicts_with = "path")]
        recursive: bool,
    },
    /// Write a file of an image to standard output
    Cat {
        /// The image
        image: PathBuf,
        /// The file in it
        path: String,
    },
    /// Write the files of an image to a directory
    Extract(extract::ExtractArgs),
    /// Show volume, names and boot entries of an image
    Info {
        /// The image
        image: PathBuf,
        /// Also show the SHA-256 of the whole image
        #[arg(long)]
        digest: bool,
    },
    /// Check an image against the rules of ISO 9660, Joliet, Rock Ridge and El Torito; ends with 1 on errors
    Check(check::CheckArgs),
    /// Build a new image of an existing one with added files; its boot setup is unchanged
    Splice(splice::SpliceArgs),
}

/// Runs a command.
pub(super) fn run(command: IsoCommand, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        IsoCommand::Build(build) => build.run(output),
        IsoCommand::Ls { image, path, recursive } => inspect::list(&open(&image)?, &path, recursive, output),
        IsoCommand::Cat { image, path } => inspect::cat(&open(&image)?, &path, output),
        IsoCommand::Extract(extract) => extract.run(output),
        IsoCommand::Info { image, digest } => inspect::info(&open(&image)?, digest, output),
        IsoCommand::Check(check) => check.run(output),
        IsoCommand::Splice(splice) => splice.run(output),
    }
}

fn open(path: &Path) -> Result<Image<FileSource>, CliError> {
    Image::open(source(path)?).map_err(|error| failed(&error))
}

fn source(path: &Path) -> Result<FileSource, CliError> {
    FileSource::open(path).map_err(|source| CliError::Input { path: path.to_owned(), source })
}

fn failed(error: &ReadError) -> CliError {
    let exit = if matches!(error, ReadError::NotFound { .. }) { Exit::NotFound } else { Exit::Failed };
    CliError::Local { message: plain(&error.to_string()), exit }
}
