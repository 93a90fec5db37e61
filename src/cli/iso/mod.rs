//! `shoal iso`: builds, changes, checks and reads ISO 9660 images of any tool.

mod build;
mod check;
mod extract;
mod inspect;
mod splice;
mod write;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use iso9660::{FileSource, Image, Namespace, ReadError, ReadLimits, escape_name};

use client::error::CliError;
use client::exit::Exit;
use client::output::{Output, plain};

/// Writes a planned image to a file, with its SHA-256.
pub(super) fn write_image(
    plan: &iso9660::ImagePlan,
    path: &Path,
    output: &mut Output<'_>,
) -> Result<write::Written, CliError> {
    write::image(plan, path, true, output)
}

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
        #[arg(default_value = "/", value_parser = path_parser())]
        path: String,
        /// List all directories below it too
        #[arg(long, short = 'R')]
        recursive: bool,
        #[command(flatten)]
        tree: TreeArgs,
    },
    /// Write a file of an image to standard output
    Cat {
        /// The image
        image: PathBuf,
        /// The file in it
        #[arg(value_parser = path_parser())]
        path: String,
        #[command(flatten)]
        tree: TreeArgs,
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
        IsoCommand::Ls { image, path, recursive, tree } => {
            inspect::list(&image, &tree, &path, recursive, output)
        }
        IsoCommand::Cat { image, path, tree } => inspect::cat(&image, &tree, &path, output),
        IsoCommand::Extract(extract) => extract.run(output),
        IsoCommand::Info { image, digest } => inspect::info(&image, digest, output),
        IsoCommand::Check(check) => check.run(output),
        IsoCommand::Splice(splice) => splice.run(output),
    }
}

/// The choice of a tree, for commands that read files.
#[derive(Args, Debug)]
pub(in crate::cli) struct TreeArgs {
    /// The tree of names to read; without it the first of this list that the image has and that is readable
    #[arg(long, value_enum)]
    tree: Option<TreeArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TreeArg {
    /// The names of a UDF file system
    Udf,
    /// Names of POSIX, with modes and links
    RockRidge,
    /// Names for Windows, in Unicode
    Joliet,
    /// The identifiers of ISO 9660, in lower case
    Plain,
}

impl TreeArg {
    fn namespace(self) -> Namespace {
        match self {
            TreeArg::Udf => Namespace::Udf,
            TreeArg::RockRidge => Namespace::RockRidge,
            TreeArg::Joliet => Namespace::Joliet,
            TreeArg::Plain => Namespace::Plain,
        }
    }

    /// Returns the value of the option for a tree.
    fn value(namespace: Namespace) -> Option<String> {
        let arg = TreeArg::value_variants().iter().find(|arg| arg.namespace() == namespace)?;
        Some(arg.to_possible_value()?.get_name().to_owned())
    }
}

impl TreeArgs {
    /// Opens an image. Without the option a broken tree is passed over, which a note says.
    fn open(&self, path: &Path, output: &mut Output<'_>) -> Result<Image<FileSource>, CliError> {
        let namespace = self.tree.map(TreeArg::namespace);
        let image = Image::open_with(source(path)?, namespace, ReadLimits::default());
        let image = image.map_err(|error| failed(&error))?;
        let used = image.namespace();
        let rank = |namespace| TreeArg::value_variants().iter().position(|arg| arg.namespace() == namespace);
        let better = |broken| namespace.is_none() && rank(broken) < rank(used);
        for (broken, error) in image.unreadable().iter().filter(|(broken, _)| better(*broken)) {
            output.note(plain(&format!(
                "the {broken} tree cannot be read, these are the {used} names: {error}"
            )));
        }
        Ok(image)
    }

    /// An error of an opened image. If its tree is broken, the error names the other trees.
    fn failed(&self, image: &Image<FileSource>, error: &ReadError) -> CliError {
        let mut failed = failed(error);
        if let (CliError::Local { message, .. }, ReadError::Invalid { .. } | ReadError::Unsupported { .. }) =
            (&mut failed, error)
        {
            let other = image.namespaces().iter().filter(|namespace| **namespace != image.namespace());
            let other: Vec<String> = other.filter_map(|namespace| TreeArg::value(*namespace)).collect();
            if !other.is_empty() {
                message.push_str(&format!(
                    "; the image has other trees: try --tree {}",
                    other.join(" or --tree ")
                ));
            }
        }
        failed
    }
}

/// Reads the path of a file in an image. Bytes that are not UTF-8 are escaped, as `iso ls` shows them.
fn path_parser() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|path| {
        let parts: Vec<_> = path.as_bytes().split(|byte| *byte == b'/').map(escaped).collect();
        parts.join("/")
    })
}

/// The text of one name of a path. UTF-8 stays, because it may be the escaped text of a name already.
fn escaped(name: &[u8]) -> String {
    std::str::from_utf8(name).map_or_else(|_| escape_name(name).into_owned(), str::to_owned)
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
