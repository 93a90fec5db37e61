//! The update service of a simulated BMC: what is installed, and the update that runs.
//!
//! ```text
//!   SimpleUpdate of a BMC that answers first ─► Fetching ─► image arrives, or its task fails
//!   image arrives ─► Checking ─┬─► Checked ── StartUpdate ──┐
//!                              ├────────────────────────────┴─► Flashing ─┬─► device: new version, done
//!                              └─► WaitingForHost (at restart) ──► Flashing├─► BIOS: WaitingForHost ─ restart ─► new version
//!                                                                          └─► BMC: restart, unreachable ─► new version
//!   faults: Hang (99 % for ever), Lie (done, old version), Fail, Critical, LoseTask, NewCertificate, StayAway,
//!           PowerLoss (at 50 %: BMC and host are without power, no task, the old version or none)
//! ```
//!
//! Invariants: one update runs at a time; a version changes only at the end of an update whose image arrived whole; every
//! complete image is counted, so that a test proves that none arrived twice.
//!
//! Time is that of the simulated BMC plus what [`SimBmc::skip_flash_time`] skipped: a test over real sockets needs no sleep.

mod actions;
mod image;
mod progress;
mod reader;
mod run;
mod show;
mod simple;

pub use image::firmware_image;
pub use progress::UpdateRecord;
pub(super) use progress::Updates;
pub(super) use reader::{Upload, UploadReader};
