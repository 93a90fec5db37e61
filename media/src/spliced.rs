//! The boot image of a machine with a single slot: the maintenance image with the task's files in `/task`.
//!
//! ```text
//! maintenance image (by digest) + TaskInputs ──plan──> SplicedImage { plan, identity }      reads less than 1 MiB
//!                                  |   ^
//!                         to_bytes v   | from_bytes      (JSON that contains the task's inputs: seal it before storing)
//!                               database
//!                                  `──rebuild(maintenance)──> ImageBody     planned again, refused if the identity differs
//! ```
//!
//! Hashing gigabytes for every job would take longer than the other steps of the job together. The identity of a spliced
//! image is therefore not the SHA-256 of its bytes but a SHA-256 over its inputs: the digest of the maintenance image, the
//! digest of the task image, and every byte and address that the splice generated.
//!
//! Invariant: an image is served only if its identity is the one that the grant recorded.

use std::fmt;
use std::sync::Arc;

use iso9660::{Content, ImagePlan, ReadAt, Splice, SpliceError, SpliceOptions};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::body::{Backing, ImageBody, ImageDigest};
use super::boot::BootExtents;
use super::os_medium::{OpenOsImage, hash_plan};
use super::task_image::TaskInputs;
use super::task_image_error::TaskImageError;

/// The version of the recorded inputs and of the identity.
const FORMAT: u32 = 1;

/// The reason why a spliced image cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SplicedError {
    /// The files cannot be added to the maintenance image.
    #[error("add the task's files to the maintenance image")]
    Splice(#[source] SpliceError),
    /// The recorded inputs of the task cannot be read.
    #[error("read the task of a spliced image")]
    Task(#[source] TaskImageError),
    /// The recorded inputs are malformed or have another version.
    #[error(
        "read the inputs of a spliced image: {0}; the image cannot be served and the job needs a new image"
    )]
    Inputs(String),
    /// The inputs no longer give the recorded image.
    #[error(
        "rebuild a spliced image: its identity is now {found} and the grant was issued for {expected}; it is not served"
    )]
    Changed {
        /// The recorded identity.
        expected: ImageDigest,
        /// The identity of the rebuilt image.
        found: ImageDigest,
    },
}

/// The recorded inputs of one spliced image. Contains the secrets of the job.
#[derive(Clone, PartialEq, Eq)]
pub struct SpliceInputs {
    maintenance: ImageDigest,
    task: TaskInputs,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    splice: u32,
    maintenance: String,
    task: Box<serde_json::value::RawValue>,
}

/// A planned spliced image.
#[derive(Debug)]
pub struct SplicedImage {
    /// The identity of the image.
    pub identity: ImageDigest,
    /// The length of the image in bytes.
    pub len: u64,
    /// Notes about the splice for the operator, one sentence each.
    pub notes: Vec<String>,
    plan: ImagePlan,
    /// The offset of the beacon, if the task has an OS image.
    beacon: Option<u64>,
}

impl SpliceInputs {
    /// The inputs: the digest of the maintenance image and the task whose files are added.
    #[must_use]
    pub fn new(maintenance: ImageDigest, task: TaskInputs) -> Self {
        Self { maintenance, task }
    }

    /// The digest of the maintenance image.
    #[must_use]
    pub fn maintenance(&self) -> ImageDigest {
        self.maintenance
    }

    /// The approximate memory of the rebuilt image in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.task.weight()
    }

    /// The task whose files are added.
    #[must_use]
    pub fn task(&self) -> &TaskInputs {
        &self.task
    }

    /// Plans the image over the bytes of the maintenance image, with the OS image of the task if it has one. Reads some bytes, so
    /// call it on a thread that may block.
    ///
    /// # Errors
    /// When the files cannot be added to the maintenance image, for example because it has a UDF file system.
    pub fn plan(
        &self,
        maintenance: &ImageBody,
        os_image: Option<&OpenOsImage>,
    ) -> Result<SplicedImage, SplicedError> {
        let parts =
            os_image.map(|image| image.parts(self.task.epoch())).transpose().map_err(SplicedError::Task)?;
        if parts.is_none() && self.task.os_image().is_some() {
            return Err(SplicedError::Task(TaskImageError::OsImageClosed));
        }
        let mut files: Vec<(&str, Content)> = self
            .task
            .files()
            .iter()
            .map(|(name, bytes)| (name.as_str(), Content::from(bytes.as_slice())))
            .collect();
        let added = parts.iter().flat_map(|parts| &parts.files);
        files.extend(added.map(|(name, content)| (name.as_str(), content.clone())));
        let source: Arc<dyn ReadAt> = Arc::new(maintenance.clone());
        let options = SpliceOptions::new(self.task.epoch());
        let spliced = Splice::plan(source, &files, &options).map_err(SplicedError::Splice)?;
        let beacon = parts.as_ref().map(|parts| parts.beacon_in(&spliced.plan));
        Ok(SplicedImage {
            beacon: beacon.transpose().map_err(SplicedError::Task)?,
            identity: self.identity(&spliced.plan),
            len: spliced.plan.len(),
            notes: spliced.notes.iter().map(ToString::to_string).collect(),
            plan: spliced.plan,
        })
    }

    fn identity(&self, plan: &ImagePlan) -> ImageDigest {
        let mut hash = Sha256::new();
        hash.update(b"shoal spliced image ");
        hash.update(FORMAT.to_le_bytes());
        hash.update(self.maintenance.as_bytes());
        hash.update(self.task.digest().as_bytes());
        hash_plan(&mut hash, plan);
        ImageDigest::new(hash.finalize().into())
    }

    /// Plans the image again and returns it, with the offset of its beacon, if it has the identity `expected`.
    ///
    /// # Errors
    /// [`SplicedError::Changed`] when the identity differs, and the errors of [`SpliceInputs::plan`].
    pub fn rebuild(
        &self,
        maintenance: &ImageBody,
        os_image: Option<&OpenOsImage>,
        expected: ImageDigest,
    ) -> Result<(ImageBody, BootExtents, Option<u64>), SplicedError> {
        let image = self.plan(maintenance, os_image)?;
        if image.identity != expected {
            return Err(SplicedError::Changed { expected, found: image.identity });
        }
        let boot = BootExtents::of(&image.plan);
        let body = ImageBody::identified(image.plan, image.identity, Backing::Disk, "splice");
        Ok((body, boot, image.beacon))
    }

    /// Serialises the inputs for the store. The bytes contain the secrets of the job: seal them.
    ///
    /// # Errors
    /// Never in practice: JSON can express every value.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SplicedError> {
        let text = |why: &dyn fmt::Display| SplicedError::Inputs(why.to_string());
        let task = self.task.to_bytes().map_err(SplicedError::Task)?;
        let task = String::from_utf8(task).map_err(|why| text(&why.utf8_error()))?;
        let task =
            serde_json::value::RawValue::from_string(task).map_err(|_| text(&"its task is not JSON"))?;
        let document = Document { splice: FORMAT, maintenance: self.maintenance.to_hex(), task };
        serde_json::to_vec(&document).map_err(|_| text(&"it cannot be written as JSON"))
    }

    /// Parses the bytes of [`SpliceInputs::to_bytes`].
    ///
    /// # Errors
    /// When the bytes are malformed or have another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SplicedError> {
        // Errors of the JSON parser may quote its input, which contains secrets: only the position is shown.
        let document: Document = serde_json::from_slice(bytes).map_err(|error| {
            SplicedError::Inputs(format!("they cannot be parsed at column {}", error.column()))
        })?;
        if document.splice != FORMAT {
            return Err(SplicedError::Inputs(format!(
                "they have format {} and this version reads {FORMAT}",
                document.splice
            )));
        }
        let maintenance = ImageDigest::parse(&document.maintenance)
            .ok_or_else(|| SplicedError::Inputs("the digest is malformed".to_owned()))?;
        let task = TaskInputs::from_bytes(document.task.get().as_bytes()).map_err(SplicedError::Task)?;
        Ok(Self { maintenance, task })
    }
}

impl fmt::Debug for SpliceInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpliceInputs")
            .field("maintenance", &self.maintenance)
            .field("task", &self.task)
            .finish()
    }
}
