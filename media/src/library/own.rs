//! Images of the controller's own registry.
//!
//! ```text
//! oci:maintenance/boot:latest ──registry──> manifest ──> its one blob: digest, file ── known? ──> the known image
//!                                                                               └──> copy, hash, compare, then rename
//! ```
//!
//! The blob is copied, because an image of the library stays when its tag moves and its blob is collected: a job may be using it.

use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::partial_image::PartialImage;
use super::source::{OwnName, Validator};
use super::{COPY_CHUNK, ImportError, ImportedImage, Known, ProgressReporter};
use crate::body::ImageDigest;
use crate::os_medium::OpenBlob;

/// The images in the registry of the controller.
#[async_trait]
pub trait OwnImages: Send + Sync {
    /// Opens the one blob of an image.
    ///
    /// # Errors
    /// Returns, as words for an operator, why there is none.
    async fn open(&self, name: &OwnName) -> Result<(ImageDigest, OpenBlob), String>;
}

/// Copies a blob into the library, unless it was the last import of its name.
pub(super) fn copy(
    name: &OwnName,
    (digest, blob): (ImageDigest, OpenBlob),
    known: Option<Known>,
    dir: &Path,
    limit: u64,
    progress: &ProgressReporter,
) -> Result<(ImportedImage, Validator), ImportError> {
    let validator = Validator::Digest(digest);
    if let Some(known) = known.filter(|known| known.validator == validator) {
        return Ok((known.image, validator));
    }
    let refused = |reason: String| ImportError::Own { name: name.to_string(), reason };
    let mut partial = PartialImage::create(dir, limit)?;
    let (mut reader, mut sha256) = (Blob { blob: &blob, at: 0 }, Sha256::new());
    let mut buffer = vec![0; COPY_CHUNK];
    loop {
        let length = reader.read(&mut buffer).map_err(|why| refused(format!("reading its blob: {why}")))?;
        if length == 0 {
            break;
        }
        sha256.update(&buffer[..length]);
        partial.write(&buffer[..length])?;
        progress.report(reader.at, Some(blob.len));
    }
    // Before the image gets its name: what is not finished is removed.
    if ImageDigest::new(sha256.finalize().into()) != digest {
        return Err(refused(
            "its blob is damaged; `shoal registry scrub --online` finds what else is, and push it again"
                .to_owned(),
        ));
    }
    let image = partial.finish(dir)?;
    Ok((image, validator))
}

struct Blob<'a> {
    blob: &'a OpenBlob,
    at: u64,
}

impl Read for Blob<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.blob.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
