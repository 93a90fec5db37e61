//! Notices that a registry takes no more of a body.
//!
//! ```text
//!   file --> pieces --> watched --> HTTP client --> registry
//!                          └── each piece that is taken starts the time again; the end of the body ends it
//! ```
//!
//! A registry that has all of a body may need long to compare its digest. Only the deadline of the request bounds that.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::sync::watch;

use super::client::SILENCE;

/// Watches the bodies of one request, one after the other.
#[derive(Clone, Debug)]
pub(super) struct SendWatch {
    /// Whether a body is being sent. Each piece is a change, also to the same value.
    sending: Arc<watch::Sender<bool>>,
}

impl Default for SendWatch {
    fn default() -> Self {
        Self { sending: Arc::new(watch::Sender::new(false)) }
    }
}

impl SendWatch {
    /// A body that is being sent from now on, until its end or until it is dropped.
    pub(super) fn watched<S>(&self, pieces: S) -> WatchedBody<S> {
        self.sending.send_replace(true);
        WatchedBody { pieces, watch: self.clone() }
    }

    /// Returns when no piece of a body was taken for [`SILENCE`].
    pub(super) async fn stalled(&self) {
        let mut changes = self.sending.subscribe();
        loop {
            let is_sending = *changes.borrow_and_update();
            let changed = tokio::time::timeout(SILENCE, changes.changed()).await;
            if is_sending && changed.is_err() {
                return;
            }
        }
    }
}

/// A body whose pieces are noticed.
pub(super) struct WatchedBody<S> {
    pieces: S,
    watch: SendWatch,
}

impl<S: Stream + Unpin> Stream for WatchedBody<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = ready!(Pin::new(&mut self.pieces).poll_next(context));
        self.watch.sending.send_replace(piece.is_some());
        Poll::Ready(piece)
    }
}

impl<S> Drop for WatchedBody<S> {
    fn drop(&mut self) {
        self.watch.sending.send_replace(false);
    }
}
