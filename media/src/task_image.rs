//! The task image of one job, and the recorded inputs from which it is rebuilt for as long as its grant is open.
//!
//! ```text
//! TaskImageInput ──plan──> Plan                 volume id TASK_ + last 11 hex digits of the job id, or a known label
//!       |                                       every date = the job's created_at; at least 1 MiB
//!       `──record_inputs──> TaskInputs { format, volume_id, epoch, files, sha256, len }
//!                           |   ^
//!                  to_bytes v   | from_bytes    (JSON, bounded; contains secrets: seal it before storing)
//!                          database
//!                           |
//!                           `──rebuild──> ImageBody     planned again, hashed, refused if the digest differs
//! ```
//!
//! Invariants: file names are from a closed list; the three required files are present; the image depends on the recorded
//! inputs only, so that after an upgrade a rebuild gives either the same bytes or a typed error.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use iso9660::{Content, ImageOptions, ImagePlan, Profile, Tree};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::body::{Backing, ImageBody, ImageDigest};
use super::os_medium::{OpenOsImage, OsImage, VolumeParts, hash_plan};
use super::task_image_error::{OS_IMAGE_FORMAT, TASK_FILES_MAX, TaskImageError};

/// The files that every task image has.
pub const REQUIRED_FILES: [&str; 3] = ["job.json", "recipe.json", "recipe.schema.json"];
/// The files that a task image may have in addition.
pub const OPTIONAL_FILES: [&str; 7] =
    ["autounattend.xml", "ks.cfg", "meta-data", "network-config", "unattend.xml", "user-data", "vendor-data"];
/// The volume ids that some installers look for.
pub const MEDIA_LABELS: [&str; 3] = ["CIDATA", "CONFIG-2", "OEMDRV"];
/// The maximum size of recorded inputs in bytes: the files as JSON and their names. No file is longer than in base64.
pub const INPUTS_MAX: usize = TASK_FILES_MAX / 3 * 4 + (128 << 10);

/// The version of the recorded inputs and of the layout rules.
const INPUTS_FORMAT: u32 = 1;

/// The inputs of a task image.
#[derive(Clone)]
pub struct TaskImageInput {
    /// The job.
    pub job_id: Uuid,
    /// The time at which the job was accepted: the date of every file in the image.
    pub created_at: Timestamp,
    /// Name and bytes of each file of the root directory.
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

/// Plans the task image of a job.
///
/// # Errors
/// [`TaskImageError`] when a file name or the label is not allowed, a required file is missing, or the files are too large.
pub fn plan(input: &TaskImageInput) -> Result<ImagePlan, TaskImageError> {
    let volume_id = volume_id(input)?;
    layout(&volume_id, input.created_at.as_second(), &input.files, &[])
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

fn layout(
    volume_id: &str,
    epoch: i64,
    files: &[(String, Vec<u8>)],
    parts: &[(String, Content)],
) -> Result<ImagePlan, TaskImageError> {
    check(files)?;
    let mut tree = Tree::new();
    for (name, bytes) in files {
        tree.add_file(name, bytes.as_slice()).map_err(TaskImageError::Layout)?;
    }
    for (name, content) in parts {
        tree.add_file(name, content.clone()).map_err(TaskImageError::Layout)?;
    }
    ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, volume_id, epoch)).map_err(TaskImageError::Layout)
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

/// The recorded inputs of one task image, with digest and length of the image. Contains the secrets of the job.
#[derive(Clone, PartialEq, Eq)]
pub struct TaskInputs {
    volume_id: String,
    epoch: i64,
    files: Vec<(String, Vec<u8>)>,
    /// The SHA-256 of the image; with an OS image, a SHA-256 over its inputs.
    sha256: ImageDigest,
    len: u64,
    os_image: Option<OsImage>,
}

/// [`TaskInputs`] as JSON, with the keys in this order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskInputsDocument {
    format: u32,
    volume_id: String,
    epoch: i64,
    files: Vec<(String, FileBytes)>,
    sha256: String,
    len: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    os_image: Option<OsImage>,
}

/// The bytes of a file in a [`TaskInputsDocument`], in the shorter of the two forms.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum FileBytes {
    Text(String),
    Base64 { base64: String },
}

impl FileBytes {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if json_length(bytes) <= bytes.len() / 3 * 4 => Self::Text(text.to_owned()),
            _ => Self::Base64 { base64: BASE64.encode(bytes) },
        }
    }

    /// The bytes; `None` when they are not base64.
    fn decode(self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.into_bytes()),
            Self::Base64 { base64 } => BASE64.decode(base64).ok(),
        }
    }
}

/// The length of a text as a JSON string, without its quotes.
fn json_length(text: &[u8]) -> usize {
    text.iter().fold(0, |length, byte| {
        length
            + match byte {
                b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
                0x00..0x20 => 6,
                _ => 1,
            }
    })
}

/// The key that every format has.
#[derive(Deserialize)]
struct InputsFormat {
    format: u32,
}

/// Plans and hashes the task image of a job and returns the inputs from which it can be rebuilt.
///
/// # Errors
/// The errors of [`plan`].
pub fn record_inputs(input: &TaskImageInput) -> Result<TaskInputs, TaskImageError> {
    record_inputs_with_body(input).map(|(task, _)| task)
}

/// Plans and hashes the task image of a job and returns its inputs and the image, as [`TaskInputs::rebuild`] would return it.
///
/// # Errors
/// The errors of [`plan`].
pub fn record_inputs_with_body(input: &TaskImageInput) -> Result<(TaskInputs, ImageBody), TaskImageError> {
    let plan = plan(input)?;
    let sha256 = ImageDigest::of(&plan).map_err(TaskImageError::Hash)?;
    let task = TaskInputs {
        volume_id: volume_id(input)?,
        epoch: input.created_at.as_second(),
        files: input.files.clone(),
        sha256,
        len: plan.len(),
        os_image: None,
    };
    let body = task.body(plan);
    Ok((task, body))
}

/// Plans the task image of a job with its OS image and returns the inputs from which it can be rebuilt. Contents are not hashed: the
/// digest is a SHA-256 over the inputs, and the agent verifies the contents.
///
/// # Errors
/// The errors of [`plan`].
pub fn record_inputs_with_os_image(
    input: &TaskImageInput,
    os_image: &OpenOsImage,
) -> Result<TaskInputs, TaskImageError> {
    let (volume_id, epoch) = (volume_id(input)?, input.created_at.as_second());
    let parts = os_image.parts(epoch)?;
    let plan = layout(&volume_id, epoch, &input.files, &parts.files)?;
    parts.beacon_in(&plan)?;
    Ok(TaskInputs {
        volume_id,
        epoch,
        files: input.files.clone(),
        sha256: identity(&plan, &parts, os_image.image()),
        len: plan.len(),
        os_image: Some(os_image.image().clone()),
    })
}

/// The identity of a task image with an OS image.
fn identity(plan: &ImagePlan, parts: &VolumeParts, os_image: &OsImage) -> ImageDigest {
    let mut hash = Sha256::new();
    hash.update(b"shoal task image with an OS image ");
    hash.update(OS_IMAGE_FORMAT.to_le_bytes());
    hash_plan(&mut hash, plan);
    parts.identify(&mut hash, os_image);
    ImageDigest::new(hash.finalize().into())
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

    /// The files of the root directory.
    pub(super) fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// The date of every file in the image, in seconds since 1970.
    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// The OS image, if the task image has one.
    #[must_use]
    pub fn os_image(&self) -> Option<&OsImage> {
        self.os_image.as_ref()
    }

    /// The bytes of `job.json`.
    pub(super) fn job(&self) -> &[u8] {
        self.files.iter().find(|(name, _)| name == "job.json").map_or(&[], |(_, bytes)| bytes)
    }

    /// Whether the image has no bytes; false for every planned image.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The volume id of the image.
    #[must_use]
    pub fn volume_id(&self) -> &str {
        &self.volume_id
    }

    /// Serialises the inputs for the store. The bytes contain the secrets of the job: seal them.
    ///
    /// # Errors
    /// Never in practice: JSON can express every value.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TaskImageError> {
        let document = TaskInputsDocument {
            format: if self.os_image.is_some() { OS_IMAGE_FORMAT } else { INPUTS_FORMAT },
            volume_id: self.volume_id.clone(),
            epoch: self.epoch,
            files: self.files.iter().map(|(name, bytes)| (name.clone(), FileBytes::of(bytes))).collect(),
            sha256: self.sha256.to_hex(),
            len: self.len,
            os_image: self.os_image.clone(),
        };
        serde_json::to_vec(&document).map_err(TaskImageError::Encode)
    }

    /// Parses the bytes of [`TaskInputs::to_bytes`].
    ///
    /// # Errors
    /// When the bytes are too long, malformed, or have another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TaskImageError> {
        let invalid = |reason: String| TaskImageError::Inputs { reason };
        if bytes.len() > INPUTS_MAX {
            return Err(invalid(format!(
                "they have {} bytes, more than the limit of {INPUTS_MAX}",
                bytes.len()
            )));
        }
        // Errors of the JSON parser may quote its input, which contains secrets: only the position is shown.
        let position =
            |error: serde_json::Error| invalid(format!("they cannot be parsed at column {}", error.column()));
        let InputsFormat { format } = serde_json::from_slice(bytes).map_err(position)?;
        if format != INPUTS_FORMAT && format != OS_IMAGE_FORMAT {
            return Err(TaskImageError::Format { found: format });
        }
        let document: TaskInputsDocument = serde_json::from_slice(bytes).map_err(position)?;
        let sha256 = ImageDigest::parse(&document.sha256)
            .ok_or_else(|| invalid("the digest is malformed".to_owned()))?;
        let files = document
            .files
            .into_iter()
            .map(|(name, bytes)| match bytes.decode() {
                Some(bytes) => Ok((name, bytes)),
                None => Err(invalid(format!("the file {name} is not base64"))),
            })
            .collect::<Result<_, _>>()?;
        if document.os_image.is_some() != (format == OS_IMAGE_FORMAT) {
            return Err(invalid("the OS image does not belong to their format".to_owned()));
        }
        let TaskInputsDocument { volume_id, epoch, len, os_image, .. } = document;
        Ok(Self { volume_id, epoch, files, sha256, len, os_image })
    }

    /// Plans the image with an OS image again and returns it, with the offset of its beacon, if it has the recorded identity.
    ///
    /// # Errors
    /// [`TaskImageError::Changed`] when identity or length differ from the recorded ones.
    pub fn rebuild_with(&self, os_image: &OpenOsImage) -> Result<(ImageBody, u64), TaskImageError> {
        let parts = os_image.parts(self.epoch)?;
        let plan = layout(&self.volume_id, self.epoch, &self.files, &parts.files)?;
        let found = identity(&plan, &parts, os_image.image());
        if found != self.sha256 || plan.len() != self.len {
            return Err(TaskImageError::Changed { expected: self.sha256, found });
        }
        let beacon = parts.beacon_in(&plan)?;
        Ok((self.dated(ImageBody::identified(plan, self.sha256, Backing::Disk, "task")), beacon))
    }

    /// Plans and hashes the image again and returns it if it has the recorded digest.
    ///
    /// # Errors
    /// [`TaskImageError::Changed`] when digest or length differ from the recorded ones, [`TaskImageError::OsImageClosed`] when
    /// the image has an OS image.
    pub fn rebuild(&self) -> Result<ImageBody, TaskImageError> {
        if self.os_image.is_some() {
            return Err(TaskImageError::OsImageClosed);
        }
        let plan = layout(&self.volume_id, self.epoch, &self.files, &[])?;
        let found = ImageDigest::of(&plan).map_err(TaskImageError::Hash)?;
        if found != self.sha256 || plan.len() != self.len {
            return Err(TaskImageError::Changed { expected: self.sha256, found });
        }
        Ok(self.body(plan))
    }

    /// The image body over a plan that has the recorded digest.
    fn body(&self, plan: ImagePlan) -> ImageBody {
        self.dated(ImageBody::new(plan, self.sha256, Backing::Memory))
    }

    fn dated(&self, body: ImageBody) -> ImageBody {
        match Timestamp::from_second(self.epoch) {
            Ok(created_at) => body.modified_at(created_at),
            Err(_) => body,
        }
    }

    /// The approximate memory of the rebuilt image in bytes.
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
