//! The OS image of a job with `delivery: media`, as a volume inside of the task image.
//!
//! ```text
//! registry: manifest, configuration, layers --open (by digest)--> OpenOsImage --volume--> an ISO 9660 image:
//!             oci-layout   index.json   blobs/sha256/DIGEST...   beacon (440 MiB of zeros, not stored)
//!                                                      |
//! task image (or the folder `task` of a spliced one):  job.json  recipe.json  ...  os-image.000  os-image.001 ...
//!                                                                                   `- 2 GiB each, adjacent -'
//! ```
//!
//! The volume is a file of the task image, so that it looks the same in every slot plan: the splicer adds files to one folder,
//! and a file of one record has less than 4 GiB. The files are adjacent in the image; the agent reads them as one range.
//!
//! Invariants: no byte of a blob is copied, stored or hashed here: blobs are read from the files of the registry when a BMC reads
//! the image, and the agent verifies every digest. Equal inputs give equal bytes. The number of blobs and the size of all are
//! bounded before anything is planned. OCI image specification 1.1, "Image Layout".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use async_trait::async_trait;
use beacon::{CodeBook, Decoder};
use iso9660::{
    Content, FileRange, ImageOptions, ImagePlan, Part, PlanError, Profile, ReadAt, SegmentData, Tree, Window,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::body::ImageDigest;
use super::job_document::JobDocument;
use super::task_image_error::TaskImageError;

/// The largest OS image that is put onto a medium: manifest, configuration and layers together.
pub const OS_IMAGE_MAX: u64 = 64 << 30;
/// The maximum number of blobs of an OS image.
pub const OS_BLOBS_MAX: usize = 520;

/// The length of a file that holds a part of the volume.
const PART_LEN: u64 = 2 << 30;
/// The volume id.
const VOLUME_ID: &str = "OS_IMAGE";
const OCI_LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

/// One content of an OS image in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OsBlob {
    /// The digest of the blob.
    pub digest: ImageDigest,
    /// The length of the blob in bytes.
    pub len: u64,
}

/// An OS image for one platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "OsImageDocument", into = "OsImageDocument")]
pub struct OsImage {
    media_type: String,
    /// The manifest, then configuration and layers, each digest once.
    blobs: Vec<OsBlob>,
}

/// Why an OS image cannot be put onto a medium.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsImageRefused {
    /// The OS image has too many bytes.
    #[error(
        "the OS image has {bytes} bytes, and {OS_IMAGE_MAX} fit onto a medium; use a smaller image, or `delivery: network`"
    )]
    TooLarge {
        /// The bytes of all blobs.
        bytes: u64,
    },
    /// The OS image has too many blobs.
    #[error("the OS image has {blobs} blobs, and {OS_BLOBS_MAX} are allowed on a medium; squash its layers")]
    TooManyBlobs {
        /// The number of blobs.
        blobs: usize,
    },
}

/// [`OsImage`] as JSON, part of recorded inputs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OsImageDocument {
    media_type: String,
    blobs: Vec<(String, u64)>,
}

impl From<OsImage> for OsImageDocument {
    fn from(image: OsImage) -> Self {
        let blobs = image.blobs.iter().map(|blob| (blob.digest.to_hex(), blob.len)).collect();
        Self { media_type: image.media_type, blobs }
    }
}

impl TryFrom<OsImageDocument> for OsImage {
    type Error = String;

    fn try_from(document: OsImageDocument) -> Result<Self, String> {
        let blob =
            |(digest, len): &(String, u64)| Some(OsBlob { digest: ImageDigest::parse(digest)?, len: *len });
        let blobs = document.blobs.iter().map(blob).collect::<Option<Vec<_>>>();
        let blobs = blobs.ok_or("a digest of the OS image is malformed")?;
        let (manifest, named) = blobs.split_first().ok_or("the OS image has no manifest")?;
        Self::new(&document.media_type, *manifest, named.iter().copied()).map_err(|why| why.to_string())
    }
}

impl OsImage {
    /// An OS image with the media type of its manifest, the manifest, and the blobs that it names.
    ///
    /// # Errors
    /// [`OsImageRefused`] when it has too many blobs or bytes.
    pub fn new(
        media_type: &str,
        manifest: OsBlob,
        named: impl IntoIterator<Item = OsBlob>,
    ) -> Result<Self, OsImageRefused> {
        let mut blobs = vec![manifest];
        for blob in named {
            if !blobs.iter().any(|known| known.digest == blob.digest) {
                blobs.push(blob);
            }
            if blobs.len() > OS_BLOBS_MAX {
                return Err(OsImageRefused::TooManyBlobs { blobs: blobs.len() });
            }
        }
        let bytes = blobs.iter().fold(0_u64, |sum, blob| sum.saturating_add(blob.len));
        if bytes > OS_IMAGE_MAX {
            return Err(OsImageRefused::TooLarge { bytes });
        }
        Ok(Self { media_type: media_type.to_owned(), blobs })
    }

    /// The contents: the manifest, then the others.
    #[must_use]
    pub fn blobs(&self) -> &[OsBlob] {
        &self.blobs
    }

    /// The bytes of all contents.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.len).sum()
    }

    /// The digest of the manifest.
    #[must_use]
    pub fn digest(&self) -> ImageDigest {
        self.blobs[0].digest
    }

    /// Plans the volume over the open contents.
    fn volume(&self, sources: &[Arc<dyn ReadAt>], epoch: i64) -> Result<ImagePlan, PlanError> {
        let manifest = self.blobs[0];
        let index = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [
                { "mediaType": self.media_type, "digest": manifest.digest.to_string(), "size": manifest.len },
            ],
        });
        let mut tree = Tree::new();
        tree.add_file("oci-layout", OCI_LAYOUT)?.add_file("index.json", index.to_string())?;
        for (blob, source) in self.blobs.iter().zip(sources) {
            tree.add_file(&format!("blobs/sha256/{}", blob.digest.to_hex()), Arc::clone(source))?;
        }
        tree.add_file(beacon::FILE_NAME, Content::source(Zeros(beacon::FILE_LEN)))?;
        ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, VOLUME_ID, epoch))
    }
}

/// The content store of OS images: the registry of the controller.
#[async_trait]
pub trait OsBlobs: Send + Sync {
    /// Opens a content by its digest. It stays readable for as long as the result lives.
    ///
    /// # Errors
    /// [`OsBlobsUnavailable`] when it is not stored or cannot be opened.
    async fn open(&self, digest: &ImageDigest) -> Result<OpenBlob, OsBlobsUnavailable>;
}

/// An open content: an immutable file, all of it.
#[derive(Clone, Debug)]
pub struct OpenBlob {
    /// The open file with the content.
    pub file: Arc<File>,
    /// The length of the content in bytes.
    pub len: u64,
}

impl ReadAt for OpenBlob {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn file_at(&self, offset: u64) -> Option<FileRange> {
        let len = self.len.checked_sub(offset).filter(|len| *len > 0)?;
        Some(FileRange { file: Arc::clone(&self.file), offset, len })
    }
}

/// A content of an OS image cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct OsBlobsUnavailable {
    /// The reason.
    pub reason: String,
    /// Whether the content is gone for good.
    pub gone: bool,
}

/// An OS image with its contents open.
#[derive(Clone)]
pub struct OpenOsImage {
    image: OsImage,
    sources: Vec<Arc<dyn ReadAt>>,
}

impl OpenOsImage {
    /// Opens every content and compares its length.
    ///
    /// # Errors
    /// [`OsBlobsUnavailable`] when one cannot be opened or has another length.
    pub async fn open(image: OsImage, blobs: &dyn OsBlobs) -> Result<Self, OsBlobsUnavailable> {
        let mut sources = Vec::with_capacity(image.blobs.len());
        for blob in &image.blobs {
            let source = blobs.open(&blob.digest).await?;
            if source.len != blob.len {
                return Err(OsBlobsUnavailable {
                    reason: format!(
                        "blob {} has {} bytes in the registry and {} in the manifest; push the image again",
                        blob.digest, source.len, blob.len
                    ),
                    gone: true,
                });
            }
            sources.push(Arc::new(source) as Arc<dyn ReadAt>);
        }
        Ok(Self { image, sources })
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> &OsImage {
        &self.image
    }

    /// The approximate memory of the planned volume in bytes.
    pub(super) fn weight(&self) -> usize {
        (64 << 10) + self.sources.len() * 1024
    }

    /// Plans the volume and divides it into files.
    pub(super) fn parts(&self, epoch: i64) -> Result<VolumeParts, TaskImageError> {
        let plan = Arc::new(self.image.volume(&self.sources, epoch).map_err(TaskImageError::Layout)?);
        let beacon = file_offset(&plan, beacon::FILE_NAME).ok_or(TaskImageError::Scattered)?;
        let mut files = Vec::new();
        let mut offset = 0;
        while offset < plan.len() {
            let len = PART_LEN.min(plan.len() - offset);
            let part = Window::new(Arc::clone(&plan), offset, len).map_err(|_| TaskImageError::Scattered)?;
            files.push((part_name(files.len()), Content::source(part)));
            offset += len;
        }
        Ok(VolumeParts { plan, files, beacon })
    }
}

/// A planned volume as files.
pub(super) struct VolumeParts {
    /// The volume.
    plan: Arc<ImagePlan>,
    /// Name and content of each file.
    pub(super) files: Vec<(String, Content)>,
    /// The offset of the beacon in the volume.
    beacon: u64,
}

impl VolumeParts {
    /// Adds the volume to the identity of an image: every byte that the plan generated, and the digests of the contents.
    pub(super) fn identify(&self, hash: &mut Sha256, image: &OsImage) {
        hash_plan(hash, &self.plan);
        for blob in &image.blobs {
            hash.update(blob.digest.as_bytes());
            hash.update(blob.len.to_le_bytes());
        }
    }

    /// Returns the offset of the beacon in an image that holds the files, which must be adjacent.
    ///
    /// # Errors
    /// [`TaskImageError::Scattered`] when they are not, which no plan of this version is.
    pub(super) fn beacon_in(&self, plan: &ImagePlan) -> Result<u64, TaskImageError> {
        let first = file_offset(plan, &part_name(0)).ok_or(TaskImageError::Scattered)?;
        for at in 1..self.files.len() {
            if file_offset(plan, &part_name(at)) != Some(first + at as u64 * PART_LEN) {
                return Err(TaskImageError::Scattered);
            }
        }
        Ok(first + self.beacon)
    }
}

/// The name of a file of the volume.
fn part_name(number: usize) -> String {
    format!("os-image.{number:03}")
}

/// The offset of a file's bytes in an image, by its name.
fn file_offset(plan: &ImagePlan, name: &str) -> Option<u64> {
    let is = |path: &str| path.rsplit('/').next() == Some(name);
    plan.segments()
        .find(|segment| match segment.part {
            Part::File(number) => plan.file_path(number).is_some_and(|path| is(&path)),
            _ => false,
        })
        .map(|segment| segment.offset)
}

/// Adds every address and every generated byte of a plan to a hash. Bytes of sources are not read.
pub(super) fn hash_plan(hash: &mut Sha256, plan: &ImagePlan) {
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
}

/// The beacon of an image that is served: the offset of its file, and the decoder of its reads.
pub(super) struct BeaconChannel {
    offset: u64,
    decoder: parking_lot::Mutex<Decoder>,
}

impl BeaconChannel {
    /// The channel of a task image whose `job.json` is `job`; `None` when the document cannot be read.
    pub(super) fn new(offset: u64, job: &[u8]) -> Option<Self> {
        let job: JobDocument = serde_json::from_slice(job).ok()?;
        let book = CodeBook::new(job.webhook_token.as_bytes(), &job.job_id.to_string());
        Some(Self { offset, decoder: parking_lot::Mutex::new(Decoder::new(book)) })
    }

    /// Decodes a read of the image. A read outside of the beacon costs nothing.
    pub(super) fn read(&self, offset: u64, len: u64) -> Option<beacon::News> {
        let (start, end) = (offset.max(self.offset), offset.saturating_add(len));
        if start >= end || start - self.offset >= beacon::FILE_LEN {
            return None;
        }
        self.decoder.lock().read(start - self.offset, end - start)
    }
}

/// Zeros that are nowhere stored.
struct Zeros(u64);

impl ReadAt for Zeros {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.fill(0);
        Ok(())
    }
}
