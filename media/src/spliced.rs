//! The boot image of a machine with a single slot: the maintenance image with the task's files in `/task`.
//!
//! ```text
//! maintenance image (by digest) + TaskInputs ──plan──> SplicedImage { plan, identity }      reads less than 1 MiB
//!                                  |   ^
//!                         to_bytes v   | from_bytes      (JSON with the frozen task in it: seal it before storing)
//!                               database
//!                                  `──thaw(maintenance)──> Body     planned again, refused when its identity is another
//! ```
//!
//! Hashing gigabytes for every job would take longer than the job's other steps together. What identifies such an image is
//! therefore not the SHA-256 of its bytes but one over what they are made from: the digest of the maintenance image (which
//! never changes under its digest), the digest of the task, and every byte and address that the splice generated.
//!
//! Invariant: what is served has the identity that the grant was given for, or is not served.

use std::fmt;
use std::sync::Arc;

use iso9660::{Content, Plan, ReadAt, SegmentData, Splice, SpliceError, SpliceOptions};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::body::{Backing, Body, ImageDigest};
use super::boot::BootExtents;
use super::task_image::{TaskImageError, TaskInputs};

/// The version of the frozen form and of what an identity is made of.
const FORMAT: u32 = 1;

/// Why there is no spliced image.
#[derive(Debug, thiserror::Error)]
pub enum SplicedError {
    /// The maintenance image cannot take the files.
    #[error("add the task's files to the maintenance image")]
    Splice(#[source] SpliceError),
    /// The frozen task cannot be read.
    #[error("restore the task of a spliced image")]
    Task(#[source] TaskImageError),
    /// A frozen form that is not one, or of another version.
    #[error("read a frozen spliced image: {0}; the grant cannot be served and the job needs a new image")]
    Frozen(String),
    /// The same inputs no longer give the recorded image.
    #[error(
        "restore a spliced image: it is now {found} and the grant was given for {expected}; it is not served"
    )]
    Changed {
        /// What was recorded.
        expected: ImageDigest,
        /// What came out.
        found: ImageDigest,
    },
}

/// The inputs of one spliced image. Holds the job's secrets.
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
    /// What identifies it.
    pub identity: ImageDigest,
    /// Its length.
    pub len: u64,
    /// What a person should know about the splice, a sentence each.
    pub notes: Vec<String>,
    plan: Plan,
}

impl SpliceInputs {
    /// The task's files in the image with this digest.
    #[must_use]
    pub fn new(maintenance: ImageDigest, task: TaskInputs) -> Self {
        Self { maintenance, task }
    }

    /// The digest of the maintenance image.
    #[must_use]
    pub fn maintenance(&self) -> ImageDigest {
        self.maintenance
    }

    /// How much memory the restored image takes, roughly.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.task.weight()
    }

    /// Plans the image over the maintenance image's bytes. Reads some of them: not for a thread that must not block.
    ///
    /// # Errors
    /// When the maintenance image cannot take the files, such as one with a UDF file system.
    pub fn plan(&self, maintenance: &Body) -> Result<SplicedImage, SplicedError> {
        let files: Vec<(&str, Content)> = self
            .task
            .files()
            .iter()
            .map(|(name, bytes)| (name.as_str(), Content::from(bytes.as_slice())))
            .collect();
        let source: Arc<dyn ReadAt> = Arc::new(maintenance.clone());
        let options = SpliceOptions::new(self.task.epoch());
        let spliced = Splice::plan(source, &files, &options).map_err(SplicedError::Splice)?;
        Ok(SplicedImage {
            identity: self.identity(&spliced.plan),
            len: spliced.plan.len(),
            notes: spliced.notes.iter().map(ToString::to_string).collect(),
            plan: spliced.plan,
        })
    }

    fn identity(&self, plan: &Plan) -> ImageDigest {
        let mut hash = Sha256::new();
        hash.update(b"shoal spliced image ");
        hash.update(FORMAT.to_le_bytes());
        hash.update(self.maintenance.as_bytes());
        hash.update(self.task.digest().as_bytes());
        for segment in plan.segments() {
            hash.update(segment.offset.to_le_bytes());
            hash.update(segment.len.to_le_bytes());
            match segment.data {
                SegmentData::Bytes(bytes) => {
                    hash.update([1]);
                    hash.update(bytes);
                }
                SegmentData::Zeros => hash.update([2]),
                SegmentData::Source(_) => hash.update([3]),
            }
        }
        ImageDigest::new(hash.finalize().into())
    }

    /// Plans the image again and serves it if it is still the one with this identity.
    ///
    /// # Errors
    /// [`SplicedError::Changed`] when it is another; as [`SpliceInputs::plan`].
    pub fn thaw(
        &self,
        maintenance: &Body,
        expected: ImageDigest,
    ) -> Result<(Body, BootExtents), SplicedError> {
        let image = self.plan(maintenance)?;
        if image.identity != expected {
            return Err(SplicedError::Changed { expected, found: image.identity });
        }
        let boot = BootExtents::of(&image.plan);
        Ok((Body::identified(image.plan, image.identity, Backing::Disk, "splice"), boot))
    }

    /// The form that is stored. It holds the job's secrets: seal it.
    ///
    /// # Errors
    /// Never in practice: every value has a form in JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SplicedError> {
        let text = |why: &dyn fmt::Display| SplicedError::Frozen(why.to_string());
        let task = self.task.to_bytes().map_err(SplicedError::Task)?;
        let task = String::from_utf8(task).map_err(|why| text(&why.utf8_error()))?;
        let task =
            serde_json::value::RawValue::from_string(task).map_err(|_| text(&"its task is not JSON"))?;
        let document = Document { splice: FORMAT, maintenance: self.maintenance.to_hex(), task };
        serde_json::to_vec(&document).map_err(|_| text(&"it has no form in JSON"))
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// When it is not ours, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SplicedError> {
        // Errors of the JSON reader may quote its input, which holds secrets: the position is all that is told.
        let document: Document = serde_json::from_slice(bytes).map_err(|error| {
            SplicedError::Frozen(format!("it cannot be read at column {}", error.column()))
        })?;
        if document.splice != FORMAT {
            return Err(SplicedError::Frozen(format!(
                "it has format {} and this version writes {FORMAT}",
                document.splice
            )));
        }
        let maintenance = ImageDigest::parse(&document.maintenance)
            .ok_or_else(|| SplicedError::Frozen("its digest is none".to_owned()))?;
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
