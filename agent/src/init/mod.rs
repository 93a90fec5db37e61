//! The agent as the first process of the medium.
//!
//! ```text
//! kernel --> /init (process 1): mounts, consoles, power button, waits for every child
//!                |  starts, and after a fault starts again with the reason
//!                v
//!            worker: drivers -> search for the task -> network -> controller accepts -> task -> report -> ending
//! ```
//!
//! Two processes, because the first one must never end: the kernel stops with it. A worker that panics, is killed for its
//! memory or crashes is a fault that the next worker reports to the controller. Children of the worker are its own; only
//! those whose parent ended come to the first process, so no wait of the worker is disturbed.
//!
//! Invariants: the first process opens no medium and no connection. No disk is written before the controller accepted a
//! report of the job. A machine never restarts by itself unless its task says so.

pub mod after;
pub mod consoles;
pub mod hotplug;
mod lookout;
pub mod mounts;
pub mod power;
pub mod rescue;
pub mod supervisor;
pub mod worker;

/// The argument with which the first process starts a worker.
pub const WORKER: &str = "--worker";
/// The unit under which the first process logs.
pub const UNIT: &str = "init.service";
