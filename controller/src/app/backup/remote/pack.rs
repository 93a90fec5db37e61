//! Divides a backup in a directory into the layers of an artifact. Blocks on the disk.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::super::copy::{digest_of, line_of};
use super::super::error::{BackupError, file};
use super::super::names::{SUMMARY, SUMS};
use super::super::summary::BackupSummary;
use super::super::work::Work;
use super::artifact::{Annotations, BackupManifest, CONFIG, Descriptor, FILE, FILES, digest_of_bytes};

/// A file of this length or more is a layer of its own.
const LARGE: u64 = 1 << 20;
/// The maximum of such layers: their descriptions must fit into a manifest. Further large files are in the tar.
const MAX_LAYERS: usize = 8000;
/// The tar of small files, beside the backup.
const TAR: &str = "files.tar";

/// A blob of an artifact and the file that has its bytes.
#[derive(Clone, Debug)]
pub(super) struct LocalBlob {
    pub(super) path: PathBuf,
    pub(super) descriptor: Descriptor,
}

/// A backup in the form of an artifact.
#[derive(Debug)]
pub(in super::super) struct Packed {
    pub(super) blobs: Vec<LocalBlob>,
    pub(super) manifest: Vec<u8>,
    /// The digest of the manifest.
    pub(in super::super) digest: String,
}

/// Packs a complete backup. Writes the tar of its small files beside them.
pub(in super::super) fn pack(
    root: &Path,
    summary: &BackupSummary,
    work: &Work,
) -> Result<Packed, BackupError> {
    let tar_path = root.join(TAR);
    let tar_file = File::create_new(&tar_path).map_err(file("create", &tar_path))?;
    let mut tar = tar::Builder::new(BufWriter::new(tar_file));
    add(&mut tar, root, Path::new(SUMS))?;
    let mut blobs = Vec::new();
    let sums = root.join(SUMS);
    for line in BufReader::new(File::open(&sums).map_err(file("read", &sums))?).lines() {
        let line = line.map_err(file("read", &sums))?;
        let Some((hex, relative)) = line_of(&line) else { continue };
        let path = root.join(relative);
        let size = path.metadata().map_err(file("read", &path))?.len();
        work.advance(0)?;
        if size < LARGE || blobs.len() == MAX_LAYERS {
            add(&mut tar, root, relative)?;
            continue;
        }
        let title = Some(relative.display().to_string());
        let annotations = Some(Annotations { title, created: None });
        let digest = format!("sha256:{hex}");
        blobs.push(LocalBlob {
            path,
            descriptor: Descriptor { media_type: FILE.to_owned(), digest, size, annotations },
        });
    }
    let written = tar.into_inner().and_then(|mut written| written.flush());
    written.map_err(file("write", &tar_path))?;
    blobs.insert(0, blob_of(&tar_path, FILES, work)?);
    let config = blob_of(&root.join(SUMMARY), CONFIG, work)?;
    let layers = blobs.iter().map(|blob| blob.descriptor.clone()).collect();
    let manifest = BackupManifest::new(config.descriptor.clone(), layers, summary.made_at.to_string());
    blobs.push(config);
    let manifest = serde_json::to_vec(&manifest).map_err(|error| file("write", &tar_path)(error.into()))?;
    let digest = digest_of_bytes(&manifest);
    Ok(Packed { blobs, manifest, digest })
}

fn blob_of(path: &Path, media_type: &str, work: &Work) -> Result<LocalBlob, BackupError> {
    let (hex, size) = digest_of(path, work)?;
    let digest = format!("sha256:{hex}");
    let descriptor = Descriptor { media_type: media_type.to_owned(), digest, size, annotations: None };
    Ok(LocalBlob { path: path.to_owned(), descriptor })
}

/// Adds a file with a header that depends on nothing but the file.
fn add(tar: &mut tar::Builder<BufWriter<File>>, root: &Path, relative: &Path) -> Result<(), BackupError> {
    let path = root.join(relative);
    let content = File::open(&path).map_err(file("read", &path))?;
    let mut header = tar::Header::new_gnu();
    header.set_size(content.metadata().map_err(file("read", &path))?.len());
    header.set_mode(0o600);
    header.set_mtime(0);
    tar.append_data(&mut header, relative, BufReader::new(content)).map_err(file("pack", &path))
}
