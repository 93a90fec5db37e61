//! `shoal iso`: making, changing, checking and looking into ISO 9660 images, whoever made them.

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

/// What to do with an image.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make an image of a directory: the same directory gives the same bytes everywhere
    Build(Box<build::Build>),
    /// List a directory of an image
    Ls {
        /// The image
        image: PathBuf,
        /// The directory or file in it
        #[arg(default_value = "/")]
        path: String,
        /// With everything below it
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
    Extract(extract::Extract),
    /// Show what an image says about itself
    Info {
        /// The image
        image: PathBuf,
        /// With the SHA-256 of the whole image
        #[arg(long)]
        digest: bool,
    },
    /// Look for everything in an image that breaks a rule
    Check(check::Check),
    /// Add files to an image that exists; it boots as it did before
    Splice(splice::Splice),
}

/// Runs a command.
pub(super) fn run(command: Command, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        Command::Build(build) => build.run(output),
        Command::Ls { image, path, recursive } => look::list(&open(&image)?, &path, recursive, output),
        Command::Cat { image, path } => look::cat(&open(&image)?, &path, output),
        Command::Extract(extract) => extract.run(output),
        Command::Info { image, digest } => look::info(&open(&image)?, digest, output),
        Command::Check(check) => check.run(output),
        Command::Splice(splice) => splice.run(output),
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
