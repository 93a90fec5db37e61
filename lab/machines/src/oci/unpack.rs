//! Merges layers into one tar stream: the file system after all layers were applied.
//!
//! ```text
//! check   every layer: gunzip within the limit, no oversized extended header, diff_id
//! scan    which layer provides each path: later layers win, .wh.NAME removes a path of lower layers,
//!         .wh..wh..opq empties a directory
//! copy    the provided entries, in the order of the layers
//! ```
//!
//! There are three passes over the layer files, so that only names are kept in memory and nothing is written before all
//! layers are checked.
//!
//! Extended attributes are not copied. Sparse entries and hard links to a path that a higher layer replaced are refused.
//! Paths with `..` are refused: they occur only in hostile images.
//!
//! OCI image specification 1.1, layer.md.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tar::EntryType;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::Layer;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const BUFFER: usize = 64 * 1024;
const MAX_EXTENDED_HEADER: u64 = 128 * 1024;

/// Size limits of an image.
#[derive(Clone, Copy, Debug)]
pub struct UnpackLimits {
    /// Total size of all uncompressed layers in bytes.
    pub bytes: u64,
    /// Total number of paths in all layers.
    pub paths: usize,
}

/// A file that the installer adds to the tree.
#[derive(Clone, Debug)]
pub struct ExtraFile {
    /// Path without a leading slash.
    pub path: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// The result of unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Number of entries of the tar stream.
    pub entries: u64,
}

/// An image could not be unpacked.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// Reading a layer failed: damaged gzip or tar, an exceeded limit, or the power went off.
    #[error("unpacking layer {layer}")]
    Layer {
        /// Digest of the layer.
        layer: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The uncompressed layer does not match the diff_id of the configuration.
    #[error("unpacking layer {layer}: diff_id is {expected}, the content hashes to {actual}")]
    DiffId {
        /// Digest of the layer.
        layer: String,
        /// The expected diff_id.
        expected: String,
        /// The digest of the content.
        actual: String,
    },
    /// The result could not be written.
    #[error("writing the root file system")]
    Write(#[source] io::Error),
}

/// Applies `layers`, lowest first, and writes the result to `out`, followed by the `extra` files.
///
/// # Errors
/// Returns an error if a layer breaks a rule, a limit is exceeded, `cancel` is cancelled, or `out` cannot be written.
pub fn unpack(
    layers: &[(Layer, PathBuf)],
    extra: &[ExtraFile],
    limits: UnpackLimits,
    cancel: &CancellationToken,
    out: &mut dyn Write,
) -> Result<Unpacked, UnpackError> {
    let mut budget = limits.bytes;
    for (layer, file) in layers {
        budget = check_layer(layer, file, budget, cancel)?;
    }
    let mut owners = Owners::new(limits.paths);
    for (index, (layer, file)) in layers.iter().enumerate() {
        let failed = |source| UnpackError::Layer { layer: layer.digest.clone(), source };
        let mut stream = LayerStream::open(layer, file, limits.bytes, cancel).map_err(failed)?;
        owners.scan(index, &mut stream).map_err(failed)?;
    }
    for file in extra {
        owners.remove(file.path.as_bytes(), layers.len());
    }
    let mut builder = tar::Builder::new(out);
    let mut entries = 0;
    for (index, (layer, file)) in layers.iter().enumerate() {
        let failed = |source| UnpackError::Layer { layer: layer.digest.clone(), source };
        let mut stream = LayerStream::open(layer, file, limits.bytes, cancel).map_err(failed)?;
        entries += owners.copy(index, &mut stream, &mut builder).map_err(failed)?;
    }
    for file in extra {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(file.bytes.len() as u64);
        builder.append_data(&mut header, &file.path, file.bytes.as_slice()).map_err(UnpackError::Write)?;
        entries += 1;
    }
    builder.finish().map_err(UnpackError::Write)?;
    Ok(Unpacked { entries })
}

/// Reads a whole layer and checks its diff_id. Returns the remaining budget.
fn check_layer(
    layer: &Layer,
    file: &Path,
    budget: u64,
    cancel: &CancellationToken,
) -> Result<u64, UnpackError> {
    let failed = |source| UnpackError::Layer { layer: layer.digest.clone(), source };
    let mut stream = LayerStream::open(layer, file, budget, cancel).map_err(failed)?;
    refuse_large_headers(&mut stream).map_err(failed)?;
    let (rest, actual) = stream.finish().map_err(failed)?;
    match &layer.diff_id {
        Some(expected) if *expected != actual => {
            let (layer, expected) = (layer.digest.clone(), expected.clone());
            Err(UnpackError::DiffId { layer, expected, actual })
        }
        _ => Ok(rest),
    }
}

/// Refuses large extended headers: a tar parser reads long names and extended headers into memory.
fn refuse_large_headers(stream: &mut LayerStream<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(stream);
    for entry in archive.entries()?.raw(true) {
        let entry = entry?;
        let kind = entry.header().entry_type();
        let extends = kind.is_gnu_longname()
            || kind.is_gnu_longlink()
            || kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions();
        if extends && entry.size() > MAX_EXTENDED_HEADER {
            return Err(io::Error::other(format!("an extended header has {} bytes", entry.size())));
        }
    }
    Ok(())
}

/// The layer and entry that provide each path.
struct Owners {
    by_path: BTreeMap<Vec<u8>, (usize, u64)>,
    limit: usize,
}

impl Owners {
    fn new(limit: usize) -> Self {
        Self { by_path: BTreeMap::new(), limit }
    }

    fn scan(&mut self, layer: usize, stream: &mut LayerStream<'_>) -> io::Result<()> {
        let mut archive = tar::Archive::new(stream);
        for (ordinal, entry) in archive.entries()?.enumerate() {
            let entry = entry?;
            let Some(path) = clean(&entry.path_bytes())? else { continue };
            let kind = entry.header().entry_type();
            if !is_kept(kind)? {
                continue;
            }
            let (parent, name) = split(&path);
            if name == OPAQUE {
                self.remove_beneath(parent, layer);
            } else if let Some(hidden) = name.strip_prefix(WHITEOUT) {
                let hidden = join(parent, hidden);
                self.remove(&hidden, layer);
            } else {
                if kind != EntryType::Directory {
                    self.remove_beneath(&path, layer);
                }
                if self.by_path.len() >= self.limit {
                    return Err(io::Error::other(format!("there are more than {} paths", self.limit)));
                }
                self.by_path.insert(path, (layer, ordinal as u64));
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        layer: usize,
        stream: &mut LayerStream<'_>,
        builder: &mut tar::Builder<&mut dyn Write>,
    ) -> io::Result<u64> {
        let mut archive = tar::Archive::new(stream);
        let mut copied = 0;
        for (ordinal, entry) in archive.entries()?.enumerate() {
            let mut entry = entry?;
            let Some(path) = clean(&entry.path_bytes())? else { continue };
            if self.by_path.get(&path) != Some(&(layer, ordinal as u64)) {
                continue;
            }
            let mut header = copy_of(entry.header(), entry.size())?;
            let path = Path::new(std::ffi::OsStr::from_bytes(&path)).to_owned();
            match entry.link_name()? {
                Some(target) if header.entry_type() == EntryType::Link => {
                    let target = target.into_owned();
                    self.refuse_replaced(layer, &target)?;
                    builder.append_link(&mut header, &path, target)?;
                }
                Some(target) => builder.append_link(&mut header, &path, &target)?,
                None => builder.append_data(&mut header, &path, &mut entry)?,
            }
            copied += 1;
        }
        Ok(copied)
    }

    /// Refuses a hard link whose target a higher layer replaced: the link would need the replaced content.
    fn refuse_replaced(&self, layer: usize, target: &Path) -> io::Result<()> {
        let owner = clean(target.as_os_str().as_bytes())?.and_then(|path| self.by_path.get(&path).copied());
        match owner {
            Some((owner, _)) if owner <= layer => Ok(()),
            _ => Err(io::Error::other(format!(
                "the target of a hard link ({}) is missing or was replaced by a higher layer",
                target.display()
            ))),
        }
    }

    /// Removes a path of layers below `layer` and all paths beneath it.
    fn remove(&mut self, path: &[u8], layer: usize) {
        if self.by_path.get(path).is_some_and(|(owner, _)| *owner < layer) {
            self.by_path.remove(path);
        }
        self.remove_beneath(path, layer);
    }

    fn remove_beneath(&mut self, path: &[u8], layer: usize) {
        let prefix = if path.is_empty() { Vec::new() } else { join(path, b"") };
        let removed: Vec<Vec<u8>> = self
            .by_path
            .range(prefix.clone()..)
            .take_while(|(path, _)| path.starts_with(&prefix))
            .filter(|(_, (owner, _))| *owner < layer)
            .map(|(path, _)| path.clone())
            .collect();
        for path in removed {
            self.by_path.remove(&path);
        }
    }
}

/// The uncompressed bytes of a layer file: bounded, hashed, cancellable.
struct LayerStream<'cancel> {
    source: Box<dyn Read>,
    budget: u64,
    sha256: Sha256,
    cancel: &'cancel CancellationToken,
}

impl<'cancel> LayerStream<'cancel> {
    fn open(layer: &Layer, file: &Path, budget: u64, cancel: &'cancel CancellationToken) -> io::Result<Self> {
        let file = BufReader::with_capacity(BUFFER, File::open(file)?);
        let source: Box<dyn Read> =
            if layer.gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        Ok(Self { source, budget, sha256: Sha256::new(), cancel })
    }

    /// Reads to the end of the stream, past the end marker of the tar. Returns the remaining budget and the digest.
    fn finish(mut self) -> io::Result<(u64, String)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.budget, format!("sha256:{}", hex::encode(self.sha256.finalize()))))
    }
}

impl Read for LayerStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("the power went off"));
        }
        let read = self.source.read(buffer)?;
        self.budget = self.budget.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::StorageFull,
                "the unpacked image does not fit; make the partition larger",
            )
        })?;
        self.sha256.update(&buffer[..read]);
        Ok(read)
    }
}

/// Normalizes a path: removes empty and `.` components. Returns `None` for the root directory.
fn clean(path: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut clean = Vec::with_capacity(path.len());
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(io::Error::other("a path contains ..")),
            name => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend_from_slice(name);
            }
        }
    }
    Ok(if clean.is_empty() { None } else { Some(clean) })
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = parent.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn is_kept(kind: EntryType) -> io::Result<bool> {
    match kind {
        EntryType::Regular
        | EntryType::Continuous
        | EntryType::Directory
        | EntryType::Symlink
        | EntryType::Link
        | EntryType::Char
        | EntryType::Block
        | EntryType::Fifo => Ok(true),
        EntryType::XGlobalHeader => Ok(false),
        other => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("entries of type {other:?} are not supported"),
        )),
    }
}

fn copy_of(original: &tar::Header, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(original.entry_type());
    header.set_mode(original.mode()?);
    header.set_uid(original.uid()?);
    header.set_gid(original.gid()?);
    header.set_mtime(original.mtime()?);
    header.set_size(size);
    if matches!(original.entry_type(), EntryType::Char | EntryType::Block) {
        header.set_device_major(original.device_major()?.unwrap_or(0))?;
        header.set_device_minor(original.device_minor()?.unwrap_or(0))?;
    }
    Ok(header)
}
