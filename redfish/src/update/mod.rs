//! Updates of firmware.
//!
//! ```text
//!   update_capability ─► choose_way ─► prepare_update ─► (stored) ─► start_update ─┬─► Accepted(handle) ─► (stored)
//!   firmware_inventory   pure          tasks before                                └─► MaybeAccepted: find_update, versions
//!                                                                                            │
//!   poll_update(handle), once per wake-up ◄──────────────────────────────────────────────────┘
//!      Queued ─► Running ─► Uploaded ─► start_uploaded ─► Running ─► NeedsHostRestart ─► Done ─► firmware_inventory
//!                   └─► Away, CertificateChanged, LoginRefused (the BMC restarts) ─► Running | Gone | Done
//! ```
//!
//! Invariants:
//! - **No image is sent twice.** One call sends at most once; what leaves open whether the BMC has the image is
//!   [`UpdateStart::MaybeAccepted`], not an error. An error means that it certainly does not have it.
//! - An image is streamed: one piece of 64 KiB is in memory, and its `Content-Length` is exact.
//! - Between two polls nothing is held: a [`UpdateHandle`] is a few hundred bytes and works in any process.
//! - The word of a task is not a proof. Only the installed version is.
//!
//! What differs between vendors is data in the profile (`update_*` flags).
//! Specification: DSP0266, DSP0268 UpdateService, SoftwareInventory, Task; DSP2062.

pub(crate) mod accepted;
mod choice;
mod form;
mod handle;
mod inventory;
mod poll;
mod send;
pub(crate) mod service;
mod start;
pub(crate) mod tasks;

pub use choice::{Choice, Considered, ImageOffer, NoWay, UpdateRoute, choose_way};
pub use handle::{
    PreparedUpdate, PushOptions, SecondRequest, StagedUpload, StoredFormat, UpdateHandle, UpdateRequest,
    UpdateStart,
};
pub(crate) use inventory::MAX_ITEMS;
pub use inventory::{SoftwareInventory, SoftwareItem};
pub(crate) use poll::describe;
pub use poll::{UpdatePoll, UpdateState};
pub use send::upload_deadline;
pub use service::{ApplyTime, SimpleUpdateAction, UpdateCapability};
pub use start::UpdateImage;
