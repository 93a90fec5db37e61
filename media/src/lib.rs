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
mod fresh;
mod grants;
mod job_document;
mod library;
mod offload;
mod range;
mod reads;
mod serve;
mod spliced;
mod task_image;
mod token;

#[cfg(test)]
mod tests;

pub use body::{Body, ISO_CONTENT_TYPE, ImageDigest, Residence};
pub use boot::BootExtents;
pub use file::{write_bytes, write_image};
pub use grants::{
    CacheLimits, GrantError, GrantLedger, GrantRecord, GrantSource, Grants, LedgerUnavailable, OpenGrant,
};
pub use job_document::{JobDocument, RegistryAccess, RenderInput, render};
pub use library::{
    FetchFailure, ImportError, ImportedImage, Library, LibraryError, LibraryOptions, MaintenanceImage,
    tls_config,
};
pub use offload::{BrokeOff, offload};
pub use range::{Selection, evaluate};
pub use reads::{FLUSH_EVERY, ReadSummary, WallClock};
pub use serve::{PromiseFiles, Promises, ReadObserver, respond};
pub use spliced::{FrozenSplice, SplicedError, SplicedImage};
pub use task_image::{
    FROZEN_MAX, FrozenTask, MEDIA_LABELS, OPTIONAL_FILES, REQUIRED_FILES, TASK_FILES_MAX, TaskImageError,
    TaskImageInput, freeze, freeze_with_body, plan,
};
pub use token::{
    Artifact, MEDIA_URL_LIMIT, MediaPath, MediaToken, MediaUrlError, Suffix, TOKEN_MAX, TOKEN_MIN,
    media_path, media_url,
};
