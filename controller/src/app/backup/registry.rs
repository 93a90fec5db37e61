//! Copies the storage of a registry that may be in use. The layout is described in `registry/src/store/mod.rs`.
//!
//! ```text
//!   repos/*:  _tags -> _manifests -> _referrers, _pins -> _layers      then blobs/<algorithm>/*
//! ```
//!
//! A push writes in the opposite order: blobs and layer records, then the manifest, then its tag. So what a copied record needs was
//! there when the record was copied, and it is in the copy unless it was deleted meanwhile. Layouts, uploads, quarantine and the
//! state of the scrub are not copied: a registry derives or begins them again at its start.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::copy::{Copied, Copier, Promised};
use super::error::{BackupError, file};
use super::names::{REGISTRY, names};

/// The records of tags. Each is a file of its own, directly below.
const TAGS: &str = "_tags";
/// The records of a repository, in the order of copying.
const RECORDS: [&str; 5] = [TAGS, "_manifests", "_referrers", "_pins", "_layers"];
/// The maximum depth of records below a repository.
const DEPTH: usize = 4;
/// The longest manifest whose references are checked, in bytes.
const MANIFEST: u64 = 16 << 20;

/// Copies records and content; what an earlier call copied is not copied again, except changed records.
pub(super) fn copy(copier: &mut Copier, storage: &Path) -> Result<(), BackupError> {
    let target = Path::new(REGISTRY);
    copier.create_directory(target)?;
    for repository in names(&storage.join("repos"))? {
        let repository = repository?;
        for records in RECORDS {
            let below = Path::new("repos").join(&repository).join(records);
            copy_records(copier, storage, &below, DEPTH)?;
        }
    }
    for algorithm in names(&storage.join("blobs"))? {
        let algorithm = algorithm?;
        for hex in names(&storage.join("blobs").join(&algorithm))? {
            copy_blob(copier, storage, &algorithm, &hex?)?;
        }
    }
    Ok(())
}

fn copy_records(copier: &mut Copier, storage: &Path, below: &Path, depth: usize) -> Result<(), BackupError> {
    if depth == 0 {
        return Ok(());
    }
    for name in names(&storage.join(below))? {
        let record = below.join(name?);
        let path = storage.join(&record);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => copy_records(copier, storage, &record, depth - 1)?,
            Ok(found) if found.is_file() => {
                let copy = Path::new(REGISTRY).join(&record);
                let copied = copier.copy_record(&path, &copy)?;
                if below.ends_with(TAGS) && copied != Copied::Gone {
                    let pushed = found.modified().map_err(file("read the age of", &path))?;
                    copier.tag_times.insert(copy, pushed);
                }
            }
            // Deleted meanwhile, or nothing that the registry writes.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

fn copy_blob(copier: &mut Copier, storage: &Path, algorithm: &str, hex: &str) -> Result<Copied, BackupError> {
    let below = Path::new("blobs").join(algorithm).join(hex);
    copier.copy(&storage.join(&below), &Path::new(REGISTRY).join(&below), &Promised::of(algorithm, hex))
}

/// Checks that every manifest in the copy has its content, and adds what is missing. A manifest that was deleted meanwhile is removed
/// from the copy; content that the registry itself does not have is recorded as missing.
pub(super) fn complete(copier: &mut Copier, storage: &Path) -> Result<(), BackupError> {
    let copied = copier.root().join(REGISTRY);
    for repository in names(&copied.join("repos"))? {
        let repository = repository?;
        let records = Path::new("repos").join(&repository).join("_manifests");
        for algorithm in names(&copied.join(&records))? {
            let algorithm = algorithm?;
            for hex in names(&copied.join(&records).join(&algorithm))? {
                let hex = hex?;
                let record = records.join(&algorithm).join(&hex);
                if has(copier, storage, &algorithm, &hex)? {
                    references(copier, storage, &copied.join("blobs").join(&algorithm).join(&hex))?;
                } else if storage.join(&record).exists() {
                    let missing = format!("{repository}@{algorithm}:{hex}: the manifest has no content");
                    copier.damaged.insert(missing);
                } else {
                    let path = copied.join(&record);
                    fs::remove_file(&path).map_err(file("remove", &path))?;
                }
            }
        }
    }
    Ok(())
}

/// Whether content is in the copy, after an attempt to add it.
fn has(copier: &mut Copier, storage: &Path, algorithm: &str, hex: &str) -> Result<bool, BackupError> {
    Ok(matches!(copy_blob(copier, storage, algorithm, hex)?, Copied::Done | Copied::Before))
}

/// Adds the content that a manifest refers to. A manifest may refer to content that the registry does not have (a partial mirror), so
/// missing content is no error.
fn references(copier: &mut Copier, storage: &Path, manifest: &Path) -> Result<(), BackupError> {
    let length = manifest.metadata().map_err(file("read", manifest))?.len();
    if length > MANIFEST {
        return Ok(());
    }
    let bytes = fs::read(manifest).map_err(file("read", manifest))?;
    // Content of another kind has no references.
    let Ok(document) = serde_json::from_slice::<Value>(&bytes) else { return Ok(()) };
    let lists =
        ["layers", "manifests", "blobs"].map(|name| document[name].as_array().cloned().unwrap_or_default());
    for descriptor in lists.iter().flatten().chain([&document["config"], &document["subject"]]) {
        if let Some((algorithm, hex)) =
            descriptor["digest"].as_str().and_then(|digest| digest.split_once(':'))
            && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
            && matches!(algorithm, "sha256" | "sha512")
        {
            has(copier, storage, algorithm, hex)?;
        }
    }
    Ok(())
}
