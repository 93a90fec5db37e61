//! Media: what a BMC is given to read, and who may read it.
//!
//! ```text
//! job ── render ──> files ── plan ──> iso9660::Plan ─┐                          ┌─ range: which bytes
//! location ── Library::import ──> <sha256>.iso ──────┼─> Body ── respond ───────┤
//!                                                    |     ^                    └─ ReadObserver: what was read
//! /t<token>/task.iso ── MediaPath ── Grants::open ───┴─────'
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `token` | tokens, paths and URLs |
//! | `range` | RFC 9110 single ranges, pure |
//! | `body` | bytes that can be served |
//! | `serve` | one HTTP answer |
//! | `job_document` | `job.json` and the other files of a task image |
//! | `task_image` | the task image: plan, freeze, thaw |
//! | `spliced` | the boot image of a single slot: the maintenance image with the task in it |
//! | `file` | images and texts written to disk whole |
//! | `library/` | the maintenance images |
//! | `boot` | where the boot images in them are |
//! | `grants` | tokens to open grants |
//! | `fresh` | images planned a moment ago, not asked for yet |
//! | `reads` | the record of what was read |
//!
//! Invariants: a task image is computed, never stored here; a request after the first costs no hash and no open; what
//! is served always has the digest that its grant was given for; a token is never logged, stored or printed.
//!
//! Not here: who gives and ends grants (the workflow does), where they are kept (the store does), the listener.

mod body;
mod boot;
mod file;
mod grants;
mod job_document;
mod library;
mod offload;
mod range;
mod reads;
mod recent_images;
mod serve;
mod spliced;
mod task_image;
mod token;

#[cfg(test)]
mod tests;

pub use body::{Backing, Body, ISO_CONTENT_TYPE, ImageDigest};
pub use boot::BootExtents;
pub use file::{write_bytes, write_image};
pub use grants::{
    CacheLimits, GrantError, GrantRecord, GrantSource, GrantStore, GrantStoreUnavailable, Grants, OpenGrant,
};
pub use job_document::{JobDocument, PullAccess, RenderInput, render};
pub use library::{
    FetchFailure, ImportError, ImportedImage, Library, LibraryError, LibraryOptions, MaintenanceImage,
    tls_config,
};
pub use offload::{WorkLost, offload};
pub use range::{Selection, evaluate};
pub use reads::{FLUSH_EVERY, ReadSummary, WallClock};
pub use serve::{FileSending, ReadObserver, SendFiles, respond};
pub use spliced::{SpliceInputs, SplicedError, SplicedImage};
pub use task_image::{
    INPUTS_MAX, MEDIA_LABELS, OPTIONAL_FILES, REQUIRED_FILES, TASK_FILES_MAX, TaskImageError, TaskImageInput,
    TaskInputs, freeze, plan, record_inputs_with_body,
};
pub use token::{
    Artifact, MEDIA_URL_LIMIT, MediaPath, MediaToken, MediaUrlError, Suffix, TOKEN_MAX, TOKEN_MIN,
    media_path, media_url,
};
