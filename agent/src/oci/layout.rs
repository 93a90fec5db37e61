//! An image of the medium: an OCI image layout in its volume.
//!
//! ```text
//! index.json --the only manifest--> blobs/sha256/MANIFEST -> configuration, layers
//! ```
//!
//! Invariants: every byte is verified by digest, as from a registry: the medium comes by plain HTTP. A read that fails is tried
//! again at the device for ten minutes, from the offset that was reached.

use std::sync::Arc;

use beacon::Class;
use recipe::is_sha256;
use serde::Deserialize;

use super::error::PullError;
use super::manifest::{OciImage, resolve};
use super::registry::{FIRST_PAUSE, LONGEST_PAUSE, PATIENCE};
use super::source::{ImageSource, OpenedBlob, SourceFailure};
use crate::clock::Clock;
use crate::medium::{ExtentReader, MediumVolume};
use crate::transmit::Fault;

const MAX_INDEX: u64 = 64 * 1024;

/// The OS image of a medium.
pub struct MediumLayout<'run> {
    volume: &'run MediumVolume,
    clock: &'run dyn Clock,
    fault: Fault,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

impl<'run> MediumLayout<'run> {
    /// Creates the source of the image in `volume`; `fault` receives the class of a failure.
    #[must_use]
    pub fn new(volume: &'run MediumVolume, clock: &'run dyn Clock, fault: Fault) -> Self {
        Self { volume, clock, fault }
    }

    /// Resolves the only image of the layout.
    ///
    /// # Errors
    /// Returns an error when the medium cannot be read, the layout is malformed or the image cannot be installed.
    pub fn resolve(&self) -> Result<OciImage, PullError> {
        let bytes = self.patient("index.json", MAX_INDEX)?;
        let refused = |reason: String| {
            self.failed(Class::Image);
            PullError::Document { what: "index.json of the medium".to_owned(), reason }
        };
        let index: Index = serde_json::from_slice(&bytes).map_err(|source| refused(source.to_string()))?;
        let [Descriptor { digest }] = &index.manifests[..] else {
            return Err(refused(format!("it names {} images; one is expected", index.manifests.len())));
        };
        if !is_sha256(digest) {
            return Err(refused("its digest is not a sha256".to_owned()));
        }
        resolve(self, digest, Some(digest)).inspect_err(|error| self.failed(error.class()))
    }

    /// Reads a small file, and tries again for ten minutes.
    fn patient(&self, path: &str, limit: u64) -> Result<Vec<u8>, PullError> {
        let begun = self.clock.elapsed();
        let mut pause = FIRST_PAUSE;
        loop {
            let reason = match self.volume.read(path, limit) {
                Ok(bytes) => return Ok(bytes),
                Err(reason) => reason,
            };
            if self.clock.elapsed().saturating_sub(begun) + pause > PATIENCE {
                self.failed(Class::Medium);
                return Err(PullError::Unreachable { what: "reading the medium".to_owned(), reason });
            }
            self.clock.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn path(digest: &str) -> String {
    format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap_or(digest))
}

impl ImageSource for MediumLayout<'_> {
    fn name(&self) -> &'static str {
        "the medium"
    }

    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn document(&self, _kind: &str, name: &str, _accept: &str, limit: u64) -> Result<Vec<u8>, PullError> {
        self.patient(&path(name), limit)
    }

    fn open_blob(&self, digest: &str, offset: u64, _what: &str) -> Result<OpenedBlob, SourceFailure> {
        let extents = self.volume.extents(&path(digest)).map_err(SourceFailure::Transient)?;
        let again = self.volume.medium().reopen();
        let medium =
            again.map_err(|source| SourceFailure::Transient(format!("opening the medium: {source}")))?;
        let body = Box::new(ExtentReader::new(Arc::clone(&medium), extents, offset));
        Ok(OpenedBlob { begins: Some(offset), body })
    }

    fn failed(&self, class: Class) {
        // The first failure is the cause of the others.
        let _ = self.fault.set(class);
    }
}
