//! Sources of an import: a directory, the tree of a docker-registry, or an archive.
//!
//! Only regular files are read, never a pipe or a device. A directory may contain links, as the live layouts of this
//! registry do; they are followed for content that is named by its digest, which is verified. For any other file a link
//! must not lead out of the directory.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use rustix::fs::OFlags;

use super::contents::{Contents, Extent};
use super::in_layout;
use crate::digest::Digest;
use crate::error::Error;

const PIECE: u64 = 1 << 20;

pub(super) enum Source {
    Directory(PathBuf),
    /// The directory of a docker-registry that contains `repositories` and `blobs`.
    Registry(PathBuf),
    Archive(File, Contents),
}

/// A file of a source, from its beginning to the length it had when it was opened.
pub(super) struct Reader(std::io::Take<File>);

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return Ok(Source::Directory(path.to_owned()));
        }
        let missing = || Error::io("read the archive", path)(ErrorKind::NotFound.into());
        let file = open_regular(path)?.ok_or_else(missing)?;
        let contents = Contents::read(&file, path)?;
        Ok(Source::Archive(file, contents))
    }

    /// Content by its digest. The caller must verify the digest.
    pub(super) fn content(&self, digest: &Digest) -> Result<Option<Reader>, Error> {
        match self {
            Source::Directory(root) => Reader::of(&root.join(in_layout(digest))),
            Source::Registry(root) => {
                let fan_out = digest.hex().get(..2).unwrap_or_default();
                let directory = root.join("blobs").join(digest.algorithm().as_str()).join(fan_out);
                Reader::of(&directory.join(digest.hex()).join("data"))
            }
            Source::Archive(file, contents) => Reader::part(file, contents.find(&in_layout(digest))),
        }
    }

    /// A file by its name in the source.
    pub(super) fn named(&self, path: &Path) -> Result<Option<Reader>, Error> {
        let outside = || Error::NotAnArchive(format!("{} leads out of the source", path.display()));
        match self {
            Source::Directory(root) | Source::Registry(root) => {
                if path.components().any(|part| !matches!(part, Component::Normal(_))) {
                    return Err(outside());
                }
                let whole = |path: &Path| path.canonicalize().map_err(Error::io("find", path));
                match root.join(path).canonicalize() {
                    Ok(found) if !found.starts_with(whole(root)?) => Err(outside()),
                    Ok(found) => Reader::of(&found),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(Error::io("find", path)(error)),
                }
            }
            Source::Archive(file, contents) => Reader::part(file, contents.find(path)),
        }
    }
}

impl Reader {
    /// The file at `path`; `None` when there is none.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Error> {
        let Some(file) = open_regular(path)? else { return Ok(None) };
        let length = file.metadata().map_err(Error::io("read the length of", path))?.len();
        Ok(Some(Reader(file.take(length))))
    }

    fn part(file: &File, extent: Option<Extent>) -> Result<Option<Self>, Error> {
        let Some(Extent { offset, length }) = extent else { return Ok(None) };
        let failed = || Error::io("read", Path::new("the archive"));
        // All readers share the position in the file, and there is one reader at a time.
        let mut file = file.try_clone().map_err(failed())?;
        file.seek(SeekFrom::Start(offset)).map_err(failed())?;
        Ok(Some(Reader(file.take(length))))
    }

    /// The number of bytes left.
    pub(super) fn length(&self) -> u64 {
        self.0.limit()
    }

    /// The whole of a small file.
    pub(super) fn whole(mut self, limit: usize) -> Result<Vec<u8>, Error> {
        if self.length() > limit as u64 {
            return Err(Error::NotAnArchive(format!("a document is larger than {limit} bytes")));
        }
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).map_err(Error::io("read", Path::new("the archive")))?;
        Ok(bytes)
    }

    /// The next megabyte; `None` at the end.
    pub(super) fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        let mut piece = Vec::new();
        let got = self.0.by_ref().take(PIECE).read_to_end(&mut piece);
        let got = got.map_err(Error::io("read", Path::new("the archive")))?;
        Ok((got > 0).then(|| Bytes::from(piece)))
    }
}

/// Opens a regular file; `None` when nothing is there.
fn open_regular(path: &Path) -> Result<Option<File>, Error> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path)(error)),
    };
    if file.metadata().map_err(Error::io("read the metadata of", path))?.is_file() {
        Ok(Some(file))
    } else {
        Err(Error::NotAnArchive(format!("{} is not a file", path.display())))
    }
}
