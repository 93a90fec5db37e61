//! Files that hold the image of a whole disk: which form a file has, its raw content as a stream, and the OCI artifact that
//! carries it to a machine.
//!
//! ```text
//! file --first bytes--> raw   ──────────────────────────────┐
//!                       qcow2 ── clusters in guest order ───┼──> raw content --zstd--> blob ──┐
//!                       gzip, zstd ── one layer, as it is ──┴────────────────────────> blob ──┴──> artifact (manifest)
//! ```
//!
//! Invariants: every reader streams in bounded memory; what an image file says about itself is compared with the length of the
//! file before it is used; equal content gives equal blobs and equal manifests.

mod artifact;
mod form;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod pack;
mod qcow2;
mod start;
#[cfg(test)]
mod test_kit;
mod unpack;

pub use artifact::{ARTIFACT_TYPE, Artifact, EMPTY_CONFIG, EMPTY_DIGEST, MANIFEST_TYPE};
pub use form::{Form, UnknownForm};
pub use pack::{Packed, pack};
pub use qcow2::{Qcow2, Qcow2Error};
pub use start::{StartError, check_start, checked, is_mbr, sector_of_image};
pub use unpack::unpacked;

/// The largest disk whose image is read, in bytes.
pub const MAX_DISK: u64 = 64 << 40;
