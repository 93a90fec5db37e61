//! Copies files into a backup or out of it, with their digests.
//!
//! Content that is named by its digest may share its place on the disk with an earlier copy: a hard link instead of a second copy,
//! read and compared with its digest as a copy is.
//!
//! Invariant: every file is read whole once while it is written, is fsynced, and its length is that of its digest. A file that
//! disappears while it is copied is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256, Sha512};

use super::error::{BackupError, file};
use super::names::{BLOBS, DATA, DATABASE, LIBRARY, SUMMARY, SUMS, names, sync_directory};
use super::work::Work;
use model::failpoint;

/// When tags were pushed, by the paths of their records in the backup.
pub(super) type TagTimes = BTreeMap<PathBuf, SystemTime>;

/// The number of bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

/// The outcome of copying one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// The file is in the copy now.
    Done,
    /// The file was in the copy before.
    Before,
    /// The file does not exist any more.
    Gone,
    /// The content of the file does not have the digest of its name; the file is not in the copy.
    Damaged,
}

/// The file with which a copy of content shares its place on the disk.
#[derive(Clone, Debug, Default)]
pub(super) enum Sharing {
    /// The copy shares its place with nothing.
    #[default]
    Nothing,
    /// The copy shares its place with its source.
    Source,
    /// The copy shares its place with an earlier copy that has equal paths below this root.
    Earlier(PathBuf),
}

/// Writes below one directory.
pub(super) struct Copier {
    root: PathBuf,
    work: Work,
    sharing: Sharing,
    chunk: Vec<u8>,
    directories: BTreeSet<PathBuf>,
    /// Descriptions of content that was damaged or missing.
    pub(super) damaged: BTreeSet<String>,
    /// When the tags that were copied were pushed.
    pub(super) tag_times: TagTimes,
}

/// A digest that the name of a file promises.
#[derive(Clone, Debug)]
pub(super) enum Promised {
    Nothing,
    Sha256(String),
    Sha512(String),
}

impl Promised {
    /// The digest of content that is stored under `<algorithm>/<hex>`.
    pub(super) fn of(algorithm: &str, hex: &str) -> Self {
        match algorithm {
            "sha256" => Self::Sha256(hex.to_owned()),
            "sha512" => Self::Sha512(hex.to_owned()),
            _ => Self::Nothing,
        }
    }

    /// The digest that the place of a file in a backup promises.
    fn at(relative: &Path) -> Self {
        let below = |directory: &str| relative.strip_prefix(directory).ok()?.to_str();
        if let Some((algorithm, hex)) = below(BLOBS).and_then(|path| path.split_once('/')) {
            return Self::of(algorithm, hex);
        }
        below(LIBRARY)
            .and_then(|name| name.strip_suffix(".iso"))
            .map_or(Self::Nothing, |hex| Self::of("sha256", hex))
    }
}

/// The sums of a backup.
pub(super) struct Sums {
    /// The digest of the file of sums, in hex.
    pub(super) sha256: String,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Copier {
    pub(super) fn new(root: &Path) -> Result<Self, BackupError> {
        let directories = [root.to_owned()].into();
        let (work, sharing) = (Work::default(), Sharing::default());
        Ok(Self {
            root: root.to_owned(),
            work,
            sharing,
            chunk: vec![0; CHUNK],
            directories,
            damaged: BTreeSet::new(),
            tag_times: TagTimes::new(),
        })
    }

    pub(super) fn part_of(mut self, work: &Work, sharing: &Sharing) -> Self {
        (self.work, self.sharing) = (work.clone(), sharing.clone());
        self
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates a directory and those above it, below the root.
    pub(super) fn create_directory(&mut self, relative: &Path) -> Result<(), BackupError> {
        let path = self.root.join(relative);
        if self.directories.contains(&path) {
            return Ok(());
        }
        if let Some(above) = relative.parent().filter(|above| *above != Path::new("")) {
            self.create_directory(above)?;
        }
        create_directory(&path)?;
        self.directories.insert(path);
        Ok(())
    }

    /// Copies one file. A file that is in the copy is not copied again.
    pub(super) fn copy(
        &mut self,
        from: &Path,
        relative: &Path,
        promised: &Promised,
    ) -> Result<Copied, BackupError> {
        let target = self.root.join(relative);
        if target.exists() {
            return Ok(Copied::Before);
        }
        let mut source = match File::open(from) {
            Ok(source) => source,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Copied::Gone),
            Err(error) => return Err(file("read", from)(error)),
        };
        if let Some(above) = relative.parent() {
            self.create_directory(above)?;
        }
        if self.share(from, relative, promised)? {
            return Ok(Copied::Done);
        }
        let mut copy = create(&target)?;
        let name = relative.to_string_lossy();
        failpoint::hit_file("created", &name);
        let (mut sha256, mut sha512) = (Sha256::new(), Sha512::new());
        loop {
            let read = source.read(&mut self.chunk).map_err(file("read", from))?;
            let bytes = self.chunk.get(..read).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            match promised {
                Promised::Nothing => {}
                Promised::Sha256(_) => sha256.update(bytes),
                Promised::Sha512(_) => sha512.update(bytes),
            }
            copy.write_all(bytes).map_err(file("write", &target))?;
            self.work.advance(bytes.len() as u64)?;
        }
        let kept = match promised {
            Promised::Nothing => true,
            Promised::Sha256(hex) => hex::encode(sha256.finalize()) == *hex,
            Promised::Sha512(hex) => hex::encode(sha512.finalize()) == *hex,
        };
        if !kept {
            fs::remove_file(&target).map_err(file("remove", &target))?;
            self.damaged
                .insert(format!("{}: the content does not have the digest of its name", from.display()));
            return Ok(Copied::Damaged);
        }
        failpoint::hit_file("write", &name);
        copy.sync_all().map_err(file("sync", &target))?;
        failpoint::hit_file("synced", &name);
        Ok(Copied::Done)
    }

    /// Makes content a second name of an earlier copy, if there is one with the right bytes.
    fn share(&self, from: &Path, relative: &Path, promised: &Promised) -> Result<bool, BackupError> {
        let earlier = match (&self.sharing, promised) {
            (Sharing::Nothing, _) | (_, Promised::Nothing | Promised::Sha512(_)) => return Ok(false),
            // A database with two names starts no controller, and a restore may be killed before one of them is removed.
            (Sharing::Source, _) if from.ends_with(DATABASE) => return Ok(false),
            (Sharing::Source, _) => from.to_owned(),
            (Sharing::Earlier(root), _) => root.join(relative),
        };
        let target = self.root.join(relative);
        // No earlier copy, another disk, or a file system without hard links: the file is copied.
        if fs::hard_link(&earlier, &target).is_err() {
            return Ok(false);
        }
        let found = digest_of(&target, &self.work)?;
        if matches!(promised, Promised::Sha256(hex) if *hex == found.0) {
            return Ok(true);
        }
        fs::remove_file(&target).map_err(file("remove", &target))?;
        Ok(false)
    }

    /// Copies a small file that may change, and replaces an older copy of it.
    pub(super) fn copy_record(&mut self, from: &Path, relative: &Path) -> Result<Copied, BackupError> {
        let bytes = match fs::read(from) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Copied::Gone),
            Err(error) => return Err(file("read", from)(error)),
        };
        let target = self.root.join(relative);
        match fs::read(&target) {
            Ok(before) if before == bytes => return Ok(Copied::Before),
            Ok(_) => fs::remove_file(&target).map_err(file("replace", &target))?,
            Err(_not_there) => {}
        }
        self.write(relative, &bytes)?;
        Ok(Copied::Done)
    }

    /// Copies the maintenance images, which are named by their digests.
    pub(super) fn copy_library(&mut self, from: &Path, relative: &Path) -> Result<(), BackupError> {
        self.create_directory(relative)?;
        for name in names(from)? {
            let name = name?;
            let Some(hex) = name.strip_suffix(".iso").filter(|hex| hex.len() == 64) else { continue };
            self.copy(&from.join(&name), &relative.join(&name), &Promised::Sha256(hex.to_owned()))?;
        }
        Ok(())
    }

    /// Copies the master key, which must exist.
    pub(super) fn copy_secret(&mut self, from: &Path, relative: &Path) -> Result<(), BackupError> {
        match self.copy(from, relative, &Promised::Nothing)? {
            Copied::Done => Ok(()),
            _ => Err(BackupError::NoKey { reason: "there is no file master.key in the data directory" }),
        }
    }

    /// Writes a new file.
    pub(super) fn write(&mut self, relative: &Path, bytes: &[u8]) -> Result<(), BackupError> {
        if let Some(above) = relative.parent().filter(|above| *above != Path::new("")) {
            self.create_directory(above)?;
        }
        let target = self.root.join(relative);
        let mut written = create(&target)?;
        written.write_all(bytes).and_then(|()| written.sync_all()).map_err(file("write", &target))
    }

    /// Makes the names of all written files durable.
    pub(super) fn sync_directories(&self) -> Result<(), BackupError> {
        self.directories.iter().try_for_each(|directory| sync_directory(directory))
    }
}

/// Creates a directory that only its owner can use; one that exists is kept.
pub(super) fn create_directory(path: &Path) -> Result<(), BackupError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created.map_err(file("create", path)),
    }
}

fn create(path: &Path) -> Result<File, BackupError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(file("create", path))
}

/// The SHA-256 digest of a file in hex, and its length, read from the disk as far as the kernel permits it.
pub(super) fn digest_of(path: &Path, work: &Work) -> Result<(String, u64), BackupError> {
    let mut source = File::open(path).map_err(file("read", path))?;
    // Without this the bytes that were just written come from memory. A file system may refuse it.
    let _kept = rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed);
    let mut digest = Sha256::new();
    let (mut chunk, mut bytes) = (vec![0; CHUNK], 0);
    loop {
        let read = source.read(&mut chunk).map_err(file("read", path))?;
        let content = chunk.get(..read).unwrap_or_default();
        if content.is_empty() {
            return Ok((hex::encode(digest.finalize()), bytes));
        }
        digest.update(content);
        bytes += content.len() as u64;
        work.advance(content.len() as u64)?;
    }
}

/// Reads every file of a backup again from the disk and writes the sums. Content without the digest of its name is an error: its source
/// had that digest when it was copied.
pub(super) fn sums_of(root: &Path, work: &Work) -> Result<Sums, BackupError> {
    let path = root.join(SUMS);
    let mut sums = BufWriter::new(create(&path)?);
    let mut digest = Sha256::new();
    let (mut files, mut bytes) = (0, 0);
    walk(root, Path::new(DATA), &mut |relative| {
        let path_of_copy = root.join(relative);
        let (hex, length) = digest_of(&path_of_copy, work)?;
        if matches!(Promised::at(relative), Promised::Sha256(promised) if promised != hex) {
            return Err(BackupError::Miswritten { path: path_of_copy });
        }
        let line = format!("{hex}  {}\n", relative.display());
        digest.update(line.as_bytes());
        (files, bytes) = (files + 1, bytes + length);
        sums.write_all(line.as_bytes()).map_err(file("write", &path))
    })?;
    let sums = sums.into_inner().map_err(|error| file("write", &path)(error.into_error()))?;
    sums.sync_all().map_err(file("sync", &path))?;
    Ok(Sums { sha256: hex::encode(digest.finalize()), files, bytes })
}

/// Visits every file below a directory of a backup. Other kinds of entries are an error: a backup has none.
pub(super) fn walk(
    root: &Path,
    relative: &Path,
    visit: &mut dyn FnMut(&Path) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    for name in names(&root.join(relative))? {
        let below = relative.join(name?);
        let path = root.join(&below);
        let kind = path.symlink_metadata().map_err(file("read", &path))?.file_type();
        match (kind.is_dir(), kind.is_file()) {
            (true, _) => walk(root, &below, visit)?,
            (_, true) => visit(&below)?,
            _ => {
                let reason = format!("{} is neither a file nor a directory", below.display());
                return Err(BackupError::Damaged { reason });
            }
        }
    }
    Ok(())
}

/// The path of a line of the sums, if it stays below the data of a backup.
pub(super) fn line_of(line: &str) -> Option<(&str, &Path)> {
    line_of_data(line).filter(|(hex, _)| hex.len() == 64)
}

/// Splits a line into its text and its path, if the path stays below the data of a backup.
pub(super) fn line_of_data(line: &str) -> Option<(&str, &Path)> {
    let (said, path) = line.split_once("  ")?;
    let path = Path::new(path);
    let inside = path.starts_with(DATA)
        && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
        && path != Path::new(SUMMARY);
    inside.then_some((said, path))
}
