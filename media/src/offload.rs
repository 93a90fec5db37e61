//! Runs blocking work on other threads than those that serve requests.
//!
//! On a runtime with one thread the work runs in place. Such a runtime belongs to a simulation or a test, where the order of
//! all operations must be reproducible; a result from another thread would arrive at an unpredictable time.

use tokio::runtime::{Handle, RuntimeFlavor};

/// The work ended without a result: it panicked, or the program stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the work ended without a result; look for a panic in the log")]
pub struct WorkLost;

/// Whether the runtime has only one thread, so that work runs in place.
pub(super) fn in_place() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// Runs blocking work on a thread that may block and returns its result. Its log lines carry the ids of the caller's span.
///
/// # Errors
/// [`WorkLost`] when the work panics or the runtime stops.
pub async fn offload<T, F>(work: F) -> Result<T, WorkLost>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if in_place() {
        return Ok(work());
    }
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await.map_err(|_stopped| WorkLost)
}

/// Runs work that may take long on this thread. If `long`, the other tasks of the thread continue elsewhere meanwhile.
pub(super) fn blocking_if<T>(long: bool, work: impl FnOnce() -> T) -> T {
    match long && !in_place() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
