//! An image that somebody else may have made, read with care.
//!
//! ```text
//! open: sector 16.. descriptors --> NSR02, NSR03 -> UDF                |  first one that can be read, or the one
//!                               |-> primary --SP, ER--> Rock Ridge     |  asked for, is the namespace of all paths
//!                               |-> supplementary %/E -> Joliet        |
//!                               |-> primary: plain names, lower case   |
//!                               `-> boot record -> boot catalog -> `[BOOT]/…`, beside the tree
//! lookup, list, walk:  view (one namespace) --children--> entries       directories, never the path tables
//!                         `- cache: directories used last
//!                      medium: what one call may read
//! open_file, extents:  file
//! ```
//!
//! Invariants: nothing is allocated from a size that the image claims before it was checked against the length of the
//! source; directories are walked without recursion and never twice; every loop has a budget in [`ReadLimits`]. What breaks
//! a rule is [`ReadError::Invalid`] with its offset; what is merely unknown is [`ReadError::Unsupported`].

mod boot;
mod cache;
mod descriptors;
mod directory;
mod entry;
mod file;
mod iso;
mod medium;
mod resolve;
mod view;

use std::fmt;
use std::sync::Arc;

use crate::ecma119::SECTOR;
use crate::error::ReadError;
use crate::source::ReadAt;
use crate::udf::Udf;

use cache::Cache;
use descriptors::Descriptors;
use medium::Medium;
use view::View;

pub use boot::{BootEntry, BootImage};
pub use entry::{Entry, EntryKind, Extent};
pub use file::FileReader;

/// Whose names an image is read by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Namespace {
    /// The names of a UDF file system; a path matches in any case when no exact match is there.
    Udf,
    /// POSIX names, modes and links; paths are case-sensitive.
    RockRidge,
    /// Unicode names; a path matches in any case when no exact match is there.
    Joliet,
    /// ISO 9660 identifiers in lower case, without version and trailing dot; a path matches in any case, with or
    /// without them.
    Plain,
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Namespace::Udf => "UDF",
            Namespace::RockRidge => "Rock Ridge",
            Namespace::Joliet => "Joliet",
            Namespace::Plain => "plain ISO 9660",
        })
    }
}

/// The budgets of a reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadLimits {
    /// Bytes of one directory.
    pub directory_bytes: u64,
    /// Entries that one call of [`Image::list`] returns or one [`Image::walk`] visits.
    pub entries: u64,
    /// Directories below each other, and components of a path.
    pub depth: usize,
    /// Symbolic links followed for one path.
    pub links: usize,
}

impl Default for ReadLimits {
    fn default() -> ReadLimits {
        ReadLimits { directory_bytes: 64 << 20, entries: 4_000_000, depth: 255, links: 40 }
    }
}

/// What the descriptors say about a volume.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Volume {
    /// The label of the Primary Volume Descriptor; of an image without one, that of its UDF file system.
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
    /// The image announces a UDF file system, which may hold other files than its other namespaces. It can be read when
    /// [`Image::namespaces`] has it.
    pub has_udf: bool,
    /// The label of the UDF file system, if that can be read.
    pub udf_volume_id: Option<String>,
    /// The revision of the UDF file system, such as 0x0102, if that can be read.
    pub udf_revision: Option<u16>,
}

/// An opened image.
#[derive(Debug)]
pub struct Image<S> {
    source: Arc<S>,
    limits: ReadLimits,
    volume: Volume,
    namespaces: Vec<Namespace>,
    view: View,
    cache: Cache,
    /// The sector of the boot catalog.
    catalog: Option<u32>,
}

impl<S: ReadAt> Image<S> {
    /// Opens an image by the best namespace it has: UDF, then Rock Ridge, then Joliet, then plain.
    ///
    /// # Errors
    /// When the source is neither an ISO 9660 nor a UDF image, or its descriptors break a rule. A UDF file system that
    /// cannot be read is passed over when there is something else.
    pub fn open(source: S) -> Result<Image<S>, ReadError> {
        Image::open_with(source, None, ReadLimits::default())
    }

    /// Opens an image by the given namespace, or the best one, with budgets of the caller's.
    ///
    /// # Errors
    /// As [`Image::open`]; [`ReadError::NoNamespace`] when the image does not have it; what is wrong with the UDF file
    /// system when that is asked for.
    pub fn open_with(source: S, namespace: Option<Namespace>, limits: ReadLimits) -> Result<Image<S>, ReadError> {
        let medium = Medium::new(&source, limits.one_call());
        let Descriptors { mut volume, primary, joliet, catalog } = Descriptors::read(&medium)?;
        let mut views = Vec::new();
        if volume.has_udf {
            match Udf::open(&medium).and_then(|udf| volume.add_udf(udf, &medium, &limits)) {
                Ok(view) => views.push(view),
                Err(error) if namespace == Some(Namespace::Udf) || primary.is_none() => return Err(error),
                Err(_) => {}
            }
        }
        if let Some(mut plain) = primary {
            let skip = directory::rock_ridge_skip(&medium, &plain, &limits)?;
            plain.skip = skip.unwrap_or(0);
            views.extend(skip.map(|_| View::iso(Namespace::RockRidge, &plain)));
            views.extend(joliet.map(|joliet| View::iso(Namespace::Joliet, &joliet)));
            views.push(View::iso(Namespace::Plain, &plain));
        }
        let namespaces = views.iter().map(View::namespace).collect();
        let view = views.into_iter().find(|view| namespace.is_none_or(|wanted| wanted == view.namespace()));
        let wanted = namespace.unwrap_or(Namespace::Plain);
        let view = view.ok_or(ReadError::NoNamespace { namespace: wanted })?;
        drop(medium);
        let (source, cache) = (Arc::new(source), Cache::default());
        Ok(Image { source, limits, volume, namespaces, view, cache, catalog })
    }

    /// The label: that of the Primary Volume Descriptor, which is what Linux shows, when there is one.
    pub fn volume_id(&self) -> &str {
        &self.volume.volume_id
    }

    /// What the descriptors say.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The namespace in use.
    pub fn namespace(&self) -> Namespace {
        self.view.namespace()
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

impl ReadLimits {
    /// How many bytes of directories and attributes one call may read. Links can lead through a directory again and
    /// again, and attributes are outside directories; four of the largest directories are enough for both.
    fn one_call(&self) -> u64 {
        self.directory_bytes.saturating_mul(4)
    }
}

impl Volume {
    /// Adds what a UDF file system says about itself; answers the view of it.
    fn add_udf(&mut self, udf: Udf, source: &dyn ReadAt, limits: &ReadLimits) -> Result<View, ReadError> {
        let (label, revision, recorded) = (udf.label.clone(), udf.revision, udf.recorded);
        let view = View::udf(udf, source, limits)?;
        if self.volume_id.is_empty() {
            self.volume_id.clone_from(&label);
        }
        self.created = self.created.or(recorded);
        (self.udf_volume_id, self.udf_revision) = (Some(label), Some(revision));
        Ok(view)
    }
}

/// Reads the sector at byte `offset`.
fn read_sector(source: &dyn ReadAt, offset: u64) -> Result<[u8; SECTOR], ReadError> {
    let mut sector = [0; SECTOR];
    source.read_exact_at(offset, &mut sector).map_err(|error| ReadError::io(offset, SECTOR, error))?;
    Ok(sector)
}
