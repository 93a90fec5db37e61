//! The images that a BMC reads, and the right to read them.
//!
//! ```text
//! job ── render ──> files ── plan ──> ImagePlan ─────┐                               ┌─ range: which bytes
//! location ── Library::import ──> <sha256>.iso ──────┼─> ImageBody ── respond ───────┤
//!                                                    |     ^                         └─ ReadObserver: what was read
//! registry ── open, hash ──> firmware image ─────────┘
//! /t<token>/task.iso ── MediaPath ── MediaGrants::open ────'
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `token` | tokens, paths and URLs |
//! | `range` | RFC 9110 single ranges, without input or output |
//! | `body` | image bytes with length and digest |
//! | `serve` | one HTTP response |
//! | `job_document` | `job.json` and the other files of a task image |
//! | `task_image` | the task image: plan, record inputs, rebuild |
//! | `os_medium` | the OS image of a job with `delivery: media`: its volume, its contents, the beacon |
//! | `spliced` | the boot image of a single slot: the maintenance image with the task's files added |
//! | `file` | atomic writes of images and texts |
//! | `library/` | the maintenance images |
//! | `boot` | the ranges of the El Torito images in an image |
//! | `grant_store` | the durable store of grants, as a trait |
//! | `grants` | from a token to an open grant |
//! | `grant_error` | why a token opens no grant |
//! | `recent_images` | images that were planned but not requested yet |
//! | `reads` | the record of what was read |
//! | `signed_url` | signed URLs of task images with an expiry |
//! | `outgoing` | the policy for what is fetched on behalf of others |
//! | `refusals` | media that were refused because their images cannot be made |
//! | `verified_files` | firmware files that were hashed but not requested yet |
//! | `offload` | blocking work on other threads |
//!
//! Invariants: a task image is computed and not stored in this crate; after the first request of a grant, a request
//! hashes nothing and opens no file; the served bytes have the digest that the grant recorded; a token is never logged,
//! stored or printed.
//!
//! Elsewhere: what a grant is stands in `model::grant`; the workflow decides when a grant is issued and ended, the
//! store keeps it, the controller owns the listener.

mod body;
mod boot;
mod file;
mod grant_error;
mod grant_store;
mod grants;
mod job_document;
mod least_used;
mod library;
mod offload;
mod os_medium;
mod outgoing;
mod range;
mod reads;
mod recent_images;
mod refusals;
mod serve;
mod signed_url;
mod spliced;
mod task_image;
mod task_image_error;
mod token;
mod verified_files;

#[cfg(test)]
mod tests;

pub use beacon::News as BeaconNews;
pub use body::{Backing, ISO_CONTENT_TYPE, ImageBody, ImageDigest};
pub use boot::BootExtents;
pub use file::{write_bytes, write_image};
pub use grant_error::GrantError;
pub use grant_store::{GrantStore, GrantStoreUnavailable};
pub use grants::{BeaconListener, CacheLimits, MediaGrants, OpenGrant, grant_span};
pub use job_document::{FormerDisk, JobDocument, PullAccess, RenderInput, render};
pub use library::{
    FetchFailure, ImportError, ImportedImage, Library, LibraryError, LibraryOptions, MaintenanceImage,
    OwnImages, OwnName, shown_location, tls_config,
};
pub use offload::{WorkLost, offload};
pub use os_medium::{
    OS_BLOBS_MAX, OS_IMAGE_MAX, OpenBlob, OpenOsImage, OsBlob, OsBlobs, OsBlobsUnavailable, OsImage,
    OsImageRefused,
};
pub use outgoing::{AddressPolicy, AddressRefused, FilePolicy, FileRefused, SourcePolicy};
pub use range::{Selection, evaluate};
pub use reads::FLUSH_EVERY;
pub use serve::{FileSending, ReadObserver, SendFiles, respond};
#[doc(hidden)]
pub use signed_url::fuzz;
pub use signed_url::{SignedQuery, UrlSigner};
pub use spliced::{SpliceInputs, SplicedError, SplicedImage};
pub use task_image::{
    INPUTS_MAX, MEDIA_LABELS, OPTIONAL_FILES, REQUIRED_FILES, TaskImageInput, TaskInputs, plan,
    record_inputs, record_inputs_with_body, record_inputs_with_os_image,
};
pub use task_image_error::{TASK_FILES_MAX, TaskImageError};
pub use token::{
    Artifact, ImageUse, MEDIA_URL_LIMIT, MediaPath, MediaToken, MediaUrlError, NoTokenSeed, SeedOfRun,
    Suffix, TOKEN_MAX, TOKEN_MIN, firmware_url, media_path, media_url, tokens_of,
};
