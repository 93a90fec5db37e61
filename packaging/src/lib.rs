//! Packages of the static program, written by own code: a Debian package, an archive, an OCI image.
//!
//! ```text
//!   static programs ──elf: architecture, no loader──> content: files with owner and mode ──+── ar( control.tar.gz, data.tar.gz )  .deb
//!                                                                                         +── tar.gz with SHA256SUMS
//!                                                                                         `── OCI layout in a tar, one layer
//! ```
//!
//! Invariants: the same program, version and date give the same bytes on every machine; a program that needs a loader is refused,
//! because it would not start in the image.

mod archive;
mod content;
mod deb;
mod documents;
mod elf;
mod oci;
mod pages;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use elf::Architecture;

/// The time of all files without `SOURCE_DATE_EPOCH`: 2026-01-01.
pub const DATE: u64 = 1_767_225_600;
/// The maximum size of the program in bytes.
const MAX_PROGRAM: u64 = 512 << 20;
/// The maximum length of a version.
const MAX_VERSION: usize = 64;

/// The files to package, and the directory, version and date of the packages.
#[derive(Clone, Debug)]
pub struct Order {
    /// The static program.
    pub program: PathBuf,
    /// The static agent, which `shoal maintenance build` puts onto boot media.
    pub agent: PathBuf,
    /// The directory for the packages; it is created.
    pub out: PathBuf,
    /// The version, as Debian writes versions without an epoch.
    pub version: String,
    /// The time of all files, in seconds since 1970.
    pub date: u64,
    /// The program that writes manual pages and completions: the same version, for this machine. `None` for packages without them.
    pub pages_of: Option<PathBuf>,
}

/// The programs of every package.
#[derive(Clone, Copy)]
struct Programs<'b> {
    /// `shoal`.
    shoal: &'b [u8],
    /// `shoal-agent`. `shoal` looks for it beside itself and in `../lib/shoal`.
    agent: &'b [u8],
}

/// Why no packages were made.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A file could not be read or written.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The program is not what can be packaged.
    #[error("{} {why}; build it with `cargo static` and `cargo static-agent`", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// The fault of the program, in words.
        why: &'static str,
    },
    /// The program wrote no manual pages or completions.
    #[error("{} {why}; name a build of the same version for this machine with --pages-of", path.display())]
    Pages {
        /// The program.
        path: PathBuf,
        /// The fault of the pages, in words.
        why: String,
    },
    /// The version has characters that file names or Debian do not allow.
    #[error("the version {0:?} cannot be used: digits first, then letters, digits and . + ~, at most 64")]
    Version(String),
    /// An archive could not be written to memory.
    #[error("write an archive: {0}")]
    Archive(#[from] io::Error),
}

/// Makes all packages and `SHA256SUMS`; returns the text of the latter.
///
/// # Errors
/// When the program cannot be read or is not static, the version is malformed, the pages cannot be made, or a file cannot be written.
pub fn make(order: &Order) -> Result<String, PackageError> {
    let Order { program, agent, out, version, date, pages_of } = order;
    check_version(version)?;
    let (bytes, architecture) = static_program(program)?;
    let (agent_bytes, agent_architecture) = static_program(agent)?;
    if agent_architecture != architecture {
        let why = "is for another architecture than the program";
        return Err(PackageError::Program { path: agent.clone(), why });
    }
    let programs = Programs { shoal: &bytes, agent: &agent_bytes };
    fs::create_dir_all(out).map_err(|source| PackageError::File {
        what: "create",
        path: out.clone(),
        source,
    })?;
    let pages = match pages_of {
        Some(program) => pages::of(program, &out.join(".pages"))?,
        None => pages::Pages::default(),
    };
    let (debian, oci) = (architecture.debian(), architecture.oci());
    let packages = [
        (
            format!("shoal_{version}_{debian}.deb"),
            deb::package((programs, &pages), architecture, version, *date)?,
        ),
        (
            format!("shoal-{version}-linux-{oci}.tar.gz"),
            content::archive((programs, &pages), version, oci, *date)?,
        ),
        (format!("shoal-{version}-linux-{oci}.oci.tar"), oci::image(programs, architecture, version, *date)?),
    ];
    let mut sums = String::new();
    for (name, bytes) in &packages {
        write(&out.join(name), bytes)?;
        sums.push_str(&format!("{}  {name}\n", sha256(bytes)));
    }
    write(&out.join("SHA256SUMS"), sums.as_bytes())?;
    Ok(sums)
}

fn static_program(path: &Path) -> Result<(Vec<u8>, Architecture), PackageError> {
    let bytes = read(path)?;
    let architecture =
        elf::architecture(&bytes).map_err(|why| PackageError::Program { path: path.to_owned(), why })?;
    Ok((bytes, architecture))
}

fn check_version(version: &str) -> Result<(), PackageError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".+~".contains(&byte);
    let good = version.len() <= MAX_VERSION
        && version.starts_with(|first: char| first.is_ascii_digit())
        && version.bytes().all(allowed);
    if good { Ok(()) } else { Err(PackageError::Version(version.to_owned())) }
}

fn read(path: &Path) -> Result<Vec<u8>, PackageError> {
    let failed = |source| PackageError::File { what: "read", path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_PROGRAM {
        return Err(PackageError::Program { path: path.to_owned(), why: "is larger than 512 MiB" });
    }
    fs::read(path).map_err(failed)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), PackageError> {
    fs::write(path, bytes).map_err(|source| PackageError::File {
        what: "write",
        path: path.to_owned(),
        source,
    })
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
