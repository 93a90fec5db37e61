//! One layer onto the tree: members in the order of the archive, whiteouts against what lower layers left.
//!
//! ```text
//! file, link, device   what has the name is removed, then the member is created exclusively
//! directory            stays if it is one, and gets the metadata of the member
//! .wh.NAME             NAME of lower layers is removed
//! .wh..wh..opq         everything of lower layers in this directory is removed
//! ```
//!
//! A whiteout does not touch what its own layer created, wherever it stands in the archive: the files of this layer are
//! remembered by device and inode. Times of directories are set last, because a new entry changes them.

use std::{
    collections::HashSet,
    io::{self, Read},
    os::{fd::AsFd, unix::fs::FileExt},
};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::archive::{Archive, Member, MemberKind};
use super::refusal::{is_refusal, refused};
use super::tree::{FileId, LayerTree, Metadata, Place, empty_folder, file_id, is_folder, times};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const BUFFER: usize = 256 * 1024;
/// Maximum number of members of one layer.
pub const MAX_MEMBERS: u64 = 4_000_000;

/// The counts of one applied layer: members, bytes of content, extended attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The number of members.
    pub members: u64,
    /// Bytes of file content that were written.
    pub bytes: u64,
    /// Extended attributes that the file system does not take.
    pub skipped_attributes: u64,
}

/// A layer cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The archive cannot be read.
    #[error("reading the layer: {reason}{advice}")]
    Archive {
        /// The cause with its own causes.
        reason: String,
        /// What to do about it, appended to the message.
        advice: &'static str,
    },
    /// A member cannot be created, or is refused.
    #[error("applying {path:?}: {reason}{advice}")]
    Member {
        /// The path, shortened.
        path: String,
        /// The cause with its own causes.
        reason: String,
        /// The meaning of the cause and what to do about it, appended to the message.
        advice: &'static str,
    },
    /// The layer has too many members.
    #[error("the layer has more than {MAX_MEMBERS} members; build the image again with fewer")]
    TooMany,
}

/// Applies one layer to the tree. `progress` receives the number of bytes written so far.
///
/// # Errors
/// Returns an error when the archive is damaged, a member would leave the tree, or the file system refuses it. The tree is
/// incomplete then.
pub fn apply(
    layer: impl Read,
    tree: &LayerTree,
    progress: &mut dyn FnMut(u64),
) -> Result<Applied, LayerError> {
    apply_members(MAX_MEMBERS, layer, tree, progress)
}

/// Applies a layer of at most so many members.
pub(super) fn apply_members(
    most: u64,
    layer: impl Read,
    tree: &LayerTree,
    progress: &mut dyn FnMut(u64),
) -> Result<Applied, LayerError> {
    let mut archive = Archive::new(layer);
    let mut run = Run { tree, created: HashSet::new(), folders: Vec::new(), applied: Applied::default() };
    while let Some(member) = archive.next_member().map_err(|source| unread(&source))? {
        run.applied.members += 1;
        if run.applied.members > most {
            return Err(LayerError::TooMany);
        }
        run.member(&member, &mut archive).map_err(|source| failed(&member.path, &source))?;
        progress(run.applied.bytes);
    }
    for (path, mtime) in std::mem::take(&mut run.folders) {
        run.folder_time(&path, mtime).map_err(|source| failed(&path, &source))?;
    }
    Ok(run.applied)
}

fn unread(source: &io::Error) -> LayerError {
    // The reader of the blob has its own words: the image is not at fault when a connection breaks.
    let advice = if is_refusal(source) { "; build the image again" } else { "" };
    LayerError::Archive { reason: crate::discovery::chain(source), advice }
}

fn failed(path: &[u8], source: &io::Error) -> LayerError {
    let advice = match source.kind() {
        io::ErrorKind::StorageFull => "; the file system is full: use a larger partition",
        io::ErrorKind::CrossesDevices => {
            "; a hard link leads to another volume: keep both in one volume of partition_layout"
        }
        _ if is_refusal(source) => "; build the image again without this member",
        _ => "",
    };
    let path = String::from_utf8_lossy(path).chars().take(200).collect();
    LayerError::Member { path, reason: crate::discovery::chain(source), advice }
}

/// Returns the error of a symbolic link that cannot be created. EPERM is that of a file system without links.
pub(super) fn of_links(source: Errno) -> io::Error {
    match source {
        Errno::PERM => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "its file system has no links, as vfat has none: use ext4 for this volume of partition_layout",
        ),
        source => source.into(),
    }
}

struct Run<'tree> {
    tree: &'tree LayerTree,
    /// The files that this layer created.
    created: HashSet<FileId>,
    /// Directories of this layer with their times.
    folders: Vec<(Vec<u8>, (i64, u32))>,
    applied: Applied,
}

impl Run<'_> {
    fn member(&mut self, member: &Member, data: &mut impl Read) -> io::Result<()> {
        let names = LayerTree::names(&member.path)?;
        let Some((last, parents)) = names.split_last() else {
            // The root itself: its metadata is that of the new system's root.
            if member.kind != MemberKind::Directory {
                return Err(refused("the root of a layer is not a directory"));
            }
            let root = self.tree.folder(&[], false)?;
            self.applied.skipped_attributes += self.tree.set(root.as_fd(), &metadata(member))?;
            return Ok(());
        };
        if *last == OPAQUE {
            return self.make_opaque(parents);
        }
        if let Some(name) = last.strip_prefix(WHITEOUT) {
            return self.white_out(parents, name);
        }
        let place = self.tree.place(&names)?;
        let existing = place.stat()?;
        if member.kind == MemberKind::Directory && existing.as_ref().is_some_and(is_folder) {
            return self.folder(member, &place);
        }
        if let MemberKind::Hardlink(target) = &member.kind {
            return self.hard_link(&place, target);
        }
        if let Some(existing) = existing {
            place.clear()?;
            self.created.remove(&file_id(&existing));
        }
        match &member.kind {
            MemberKind::Directory => {
                rustix::fs::mkdirat(&place.folder, place.os_name(), Mode::from_raw_mode(0o700))?;
                self.folder(member, &place)?;
            }
            MemberKind::File => self.file(member, &place, data)?,
            MemberKind::Symlink(target) => {
                if target.is_empty() || target.contains(&0) {
                    return Err(refused("a link has no valid target"));
                }
                rustix::fs::symlinkat(target.as_slice(), &place.folder, place.os_name()).map_err(of_links)?;
                self.tree.set_at(&place, &metadata(member), true)?;
            }
            MemberKind::CharDevice(major, minor) => {
                self.node(member, &place, FileType::CharacterDevice, *major, *minor)?
            }
            MemberKind::BlockDevice(major, minor) => {
                self.node(member, &place, FileType::BlockDevice, *major, *minor)?
            }
            MemberKind::Fifo => self.node(member, &place, FileType::Fifo, 0, 0)?,
            MemberKind::Hardlink(_) => {}
        }
        self.remember(&place)
    }

    fn remember(&mut self, place: &Place<'_>) -> io::Result<()> {
        if let Some(stat) = place.stat()? {
            self.created.insert(file_id(&stat));
        }
        Ok(())
    }

    fn folder(&mut self, member: &Member, place: &Place<'_>) -> io::Result<()> {
        let folder = place.open_folder()?;
        self.applied.skipped_attributes += self.tree.set(folder.as_fd(), &metadata(member))?;
        self.folders.push((member.path.clone(), member.mtime));
        self.remember(place)
    }

    fn file(&mut self, member: &Member, place: &Place<'_>, data: &mut impl Read) -> io::Result<()> {
        let file = place.create_file()?;
        let whole = [(0, member.size)];
        let ranges = member.ranges.as_deref().unwrap_or(&whole);
        if member.ranges.is_some() {
            file.set_len(member.size)?;
        }
        let mut buffer = vec![0; BUFFER.min(usize::try_from(member.size).unwrap_or(BUFFER)).max(1)];
        for (offset, length) in ranges {
            let mut done = 0;
            while done < *length {
                let wanted = usize::try_from(length - done).unwrap_or(BUFFER).min(buffer.len());
                data.read_exact(&mut buffer[..wanted])?;
                file.write_all_at(&buffer[..wanted], offset + done)?;
                done += wanted as u64;
            }
            self.applied.bytes += length;
        }
        self.applied.skipped_attributes += self.tree.set(file.as_fd(), &metadata(member))?;
        Ok(())
    }

    fn node(
        &self,
        member: &Member,
        place: &Place<'_>,
        kind: FileType,
        major: u32,
        minor: u32,
    ) -> io::Result<()> {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(&place.folder, place.os_name(), kind, Mode::from_raw_mode(0o600), device)?;
        self.tree.set_at(place, &metadata(member), false)
    }

    fn hard_link(&mut self, place: &Place<'_>, target: &[u8]) -> io::Result<()> {
        let shown = String::from_utf8_lossy(target).chars().take(200).collect::<String>();
        let of_target = |reason: &str| refused(&format!("it is a hard link to {shown:?}: {reason}"));
        let names = LayerTree::names(target).map_err(|source| of_target(&source.to_string()))?;
        let (last, parents) = names.split_last().ok_or_else(|| of_target("that is the root itself"))?;
        let missing = || of_target("that does not exist");
        let folder = self.tree.folder(parents, false).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => missing(),
            _ => source,
        })?;
        let source = Place { folder, name: last };
        let stat = source.stat()?.ok_or_else(missing)?;
        if is_folder(&stat) {
            return Err(of_target("that is a directory"));
        }
        if let Some(existing) = place.stat()? {
            if existing.st_ino == stat.st_ino && existing.st_dev == stat.st_dev {
                return Ok(());
            }
            place.clear()?;
            self.created.remove(&file_id(&existing));
        }
        let linked = rustix::fs::linkat(
            &source.folder,
            source.os_name(),
            &place.folder,
            place.os_name(),
            AtFlags::empty(),
        );
        match linked {
            Err(Errno::PERM) => self.applied.bytes += source.copy_to(place)?,
            linked => linked?,
        }
        self.remember(place)
    }

    fn white_out(&mut self, parents: &[&[u8]], name: &[u8]) -> io::Result<()> {
        if name.is_empty() || name == b"." || name == b".." {
            return Err(refused("a whiteout names no file"));
        }
        match self.tree.folder(parents, false) {
            Ok(folder) => Place { folder, name }.remove(&|file| self.created.contains(&file)).map(|_| ()),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(source),
        }
    }

    fn make_opaque(&mut self, parents: &[&[u8]]) -> io::Result<()> {
        match self.tree.folder(parents, false) {
            Ok(folder) => empty_folder(folder.as_fd(), &|file| self.created.contains(&file)).map(|_| ()),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(source),
        }
    }

    /// Sets the time of a directory that this layer created or changed, if it is still one.
    fn folder_time(&self, path: &[u8], mtime: (i64, u32)) -> io::Result<()> {
        let names = LayerTree::names(path)?;
        let place = self.tree.place(&names)?;
        if place.stat()?.as_ref().is_some_and(is_folder) {
            rustix::fs::futimens(place.open_folder()?, &times(mtime))?;
        }
        Ok(())
    }
}

fn metadata(member: &Member) -> Metadata<'_> {
    Metadata {
        mode: member.mode,
        uid: member.uid,
        gid: member.gid,
        mtime: member.mtime,
        xattrs: &member.xattrs,
    }
}
