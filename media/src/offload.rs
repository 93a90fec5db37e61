//! Work that keeps a processor or a disk busy, kept away from the threads that answer others.
//!
//! On a runtime of one thread there are no others: the work is done in place. That is a simulation or a test, and there the
//! order of everything that happens is the program's own; an answer from another thread would come whenever it likes.

use tokio::runtime::{Handle, RuntimeFlavor};

/// The work broke off because of a defect, or because the program stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the work broke off; look for a panic in the log")]
pub struct WorkLost;

/// Whether there is but one thread, so that work is done where it is.
pub(super) fn in_place() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// Does blocking work where it disturbs nobody.
pub async fn offload<T, F>(work: F) -> Result<T, WorkLost>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if in_place() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_stopped| WorkLost)
}
