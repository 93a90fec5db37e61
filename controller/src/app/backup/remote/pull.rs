//! Reads a backup of a registry into a directory, in the form of `shoal backup`.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::super::error::{BackupError, file};
use super::super::folder::require_room;
use super::super::names::{SUMMARY, SUMS};
use super::super::series::newest_of_each;
use super::super::summary::BackupSummary;
use super::super::verify::{SUMMARY_LENGTH, parse_summary};
use super::super::work::Work;
use super::artifact::{BackupManifest, Descriptor, FILE, FILES, digest_of_bytes, is_data};
use super::client::RemoteRegistry;
use super::error::RemoteBackupError;

/// The tar of small files, while it is unpacked.
const TAR: &str = "files.tar";

/// A backup of a registry that was found.
#[derive(Debug)]
pub(in super::super) struct Pulled {
    /// The tag or digest by which the backup was requested.
    pub(in super::super) name: String,
    /// The digest of the backup's manifest.
    pub(in super::super) digest: String,
    manifest: BackupManifest,
}

impl RemoteRegistry {
    /// Finds a backup by its tag or digest, or the newest one.
    ///
    /// # Errors
    /// When there is none, or the repository has backups of several controllers and none is named.
    pub(in super::super) async fn find(&self, name: Option<&str>) -> Result<Pulled, BackupError> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => {
                let mut newest = newest_of_each(self.tags().await?);
                match (newest.pop(), newest.is_empty()) {
                    (Some(name), true) => name,
                    (None, _) => return Err(self.unknown("shoal-…")),
                    (Some(last), false) => {
                        newest.push(last);
                        return Err(BackupError::SeveralSeries { place: self.place(), newest });
                    }
                }
            }
        };
        let bytes = self.manifest(&name).await?.ok_or_else(|| self.unknown(&name))?;
        let parsed = BackupManifest::parse(&bytes);
        let manifest = parsed.map_err(|reason| self.unexpected("read the backup", reason))?;
        Ok(Pulled { digest: digest_of_bytes(&bytes), name, manifest })
    }

    fn unknown(&self, name: &str) -> BackupError {
        RemoteBackupError::NotFound { registry: self.place(), name: name.to_owned() }.into()
    }

    /// Reads what a backup contains.
    pub(in super::super) async fn summary(
        &self,
        found: &Pulled,
        work: &Work,
    ) -> Result<BackupSummary, BackupError> {
        let config = self.config_of(found)?;
        let mut text = Vec::new();
        let add = &mut |chunk: &[u8]| {
            text.extend_from_slice(chunk);
            Ok(())
        };
        self.stream_blob(config, work, add).await?;
        parse_summary(Path::new(&found.name), &text)
    }

    /// The description of a backup, which is read into memory.
    fn config_of<'a>(&self, found: &'a Pulled) -> Result<&'a Descriptor, RemoteBackupError> {
        let config = &found.manifest.config;
        match config.size <= SUMMARY_LENGTH {
            true => Ok(config),
            false => Err(self.unexpected("read the backup", "a backup.json that is too long")),
        }
    }

    /// Writes a backup into an empty directory. Each blob has the digest of the manifest, and each file is on disk when this returns.
    pub(in super::super) async fn pull(
        &self,
        found: &Pulled,
        directory: &Path,
        work: &Work,
    ) -> Result<(), BackupError> {
        let config = self.config_of(found)?;
        let layers = &found.manifest.layers;
        let refused = |reason: &str| self.unexpected("read the backup", reason);
        let bytes = layers.iter().fold(config.size, |sum, layer| sum.saturating_add(layer.size));
        require_room(directory, bytes)?;
        self.pull_blob(config, &directory.join(SUMMARY), work).await?;
        for layer in layers {
            let title = layer.annotations.as_ref().and_then(|annotations| annotations.title.as_deref());
            match (layer.media_type.as_str(), title.map(Path::new)) {
                (FILE, Some(path)) if is_data(path) => {
                    self.pull_blob(layer, &directory.join(path), work).await?;
                }
                (FILES, _) => {
                    let tar = directory.join(TAR);
                    self.pull_blob(layer, &tar, work).await?;
                    unpack(&tar, directory)?;
                    fs::remove_file(&tar).map_err(file("remove", &tar))?;
                }
                _ => return Err(refused("a layer that no backup has").into()),
            }
        }
        Ok(())
    }

    async fn pull_blob(&self, blob: &Descriptor, path: &Path, work: &Work) -> Result<(), BackupError> {
        let mut written = create(path)?;
        let write = &mut |chunk: &[u8]| written.write_all(chunk).map_err(file("write", path));
        self.stream_blob(blob, work, write).await?;
        // What is restored may become another name of this file.
        written.sync_all().map_err(file("sync", path))
    }
}

fn create(path: &Path) -> Result<File, BackupError> {
    if let Some(above) = path.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(above);
        made.map_err(file("create", above))?;
    }
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(file("create", path))
}

/// Unpacks the small files. An entry that is no file of a backup is refused.
fn unpack(tar: &Path, directory: &Path) -> Result<(), BackupError> {
    let refused =
        || BackupError::Damaged { reason: "its small files have an entry that no backup has".to_owned() };
    let mut archive = tar::Archive::new(BufReader::new(File::open(tar).map_err(file("read", tar))?));
    for entry in archive.entries().map_err(file("read", tar))? {
        let mut entry = entry.map_err(file("read", tar))?;
        let path: PathBuf = entry.path().map_err(file("read", tar))?.into_owned();
        let known = path == Path::new(SUMS) || is_data(&path);
        if !known || entry.header().entry_type() != tar::EntryType::Regular {
            return Err(refused());
        }
        let target = directory.join(&path);
        // No entry is longer than the archive that has it.
        let mut written = create(&target)?;
        std::io::copy(&mut entry, &mut written).map_err(file("write", &target))?;
        written.sync_all().map_err(file("sync", &target))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_with_an_entry_outside_of_the_data_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let packed = |name: &str, kind: tar::EntryType| {
            let path = folder.path().join(uuid::Uuid::new_v4().to_string());
            let mut builder = tar::Builder::new(File::create(&path).unwrap());
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_entry_type(kind);
            // Written directly: the builder refuses such names itself.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, &b"x"[..]).unwrap();
            builder.into_inner().unwrap();
            path
        };
        for (name, kind) in [
            ("../escaped", tar::EntryType::Regular),
            ("data/../../escaped", tar::EntryType::Regular),
            ("/data/escaped", tar::EntryType::Regular),
            ("data/link", tar::EntryType::Symlink),
            ("backup.json", tar::EntryType::Regular),
        ] {
            let target = tempfile::tempdir_in(folder.path()).unwrap();
            let result = unpack(&packed(name, kind), target.path());
            assert!(matches!(result, Err(BackupError::Damaged { .. })), "{name}: {result:?}");
            assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0, "{name}");
        }
        let target = tempfile::tempdir_in(folder.path()).unwrap();
        unpack(&packed("data/oci/x", tar::EntryType::Regular), target.path()).unwrap();
        assert_eq!(fs::read(target.path().join("data/oci/x")).unwrap(), b"x");
    }
}
