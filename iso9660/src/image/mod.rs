//! Reads images from any writer, including hostile ones.
//!
//! ```text
//! open: sector 16.. descriptors --> NSR02, NSR03 -> UDF                |  the first readable or the requested one
//!                               |-> primary --SP, ER--> Rock Ridge     |  is the namespace of all paths
//!                               |-> supplementary %/E -> Joliet        |
//!                               |-> primary: plain names, lower case   |
//!                               `-> boot record -> boot catalog -> `[BOOT]/…`, beside the tree
//! lookup, list, walk:  view (one namespace) --children--> entries       directories, never the path tables
//!                         `- cache: directories used most recently
//!                      medium: read budget of one call
//! open_file, extents:  file
//! ```
//!
//! Invariants: no allocation uses a size from the image before it is checked against the length of the source.
//! Directories are walked without recursion and never twice. Every loop has a budget in [`ReadLimits`]. A broken rule
//! is [`ReadError::Invalid`] with its offset; an unknown feature is [`ReadError::Unsupported`].

mod boot;
mod cache;
mod descriptors;
mod directory;
mod entry;
mod file;
mod iso;
mod medium;
mod namespace;
mod path;
mod resolve;
mod view;

use std::sync::Arc;

use crate::ecma119::SECTOR;
use crate::error::ReadError;
use crate::source::ReadAt;
use crate::udf::Udf;

use cache::Cache;
use descriptors::Descriptors;
use directory::Root;
use medium::Medium;
use view::View;

pub use boot::{BootCatalog, BootEntry, BootImage};
pub use entry::{Entry, EntryKind, Extent};
pub use file::FileReader;
pub use namespace::Namespace;
pub(crate) use resolve::Found;

/// The budgets of a reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReadLimits {
    /// The largest size of one directory in bytes.
    pub directory_bytes: u64,
    /// The largest number of entries that one call of [`Image::list`] returns or one [`Image::walk`] visits.
    pub entries: u64,
    /// The deepest level of directories, and the largest number of components of a path.
    pub depth: usize,
    /// The largest number of symbolic links that are followed for one path.
    pub links: usize,
}

impl Default for ReadLimits {
    fn default() -> ReadLimits {
        ReadLimits { directory_bytes: 64 << 20, entries: 4_000_000, depth: 255, links: 40 }
    }
}

/// The contents of the volume descriptors.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Volume {
    /// The volume identifier of the Primary Volume Descriptor, or of the UDF file system if the image has no primary
    /// descriptor.
    pub volume_id: String,
    /// The volume identifier of the Joliet descriptor, which has at most 16 characters.
    pub joliet_volume_id: Option<String>,
    /// The publisher identifier.
    pub publisher: String,
    /// The data preparer identifier.
    pub preparer: String,
    /// The application identifier.
    pub application: String,
    /// The number of sectors of the volume.
    pub sectors: u32,
    /// The creation time in seconds since 1970, if the date is specified and valid.
    pub created: Option<i64>,
    /// The modification time in seconds since 1970, if the date is specified and valid.
    pub modified: Option<i64>,
    /// Whether the image declares a UDF file system, which may hold other files than the other namespaces. It is
    /// readable when [`Image::namespaces`] lists it.
    pub has_udf: bool,
    /// The volume identifier of the UDF file system, if it is readable.
    pub udf_volume_id: Option<String>,
    /// The revision of the UDF file system, such as 0x0102, if it is readable.
    pub udf_revision: Option<u16>,
}

/// An opened image.
#[derive(Debug)]
pub struct Image<S> {
    source: Arc<S>,
    limits: ReadLimits,
    volume: Volume,
    namespaces: Vec<Namespace>,
    unreadable: Vec<(Namespace, ReadError)>,
    view: View,
    cache: Cache,
    /// The sector of the boot catalog.
    catalog: Option<u32>,
}

impl<S: ReadAt> Image<S> {
    /// Opens an image by the best readable namespace that it has: UDF, then Rock Ridge, then Joliet, then plain.
    ///
    /// # Errors
    /// [`ReadError`] when the source is neither an ISO 9660 nor a UDF image, or when no namespace is readable.
    /// [`Image::unreadable`] returns the errors of the others.
    pub fn open(source: S) -> Result<Image<S>, ReadError> {
        Image::open_with(source, None, ReadLimits::default())
    }

    /// Opens an image by the given namespace, or the best readable one, with the given budgets.
    ///
    /// # Errors
    /// The errors of [`Image::open`]; [`ReadError::NoNamespace`] when the image does not have the namespace; the error
    /// of the namespace when it is not readable.
    pub fn open_with(
        source: S,
        namespace: Option<Namespace>,
        limits: ReadLimits,
    ) -> Result<Image<S>, ReadError> {
        let medium = Medium::new(&source, limits.one_call());
        let Descriptors { mut volume, primary, joliet, catalog } = Descriptors::read(&medium)?;
        let mut found = Vec::new();
        if volume.has_udf {
            let udf = Udf::open(&medium).and_then(|udf| volume.add_udf(udf, &medium, &limits));
            found.push((Namespace::Udf, udf));
        }
        let plain = primary
            .map(|root| root.and_then(|root| directory::probe(&medium, root.extent, &limits).map(|()| root)));
        if let Some(Ok(root)) = &plain {
            // The skipped bytes are part of the system use areas, which only Rock Ridge reads.
            let rock_ridge = directory::rock_ridge_skip(&medium, root, &limits).transpose();
            let view = |skip| View::iso(Namespace::RockRidge, &Root { skip, ..root.clone() });
            found.extend(rock_ridge.map(|skip| (Namespace::RockRidge, skip.map(view))));
        }
        let view = |namespace| move |root: Root| View::iso(namespace, &root);
        for (namespace, root) in [(Namespace::Joliet, joliet), (Namespace::Plain, plain)] {
            found.extend(root.map(|root| (namespace, root.map(view(namespace)))));
        }
        let (mut namespaces, mut unreadable, mut chosen) = (Vec::new(), Vec::new(), None);
        for (name, view) in found {
            let wanted = chosen.is_none() && namespace.is_none_or(|namespace| namespace == name);
            // Every read of a remote image is a request, so the root of a tree that is not used is not read.
            let readable = match view {
                Ok(view) if wanted && name == Namespace::Joliet => {
                    directory::probe(&medium, view.root.first_extent(), &limits).map(|()| view)
                }
                view => view,
            };
            match readable {
                Ok(view) => {
                    namespaces.push(name);
                    chosen = if wanted { Some(view) } else { chosen };
                }
                Err(error) if namespace == Some(name) => return Err(error),
                Err(error) => unreadable.push((name, error)),
            }
        }
        drop(medium);
        let view = match (chosen, namespace) {
            (Some(view), _) => view,
            (None, Some(namespace)) => return Err(ReadError::NoNamespace { namespace }),
            (None, None) => {
                let first = unreadable.into_iter().next().map(|(_, error)| error);
                return Err(first.unwrap_or(ReadError::NoNamespace { namespace: Namespace::Plain }));
            }
        };
        let (source, cache) = (Arc::new(source), Cache::default());
        Ok(Image { source, limits, volume, namespaces, unreadable, view, cache, catalog })
    }

    /// Returns the volume identifier (label): that of the Primary Volume Descriptor, which Linux shows, if the image
    /// has one.
    pub fn volume_id(&self) -> &str {
        &self.volume.volume_id
    }

    /// Returns the contents of the volume descriptors.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Returns the namespace in use.
    pub fn namespace(&self) -> Namespace {
        self.view.namespace()
    }

    /// Returns the readable namespaces of the image, best first.
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Returns the namespaces that the image declares but whose descriptor or root directory is broken, with the error.
    pub fn unreadable(&self) -> &[(Namespace, ReadError)] {
        &self.unreadable
    }

    /// Returns the source.
    pub fn source(&self) -> &Arc<S> {
        &self.source
    }
}

impl ReadLimits {
    setters! {
        with_directory_bytes directory_bytes: u64;
        with_entries entries: u64;
        with_depth depth: usize;
        with_links links: usize;
    }

    /// Returns the number of bytes of directories and attributes that one call may read. Links can lead through a
    /// directory repeatedly, and attributes may be outside directories; four times the largest directory is enough for
    /// both.
    fn one_call(&self) -> u64 {
        self.directory_bytes.saturating_mul(4)
    }
}

impl Volume {
    /// Adds the label, revision and date of a UDF file system. Returns the view of it.
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
