//! Pulling an image from an OCI registry: three kinds of `GET`, every byte verified by digest while it streams.
//!
//! ```text
//! reference --resolve--> [index] -> manifest -> configuration (diff_ids)     documents, small, in memory
//!                                      `-> layers --blob (resumes)--> decode (gzip, zstd) --> tar or disk image
//!                                                    sha256 = digest          sha256 = diff_id
//! ```
//!
//! A task with `delivery: media` has the documents and blobs on its medium: [`MediumLayout`].
//!
//! Invariants: no blob is held in memory or on a disk. A reader of a layer ends without an error only when size, digest and
//! diff_id hold. OCI image and distribution specifications 1.1.

mod blob;
mod decode;
mod error;
mod layout;
mod manifest;
mod registry;
mod source;

pub use blob::BlobReader;
pub use decode::LayerReader;
pub use error::PullError;
pub use layout::MediumLayout;
pub use manifest::{Layer, OciImage};
pub use recipe::{ImageReference, ImageReferenceError, Selector};
pub use registry::Registry;
pub(crate) use registry::{FIRST_PAUSE, LONGEST_PAUSE, PATIENCE};
pub use source::{ImageSource, OpenedBlob, SourceFailure};

#[cfg(test)]
mod tests;
