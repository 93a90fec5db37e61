//! Changes that are completed and recorded whatever happens to their request.
//!
//! ```text
//!  request ─> change on disk ─> recorded ─> response
//!      │ the client disconnects: the server drops the request
//!      └────> the rest runs as a task of its own
//! ```
//!
//! A change on a blocking thread is made even if its request is dropped. Without this, what follows it (the event of the
//! audit) would not be.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

/// A change. While its request lasts it is a part of it, with its task-locals and its span; a panic is one of the request.
pub(super) struct Completed<T: Send + 'static> {
    /// Absent at the end, and after a panic.
    change: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    span: Span,
}

/// Runs `change` to its end, also when the result is dropped.
pub(super) fn completed<T: Send>(change: impl Future<Output = T> + Send + 'static) -> Completed<T> {
    Completed { change: Some(Box::pin(change)), span: Span::current() }
}

impl<T: Send> Future for Completed<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(mut change) = self.change.take() else { return Poll::Pending };
        let polled = change.as_mut().poll(context);
        if polled.is_pending() {
            self.change = Some(change);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Completed<T> {
    fn drop(&mut self) {
        // Without a runtime the process is ending.
        if let (Some(change), Ok(runtime)) = (self.change.take(), Handle::try_current()) {
            runtime.spawn(
                async {
                    change.await;
                }
                .instrument(self.span.clone()),
            );
        }
    }
}
