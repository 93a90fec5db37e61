//! How far an operation on a backup is, and its stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use super::error::BackupError;

/// The part of its work that an operation does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The operation has not begun.
    Waiting,
    /// The operation copies the data.
    Copying,
    /// The operation reads the copy again.
    Verifying,
    /// The operation sends the copy to a registry.
    Sending,
    /// The operation removes older backups.
    Removing,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Waiting, Self::Copying, Self::Verifying, Self::Sending, Self::Removing];

    /// The name in the API.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Copying => "copying",
            Self::Verifying => "verifying",
            Self::Sending => "sending",
            Self::Removing => "removing",
        }
    }
}

/// How far an operation is. Clones share one state. It is asked for its stop after each piece of a file, so that an operation ends
/// within the time of one piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    stop: CancellationToken,
    phase: Arc<AtomicUsize>,
    done: Arc<AtomicU64>,
}

impl Work {
    /// An operation that ends when the token is cancelled.
    pub(super) fn until(stop: CancellationToken) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Begins a phase; its bytes are counted from 0.
    pub(super) fn begin(&self, phase: Phase) {
        let number = Phase::ALL.iter().position(|known| *known == phase).unwrap_or_default();
        self.done.store(0, Ordering::Relaxed);
        self.phase.store(number, Ordering::Relaxed);
    }

    /// Counts bytes of the phase.
    ///
    /// # Errors
    /// [`BackupError::Interrupted`] after the stop.
    pub(super) fn advance(&self, bytes: u64) -> Result<(), BackupError> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        if self.stop.is_cancelled() { Err(BackupError::Interrupted) } else { Ok(()) }
    }

    /// The phase, and its bytes so far.
    pub(super) fn state(&self) -> (Phase, u64) {
        let phase = Phase::ALL.get(self.phase.load(Ordering::Relaxed)).copied().unwrap_or(Phase::Waiting);
        (phase, self.done.load(Ordering::Relaxed))
    }
}
