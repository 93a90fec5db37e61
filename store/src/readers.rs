//! The readers: a few threads with one connection each, which take reads from one queue.
//!
//! ```text
//!   callers --> queue (bounded) --+--> reader 1 --> results
//!                                 `--> reader N
//! ```
//!
//! A reader takes the next read without sleeping, so it works with memory it has just used; a pool of many threads wakes the
//! thread that slept longest. More readers than processors would only compete for them, because the pages of the database are
//! nearly always in memory.
//!
//! Invariants
//! - A read whose caller is gone is not started.
//! - A read that panics returns an error, and its reader continues.
//! - The threads end when the last handle is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};

use async_channel::{Receiver, Sender};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::StoreError;
use super::erased::{Erased, Operation};

/// The maximum of reads in the queue. When it is full, callers wait.
const QUEUE: usize = 1024;

/// The number of reader threads.
pub(super) fn count() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4)
}

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The handle of the reader threads.
#[derive(Clone)]
pub(super) struct Readers(Sender<Read>);

impl Readers {
    /// Starts one thread per connection.
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

    /// Carries out `work` on one of the connections and returns its result.
    pub(super) async fn read(&self, operation: &'static str, work: Operation) -> Erased {
        let (reply, receive) = oneshot::channel();
        let read: Read = Box::new(move |connection| {
            if !reply.is_closed() {
                let result = catch_unwind(AssertUnwindSafe(|| work(connection)));
                drop(reply.send(result.unwrap_or(Err(StoreError::Panicked { operation }))));
            }
        });
        self.0.send(read).await.map_err(|_| StoreError::Closed)?;
        receive.await.map_err(|_| StoreError::Closed)?
    }
}
