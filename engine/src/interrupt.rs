//! Interrupting what is being worked on: which runs this engine has claimed, and how each is told to stop.
//!
//! ```text
//!  program stops   token          what may be dropped is dropped, the rest ends by itself
//!  cancel          token, asked   no new effect is begun; a call that may not be dropped has 30 s, and as long as a
//!                                 request it has sent may take
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::RunId;

/// How long a call that may not be interrupted goes on after a cancel, beyond a request it has sent already.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How one claim is told to stop.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt {
    pub(super) token: CancellationToken,
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    pub(super) fn new(token: CancellationToken) -> Self {
        Self { token, asked: Arc::default() }
    }

    /// Whether the run's end was asked for, and not only that of the program.
    pub(super) fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.token.cancel();
    }
}

/// The claims of this engine. The epoch tells two claims of one run apart, so that the end of the first does not unlist the
/// second.
#[derive(Clone, Default)]
pub(super) struct Interrupts(Arc<Mutex<HashMap<RunId, (i64, Interrupt)>>>);

impl Interrupts {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, (i64, Interrupt)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Interrupts the step a run is in, if this engine works on it.
    pub(super) fn ask(&self, run: RunId) {
        if let Some((_, interrupt)) = self.map().get(&run) {
            interrupt.ask();
        }
    }

    /// How many runs are being worked on.
    pub(super) fn len(&self) -> usize {
        self.map().len()
    }

    /// Lists a claim until what is answered goes.
    pub(super) fn list(&self, id: RunId, epoch: i64, interrupt: &Interrupt) -> ClaimEntry {
        self.map().insert(id, (epoch, interrupt.clone()));
        ClaimEntry { all: self.clone(), id, epoch }
    }
}

/// A listed claim; takes itself off the list, also when its worker panics.
pub(super) struct ClaimEntry {
    all: Interrupts,
    id: RunId,
    epoch: i64,
}

impl Drop for ClaimEntry {
    fn drop(&mut self) {
        let mut map = self.all.map();
        if map.get(&self.id).is_some_and(|(epoch, _)| *epoch == self.epoch) {
            map.remove(&self.id);
        }
    }
}
