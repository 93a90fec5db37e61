//! The readers: a few threads, each with a connection of its own, that take what is to be read from one queue.
//!
//! ```text
//!   callers --> queue (bounded) --+--> reader 1 --> answers
//!                                 `--> reader N
//! ```
//!
//! A reader that has answered takes the next read without having slept, and works with memory it has just used: a pool of many
//! threads wakes the one that slept longest. More readers than there are processors only take them from each other: what is
//! read lies in memory nearly always.
//!
//! Invariants
//! - A read that nobody waits for any more is not begun.
//! - One that panics answers so, and its reader goes on.
//! - The threads end with the last handle.

use std::panic::{AssertUnwindSafe, catch_unwind};

use async_channel::{Receiver, Sender};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::StoreError;

/// Reads that wait for a reader at most; callers beyond it wait for a place.
const QUEUE: usize = 1024;

/// How many readers there are.
pub(super) fn many() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4)
}

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The handle of the reader threads.
#[derive(Clone)]
pub(super) struct Readers(Sender<Read>);

impl Readers {
    /// Starts a thread for each of these connections.
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<Self> {
        let (queue, reads) = async_channel::bounded(QUEUE);
        for connection in connections {
            let reads: Receiver<Read> = reads.clone();
            std::thread::Builder::new().name("store-reader".to_owned()).spawn(move || {
                while let Ok(read) = reads.recv_blocking() {
                    read(&connection);
                }
            })?;
        }
        Ok(Self(queue))
    }

    /// Carries out `work` on one of the connections.
    pub(super) async fn read<T, F>(&self, operation: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, receive) = oneshot::channel();
        let read: Read = Box::new(move |connection| {
            if !answer.is_closed() {
                let result = catch_unwind(AssertUnwindSafe(|| work(connection)));
                drop(answer.send(result.unwrap_or(Err(StoreError::Panicked { operation }))));
            }
        });
        self.0.send(read).await.map_err(|_| StoreError::Closed)?;
        receive.await.map_err(|_| StoreError::Closed)?
    }
}
