//! An image that somebody else may have made, read with care.
//!
//! ```text
//! open: sector 16.. descriptors --> primary --SP, ER--> Rock Ridge   |  first one there, or the one asked for,
//!                               |-> supplementary %/E -> Joliet      |  is the namespace of all paths
//!                               |-> boot record -> boot catalog      |  neither: plain names, lower case, no ;1
//!                               `-> NSR02/NSR03: there is also UDF (not read, reported)
//! lookup, list, walk: directory records, sector by sector, never the path tables
//! ```
//!
//! Invariants: nothing is allocated from a size that the image claims before it was checked against the length of the
//! source; directories are walked without recursion and never twice; every loop has a budget in [`Limits`]. What breaks
//! a rule is [`ReadError::Invalid`] with its offset; what is merely unknown is [`ReadError::Unsupported`].

mod boot;
mod descriptors;
mod directory;
mod entry;
mod file;
mod resolve;

use std::fmt;
use std::sync::Arc;

use crate::ecma119::SECTOR;
use crate::error::ReadError;
use crate::source::ReadAt;

use descriptors::Descriptors;
use directory::Root;

pub use boot::BootEntry;
pub use entry::{Entry, EntryKind, Extent};
pub use file::FileReader;

/// Whose names an image is read by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Namespace {
    /// POSIX names, modes and links; paths are case-sensitive.
    RockRidge,
    /// Unicode names; a path matches in any case when no exact match is there.
    Joliet,
    /// ISO 9660 identifiers in lower case, without version; a path matches in any case.
    Plain,
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Namespace::RockRidge => "Rock Ridge",
            Namespace::Joliet => "Joliet",
            Namespace::Plain => "plain ISO 9660",
        })
    }
}

/// The budgets of a reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of one directory.
    pub directory_bytes: u64,
    /// Entries that one call of [`Image::list`] returns or one [`Image::walk`] visits.
    pub entries: u64,
    /// Directories below each other, and components of a path.
    pub depth: usize,
    /// Symbolic links followed for one path.
    pub links: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { directory_bytes: 64 << 20, entries: 4_000_000, depth: 255, links: 40 }
    }
}

/// What the descriptors say about a volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Volume {
    /// The label of the Primary Volume Descriptor.
    pub volume_id: String,
    /// The label of the Joliet descriptor, which holds 16 characters.
    pub joliet_volume_id: Option<String>,
    /// Who published it.
    pub publisher: String,
    /// Who prepared it.
    pub preparer: String,
    /// The application that made it.
    pub application: String,
    /// The number of sectors the volume claims.
    pub sectors: u32,
    /// Seconds since 1970, if the date is there and is one.
    pub created: Option<i64>,
    /// Seconds since 1970, if the date is there and is one.
    pub modified: Option<i64>,
    /// The image also has a UDF file system, which other readers may prefer and which may hold other files.
    pub has_udf: bool,
}

/// An opened image.
#[derive(Debug)]
pub struct Image<S> {
    source: Arc<S>,
    limits: Limits,
    volume: Volume,
    namespace: Namespace,
    namespaces: Vec<Namespace>,
    root: Root,
    /// The sector of the boot catalog.
    catalog: Option<u32>,
}

impl<S: ReadAt> Image<S> {
    /// Opens an image by the best namespace it has: Rock Ridge, then Joliet, then plain.
    ///
    /// # Errors
    /// When the source is not an ISO 9660 image or its descriptors break a rule.
    pub fn open(source: S) -> Result<Image<S>, ReadError> {
        Image::open_with(source, None, Limits::default())
    }

    /// Opens an image by the given namespace, or the best one, with budgets of the caller's.
    ///
    /// # Errors
    /// As [`Image::open`]; [`ReadError::NoNamespace`] when the image does not have it.
    pub fn open_with(source: S, namespace: Option<Namespace>, limits: Limits) -> Result<Image<S>, ReadError> {
        let descriptors = Descriptors::read(&source)?;
        let Descriptors { volume, primary, joliet, catalog } = descriptors;
        let skip = directory::rock_ridge_skip(&source, &primary, &limits)?;
        let plain = Root { skip: skip.unwrap_or(0), ..primary };
        let roots = [
            (Namespace::RockRidge, skip.map(|_| plain.clone())),
            (Namespace::Joliet, joliet),
            (Namespace::Plain, Some(plain.clone())),
        ];
        let namespaces =
            roots.iter().filter(|(_, root)| root.is_some()).map(|(namespace, _)| *namespace).collect();
        let wanted = roots
            .into_iter()
            .find(|(have, root)| root.is_some() && namespace.is_none_or(|want| want == *have));
        match (wanted, namespace) {
            (Some((namespace, Some(root))), _) => {
                Ok(Image { source: Arc::new(source), limits, volume, namespace, namespaces, root, catalog })
            }
            (_, namespace) => {
                Err(ReadError::NoNamespace { namespace: namespace.unwrap_or(Namespace::Plain) })
            }
        }
    }

    /// The label of the Primary Volume Descriptor, which is what Linux shows.
    pub fn volume_id(&self) -> &str {
        &self.volume.volume_id
    }

    /// What the descriptors say.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The namespace in use.
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// The namespaces the image has, best first.
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// The source.
    pub fn source(&self) -> &Arc<S> {
        &self.source
    }
}

/// Reads the sector at byte `offset`.
fn read_sector(source: &dyn ReadAt, offset: u64) -> Result<[u8; SECTOR], ReadError> {
    let mut sector = [0; SECTOR];
    source.read_exact_at(offset, &mut sector).map_err(|source| ReadError::Io {
        offset,
        length: SECTOR,
        source,
    })?;
    Ok(sector)
}
