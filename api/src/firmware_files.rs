//! Firmware files in the registry of the controller, and who holds them.
//!
//! ```text
//!   push of the bytes to /v2/firmware/VENDOR/COMPONENT ──> add: description checked, manifest written ──> listed
//!   `oras push` of an artifact ───────────────────────────────────────────────────────────────────────^
//!   set created ──> pin, then row        set deleted ──> row, then unpin       start ──> pins and rows made equal
//!   run ──hold──> pin ──release──> unpin
//!   open ──> manifest, bytes read and hashed ──> VerifiedFirmware
//! ```
//!
//! The registry is the only place of the files: nothing of them is stored a second time, except the manifests of a set.
//!
//! Invariants: what a set or a run holds is neither collected nor deleted; a set exists only while its pins do, except between a
//! crash and the next start; bytes leave through [`FirmwareFiles::open`] only, which hashes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use registry::{PinOwner, Reference, Registry, RepositoryName, Tag};
use tokio::sync::Mutex;

use firmware::{
    ARTIFACT_TYPE, EMPTY_CONFIG, FirmwareFile, MANIFEST_TYPE, REPOSITORIES, VerifiedFirmware, VerifyError,
    VersionOrder, compare,
};
use model::{RunId, error_chain};
use store::StoredFirmwareSet;

/// The most tags below `firmware/` that are read for one list.
const MAX_LISTED: usize = 20_000;
/// The beginning of the owner of a set's pins.
const SET_OWNER: &str = "firmware-set ";

/// The owner of a run's pins, which `shoal registry` shows as for OS images.
const RUN_OWNER: &str = "job ";

/// The firmware files of the controller. Clones share them.
#[derive(Clone)]
pub struct FirmwareFiles {
    registry: Registry,
    /// One addition at a time, so that of two equal ones the second finds the first.
    adding: Arc<Mutex<()>>,
}

/// A firmware file in the registry.
#[derive(Clone, Debug)]
pub struct StoredFirmware {
    /// The repository.
    pub repository: RepositoryName,
    /// The digest of the manifest.
    pub digest: registry::Digest,
    /// The tags that name the manifest.
    pub tags: Vec<Tag>,
    /// The manifest.
    pub manifest: Bytes,
    /// The description of the firmware file.
    pub file: FirmwareFile,
}

/// An artifact below `firmware/` that cannot be used.
#[derive(Clone, Debug)]
pub struct UnusableFirmware {
    /// The repository.
    pub repository: RepositoryName,
    /// The digest of the manifest.
    pub digest: registry::Digest,
    /// The reason.
    pub reason: String,
}

/// The firmware artifacts below `firmware/` in the registry.
#[derive(Clone, Debug, Default)]
pub struct FirmwareList {
    /// The files, by component, vendor, version and digest.
    pub files: Vec<StoredFirmware>,
    /// The artifacts that are declared as firmware and cannot be used.
    pub unusable: Vec<UnusableFirmware>,
}

/// The result of adding a file.
#[derive(Debug)]
pub enum Added {
    /// The file was added.
    New(StoredFirmware),
    /// A file with equal bytes and an equal description is there.
    Same(StoredFirmware),
    /// Another file for the same component, model and version is there.
    Duplicate(Box<StoredFirmware>),
}

/// Why an operation on firmware files failed.
#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    /// The registry failed or refused.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// The bytes are not those that were recorded.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The manifest cannot be used.
    #[error("the artifact {digest} cannot be used: {reason}")]
    Unusable {
        /// The manifest.
        digest: String,
        /// The reason.
        reason: String,
    },
    /// A name is no name of the registry.
    #[error("{0:?} is no name of the registry")]
    Name(String),
    /// There are too many files.
    #[error(
        "there are more than {MAX_LISTED} tags below {REPOSITORIES}; remove some with `shoal firmware remove`"
    )]
    TooMany,
    /// The process is stopping.
    #[error("the operation was stopped because the process is stopping")]
    Stopped,
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, FirmwareError> {
    text.parse().map_err(|_| FirmwareError::Name(text.chars().take(200).collect()))
}

impl FirmwareFiles {
    /// The firmware files in a registry.
    pub fn new(registry: Registry) -> Self {
        Self { registry, adding: Arc::default() }
    }

    /// Reads every artifact below `firmware/` that a tag names.
    ///
    /// # Errors
    /// [`FirmwareError::TooMany`], or when the registry fails.
    pub async fn list(&self) -> Result<FirmwareList, FirmwareError> {
        let mut list = FirmwareList::default();
        let mut seen = 0;
        for repository in self.registry.repositories().await {
            if !repository.as_str().starts_with(REPOSITORIES) {
                continue;
            }
            let tags = match self.registry.tags(&repository).await {
                // Deleted meanwhile.
                Err(registry::Error::RepositoryUnknown) => continue,
                tags => tags?,
            };
            seen += tags.len();
            if seen > MAX_LISTED {
                return Err(FirmwareError::TooMany);
            }
            self.list_repository(&repository, tags, &mut list).await?;
        }
        let key = |one: &StoredFirmware| {
            let FirmwareFile { component, vendor, .. } = &one.file;
            (*component, vendor.clone(), one.file.version().as_str().to_owned(), one.digest.to_string())
        };
        list.files.sort_by_cached_key(key);
        Ok(list)
    }

    async fn list_repository(
        &self,
        repository: &RepositoryName,
        tags: Vec<Tag>,
        list: &mut FirmwareList,
    ) -> Result<(), FirmwareError> {
        let mut by_digest: BTreeMap<registry::Digest, (Bytes, Vec<Tag>)> = BTreeMap::new();
        let mut broken = Vec::new();
        for tag in tags {
            match self.registry.resolve(repository, &Reference::Tag(tag.clone())).await {
                Ok(manifest) => {
                    by_digest.entry(manifest.digest).or_insert((manifest.bytes, Vec::new())).1.push(tag);
                }
                Err(registry::Error::ManifestUnknown) => {}
                Err(registry::Error::Corrupted(digest)) => broken.push(digest),
                Err(error) => return Err(error.into()),
            }
        }
        for digest in broken {
            let reason = "its manifest is corrupted; push it again".to_owned();
            list.unusable.push(UnusableFirmware { repository: repository.clone(), digest, reason });
        }
        for (digest, (manifest, tags)) in by_digest {
            let repository = repository.clone();
            match firmware::read_manifest(&manifest) {
                Ok(Some(file)) => {
                    list.files.push(StoredFirmware { repository, digest, tags, manifest, file });
                }
                Ok(None) => {
                    let reason = format!("its artifact type is not {ARTIFACT_TYPE}");
                    list.unusable.push(UnusableFirmware { repository, digest, reason });
                }
                Err(why) => {
                    list.unusable.push(UnusableFirmware { repository, digest, reason: why.to_string() });
                }
            }
        }
        Ok(())
    }

    /// The file with this digest of its manifest.
    ///
    /// # Errors
    /// When the registry fails.
    pub async fn find(&self, digest: &str) -> Result<Option<StoredFirmware>, FirmwareError> {
        let list = self.list().await?;
        Ok(list.files.into_iter().find(|stored| stored.digest.to_string() == digest))
    }

    /// Makes a file of a blob that was pushed to the repository of its vendor and component. Durable when this returns.
    ///
    /// # Errors
    /// [`registry::Error::ReferencesUnknown`] when the blob was not pushed, [`registry::Error::WrongSize`] when it has another length, and
    /// those of a push.
    pub async fn add(&self, file: FirmwareFile) -> Result<Added, FirmwareError> {
        let _one_at_a_time = self.adding.lock().await;
        let manifest = Bytes::from(firmware::manifest(&file));
        let digest = registry::Digest::of(registry::Algorithm::Sha256, &manifest);
        for stored in self.list().await?.files {
            if stored.digest == digest {
                return Ok(Added::Same(stored));
            }
            let same_version = compare(stored.file.version(), file.version()) == VersionOrder::Same;
            if same_version && stored.file.overlaps(&file) {
                return Ok(Added::Duplicate(Box::new(stored)));
            }
        }
        let repository: RepositoryName = parsed(&firmware::repository(&file.vendor, file.component))?;
        let tag: Tag = parsed(&firmware::tag(&file, digest.hex()))?;
        self.expect_blob(&file).await?;
        self.registry.put_blob(&repository, Bytes::from_static(EMPTY_CONFIG)).await?;
        self.registry.put_manifest(&repository, &tag, MANIFEST_TYPE, manifest.clone()).await?;
        Ok(Added::New(StoredFirmware { repository, digest, tags: vec![tag], manifest, file }))
    }

    /// Refuses a description whose bytes were not pushed, before anything is written.
    async fn expect_blob(&self, file: &FirmwareFile) -> Result<(), FirmwareError> {
        let digest: registry::Digest = parsed(&file.sha256.to_string())?;
        match self.registry.blob(&digest).await {
            Ok(blob) if blob.length() == file.size => Ok(()),
            Ok(blob) => {
                Err(registry::Error::WrongSize { digest, described: file.size, actual: blob.length() }.into())
            }
            Err(registry::Error::BlobUnknown) => {
                Err(registry::Error::ReferencesUnknown(vec![digest.to_string()]).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file. Its bytes are collected after the grace period of the registry.
    ///
    /// # Errors
    /// [`registry::Error::Pinned`] while a set or a run holds it, and those of a deletion.
    pub async fn remove(&self, stored: &StoredFirmware) -> Result<(), FirmwareError> {
        Ok(self.registry.delete_manifest(&stored.repository, &stored.digest).await?)
    }

    /// Reads and hashes a file. Only what this returns may be sent to a BMC.
    ///
    /// # Errors
    /// [`FirmwareError::Verify`] when the bytes are not the recorded ones; nothing may be sent then.
    pub async fn open(&self, repository: &str, digest: &str) -> Result<VerifiedFirmware, FirmwareError> {
        let (repository, digest): (RepositoryName, registry::Digest) = (parsed(repository)?, parsed(digest)?);
        let manifest = self.registry.resolve(&repository, &Reference::Digest(digest.clone())).await?;
        let unusable = |reason| FirmwareError::Unusable { digest: digest.to_string(), reason };
        let file = firmware::read_manifest(&manifest.bytes)
            .map_err(|why| unusable(why.to_string()))?
            .ok_or_else(|| unusable(format!("its artifact type is not {ARTIFACT_TYPE}")))?;
        let blob = self.registry.blob(&parsed(&file.sha256.to_string())?).await?;
        let check = move || VerifiedFirmware::check(Arc::clone(blob.file()), file);
        Ok(tokio::task::spawn_blocking(check).await.map_err(|_| FirmwareError::Stopped)??)
    }

    /// Holds files for a set until [`Self::release_set`].
    ///
    /// # Errors
    /// When a file is gone or the registry fails; nothing is held then.
    pub async fn hold_for_set(&self, set: &StoredFirmwareSet) -> Result<(), FirmwareError> {
        let owner: PinOwner = parsed(&format!("{SET_OWNER}{}", set.id))?;
        let files = set.files.iter().map(|file| (file.repository.as_str(), file.digest.as_str()));
        self.hold(files, &owner).await
    }

    /// Ends the hold of a set.
    ///
    /// # Errors
    /// When the registry fails; the next start ends it.
    pub async fn release_set(&self, id: &str) -> Result<(), FirmwareError> {
        self.release(&parsed(&format!("{SET_OWNER}{id}"))?).await
    }

    /// Holds files, as repository and digest, for a run until [`Self::release_run`].
    ///
    /// # Errors
    /// When a file is gone or the registry fails; nothing is held then.
    pub async fn hold_for_run(&self, run: RunId, files: &[(&str, &str)]) -> Result<(), FirmwareError> {
        self.hold(files.iter().copied(), &parsed(&format!("{RUN_OWNER}{run}"))?).await
    }

    /// Ends the hold of a run.
    ///
    /// # Errors
    /// When the registry fails; call again.
    pub async fn release_run(&self, run: RunId) -> Result<(), FirmwareError> {
        self.release(&parsed(&format!("{RUN_OWNER}{run}"))?).await
    }

    async fn hold(
        &self,
        files: impl Iterator<Item = (&str, &str)>,
        owner: &PinOwner,
    ) -> Result<(), FirmwareError> {
        for (repository, digest) in files {
            let (repository, digest): (RepositoryName, registry::Digest) =
                (parsed(repository)?, parsed(digest)?);
            if let Err(error) = self.registry.pin(&repository, &digest, owner).await {
                self.release(owner).await?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn release(&self, owner: &PinOwner) -> Result<(), FirmwareError> {
        for pin in self.registry.pins().into_iter().filter(|pin| pin.owner == *owner) {
            self.registry.unpin(&pin.repository, &pin.digest, owner).await?;
        }
        Ok(())
    }

    /// Makes the pins of sets equal to the sets: a crash between the two left a pin without a set, and restored data may have sets
    /// without pins. A file that is gone is reported, the start goes on.
    ///
    /// # Errors
    /// When the registry cannot remove a pin.
    pub async fn reconcile(&self, sets: &[StoredFirmwareSet]) -> Result<(), FirmwareError> {
        for pin in self.registry.pins() {
            let owner = pin.owner.to_string();
            let Some(id) = owner.strip_prefix(SET_OWNER) else { continue };
            if !sets.iter().any(|set| set.id == id) {
                self.registry.unpin(&pin.repository, &pin.digest, &pin.owner).await?;
            }
        }
        for set in sets {
            for file in &set.files {
                let owner: PinOwner = parsed(&format!("{SET_OWNER}{}", set.id))?;
                let (repository, digest) = (parsed(&file.repository)?, parsed(&file.digest)?);
                if let Err(error) = self.registry.pin(&repository, &digest, &owner).await {
                    tracing::warn!(
                        set = set.name,
                        digest = file.digest,
                        error = %error_chain(&error),
                        "a file of a firmware set cannot be held; add it again or delete the set"
                    );
                }
            }
        }
        Ok(())
    }
}
