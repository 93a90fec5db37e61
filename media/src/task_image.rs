//! The task image of one job, and the frozen form from which the same bytes can be had for as long as its grant lives.
//!
//! ```text
//! TaskImageInput ──plan──> Plan                 volume id TASK_ + last 11 hex digits of the job id, or a known label
//!       |                                       every date = the job's created_at; at least 1 MiB
//!       `──────freeze──> TaskInputs { format, volume_id, epoch, files, sha256, len }
//!                           |   ^
//!                  to_bytes v   | from_bytes    (JSON, bounded; holds secrets: seal it before storing)
//!                          database
//!                           |
//!                           `──thaw──> Body     planned again, hashed, refused when the digest is another
//! ```
//!
//! Invariants: names are from a closed list; the three files every task has are there; nothing but the frozen values
//! reaches the image, so that an upgrade or a changed template either gives the same bytes or a typed refusal.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use iso9660::{Options, Plan, PlanError, Profile, Tree};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::body::{Backing, Body, ImageDigest};

/// The files every task image has.
pub const REQUIRED_FILES: [&str; 3] = ["job.json", "recipe.json", "recipe.schema.json"];
/// The files it may have besides.
pub const OPTIONAL_FILES: [&str; 7] =
    ["autounattend.xml", "ks.cfg", "meta-data", "network-config", "unattend.xml", "user-data", "vendor-data"];
/// The volume ids that some installers look for.
pub const MEDIA_LABELS: [&str; 3] = ["CIDATA", "CONFIG-2", "OEMDRV"];
/// All files of a task image together are at most this long.
pub const TASK_FILES_MAX: usize = 10 << 20;
/// A frozen task is at most this long: the files in base64, and room for their names.
pub const INPUTS_MAX: usize = TASK_FILES_MAX / 3 * 4 + (64 << 10);

/// The version of the frozen form and of the layout rules behind it.
const FROZEN_FORMAT: u32 = 1;

/// What a task image is made of.
#[derive(Clone)]
pub struct TaskImageInput {
    /// The job.
    pub job_id: Uuid,
    /// When it was accepted: the date of everything in the image.
    pub created_at: Timestamp,
    /// Name and bytes of each file at the root.
    pub files: Vec<(String, Vec<u8>)>,
    /// The recipe's `media_label`, which replaces the volume id.
    pub volume_id: Option<String>,
}

impl fmt::Debug for TaskImageInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskImageInput")
            .field("job_id", &self.job_id)
            .field("created_at", &self.created_at)
            .field("files", &self.files.iter().map(|(name, bytes)| (name, bytes.len())).collect::<Vec<_>>())
            .field("volume_id", &self.volume_id)
            .finish()
    }
}

/// Why there is no task image.
#[derive(Debug, thiserror::Error)]
pub enum TaskImageError {
    /// A name outside the list.
    #[error("compose task image: no file is named {name:?} there")]
    UnknownFile {
        /// The name.
        name: String,
    },
    /// A name twice.
    #[error("compose task image: {name} is given twice")]
    DuplicateFile {
        /// The name.
        name: String,
    },
    /// One of the files every task has is not there.
    #[error("compose task image: {name} is missing")]
    MissingFile {
        /// The name.
        name: &'static str,
    },
    /// The files are too long together.
    #[error(
        "compose task image: the files have {bytes} bytes together, at most {TASK_FILES_MAX} fit; shorten user data or answer files"
    )]
    TooLarge {
        /// Bytes of all files.
        bytes: usize,
    },
    /// A label nobody looks for.
    #[error("compose task image: media_label {label:?} is none of CIDATA, CONFIG-2, OEMDRV")]
    Label {
        /// The label.
        label: String,
    },
    /// The image could not be laid out.
    #[error("compose task image: lay out the volume")]
    Layout(#[source] PlanError),
    /// The planned image could not be hashed.
    #[error("compose task image: hash the planned image")]
    Hash(#[source] std::io::Error),
    /// The frozen form could not be written.
    #[error("freeze task image: write its inputs")]
    Encode(#[source] serde_json::Error),
    /// A frozen form that is not one.
    #[error("read frozen task image: {reason}; the grant cannot be served and the job needs a new image")]
    Frozen {
        /// What is wrong with it.
        reason: String,
    },
    /// A frozen form of another version.
    #[error(
        "read frozen task image: it has format {found} and this version writes {FROZEN_FORMAT}; serve it with the version that froze it"
    )]
    Format {
        /// The format found.
        found: u32,
    },
    /// The same inputs no longer give the recorded bytes.
    #[error(
        "thaw task image: its bytes hash to {found} and the grant was given for {expected}; the image is not served"
    )]
    Changed {
        /// What was recorded.
        expected: ImageDigest,
        /// What came out.
        found: ImageDigest,
    },
}

/// Lays out the image of a job.
///
/// # Errors
/// When a file or the label is not one of those a task image has, or they are too large.
pub fn plan(input: &TaskImageInput) -> Result<Plan, TaskImageError> {
    let volume_id = volume_id(input)?;
    layout(&volume_id, input.created_at.as_second(), &input.files)
}

/// The volume id of a job's image.
fn volume_id(input: &TaskImageInput) -> Result<String, TaskImageError> {
    match &input.volume_id {
        Some(label) if MEDIA_LABELS.contains(&label.as_str()) => Ok(label.clone()),
        Some(label) => Err(TaskImageError::Label { label: label.clone() }),
        None => {
            let digits = input.job_id.simple().to_string().to_uppercase();
            Ok(format!("TASK_{}", &digits[digits.len() - 11..]))
        }
    }
}

fn layout(volume_id: &str, epoch: i64, files: &[(String, Vec<u8>)]) -> Result<Plan, TaskImageError> {
    check(files)?;
    let mut tree = Tree::new();
    for (name, bytes) in files {
        tree.add_file(name, bytes.as_slice()).map_err(TaskImageError::Layout)?;
    }
    Plan::new(&tree, &Options::new(Profile::Task, volume_id, epoch)).map_err(TaskImageError::Layout)
}

fn check(files: &[(String, Vec<u8>)]) -> Result<(), TaskImageError> {
    for (at, (name, _)) in files.iter().enumerate() {
        if !REQUIRED_FILES.contains(&name.as_str()) && !OPTIONAL_FILES.contains(&name.as_str()) {
            return Err(TaskImageError::UnknownFile { name: name.clone() });
        }
        if files[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(TaskImageError::DuplicateFile { name: name.clone() });
        }
    }
    for name in REQUIRED_FILES {
        if !files.iter().any(|(given, _)| given == name) {
            return Err(TaskImageError::MissingFile { name });
        }
    }
    let bytes = files.iter().fold(0usize, |sum, (_, bytes)| sum.saturating_add(bytes.len()));
    if bytes > TASK_FILES_MAX { Err(TaskImageError::TooLarge { bytes }) } else { Ok(()) }
}

/// The inputs of one task image and what came out of them. Holds the job's secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct TaskInputs {
    volume_id: String,
    epoch: i64,
    files: Vec<(String, Vec<u8>)>,
    sha256: ImageDigest,
    len: u64,
}

/// [`TaskInputs`] as JSON, keys in this order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskInputsDocument {
    format: u32,
    volume_id: String,
    epoch: i64,
    files: Vec<(String, String)>,
    sha256: String,
    len: u64,
}

/// The one key that is the same in every format.
#[derive(Deserialize)]
struct InputsFormat {
    format: u32,
}

/// Plans and hashes the image of a job, and keeps what is needed to do so again.
///
/// # Errors
/// As [`plan`].
pub fn freeze(input: &TaskImageInput) -> Result<TaskInputs, TaskImageError> {
    record_inputs_with_body(input).map(|(task, _)| task)
}

/// As [`freeze`], with the planned and hashed image itself: what [`TaskInputs::thaw`] would give.
///
/// # Errors
/// As [`plan`].
pub fn record_inputs_with_body(input: &TaskImageInput) -> Result<(TaskInputs, Body), TaskImageError> {
    let plan = plan(input)?;
    let sha256 = ImageDigest::of(&plan).map_err(TaskImageError::Hash)?;
    let task = TaskInputs {
        volume_id: volume_id(input)?,
        epoch: input.created_at.as_second(),
        files: input.files.clone(),
        sha256,
        len: plan.len(),
    };
    let body = task.body(plan);
    Ok((task, body))
}

impl TaskInputs {
    /// The digest of the image.
    #[must_use]
    pub fn digest(&self) -> ImageDigest {
        self.sha256
    }

    /// The length of the image.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The files at the root of the image.
    pub(super) fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// The date of everything in the image, in seconds since 1970.
    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Whether the image has no bytes, which none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The volume id of the image.
    #[must_use]
    pub fn volume_id(&self) -> &str {
        &self.volume_id
    }

    /// The form that is stored. It holds the job's secrets: seal it.
    ///
    /// # Errors
    /// Never in practice: every value has a form in JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TaskImageError> {
        let document = TaskInputsDocument {
            format: FROZEN_FORMAT,
            volume_id: self.volume_id.clone(),
            epoch: self.epoch,
            files: self.files.iter().map(|(name, bytes)| (name.clone(), BASE64.encode(bytes))).collect(),
            sha256: self.sha256.to_hex(),
            len: self.len,
        };
        serde_json::to_vec(&document).map_err(TaskImageError::Encode)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// When it is too long, not ours, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TaskImageError> {
        let frozen = |reason: String| TaskImageError::Frozen { reason };
        if bytes.len() > INPUTS_MAX {
            return Err(frozen(format!("it has {} bytes, more than any", bytes.len())));
        }
        // Errors of the JSON reader may quote its input, which holds secrets: the position is all that is told.
        let position =
            |error: serde_json::Error| frozen(format!("it cannot be read at column {}", error.column()));
        let InputsFormat { format } = serde_json::from_slice(bytes).map_err(position)?;
        if format != FROZEN_FORMAT {
            return Err(TaskImageError::Format { found: format });
        }
        let document: TaskInputsDocument = serde_json::from_slice(bytes).map_err(position)?;
        let sha256 =
            ImageDigest::parse(&document.sha256).ok_or_else(|| frozen("its digest is none".to_owned()))?;
        let files = document
            .files
            .into_iter()
            .map(|(name, text)| match BASE64.decode(text) {
                Ok(bytes) => Ok((name, bytes)),
                Err(_) => Err(frozen(format!("the file {name} is not base64"))),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { volume_id: document.volume_id, epoch: document.epoch, files, sha256, len: document.len })
    }

    /// Plans the image again and serves it if it is still the same.
    ///
    /// # Errors
    /// [`TaskImageError::Changed`] when the bytes are others than those the grant was given for.
    pub fn thaw(&self) -> Result<Body, TaskImageError> {
        let plan = layout(&self.volume_id, self.epoch, &self.files)?;
        let found = ImageDigest::of(&plan).map_err(TaskImageError::Hash)?;
        if found != self.sha256 || plan.len() != self.len {
            return Err(TaskImageError::Changed { expected: self.sha256, found });
        }
        Ok(self.body(plan))
    }

    /// The image over a plan of it, which has its digest.
    fn body(&self, plan: Plan) -> Body {
        let body = Body::new(plan, self.sha256, Backing::Memory);
        match Timestamp::from_second(self.epoch) {
            Ok(created_at) => body.modified_at(created_at),
            Err(_) => body,
        }
    }

    /// How much memory the thawed image takes, roughly.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.files.iter().map(|(name, bytes)| name.len() + bytes.len()).sum::<usize>() + (64 << 10)
    }
}

impl fmt::Debug for TaskInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskInputs")
            .field("volume_id", &self.volume_id)
            .field("epoch", &self.epoch)
            .field("sha256", &self.sha256)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
