//! The pins of runs: what a run needs stays in the registry until its last step removes the pin.
//!
//! ```text
//!   "job ID"   of the OS image or of the firmware files of run ID; `shoal registry pins` shows it
//! ```
//!
//! A run that ended without its last steps, in a release of restored data or by an error of the registry, leaves its pins. So does a
//! run that restored data does not know. The start removes them.

use std::collections::HashSet;

use registry::{PinOwner, Registry};

use model::{RunId, error_chain};
use store::Store;

use crate::app::StartError;

/// The beginning of the owner of such a pin, before the id of the run.
const OF_RUN: &str = "job ";

/// The owner of the pins of a run.
///
/// # Errors
/// When the id is no name of an owner.
pub(in crate::app) fn owner(run: &str) -> Result<PinOwner, registry::InvalidPinOwner> {
    format!("{OF_RUN}{run}").parse()
}

/// Removes the pins of runs that have ended or that the database does not know.
///
/// # Errors
/// When the database cannot be read.
pub(in crate::app) async fn remove_ended(registry: &Registry, store: &Store) -> Result<(), StartError> {
    let pins = registry.pins().into_iter().filter_map(|pin| {
        let run = pin.owner.to_string().strip_prefix(OF_RUN)?.parse::<RunId>().ok();
        Some((pin, run))
    });
    let pins: Vec<_> = pins.collect();
    let asked = pins.iter().filter_map(|(_, run)| *run).collect();
    let open: HashSet<RunId> = store.unfinished_of(asked).await?;
    let mut removed = 0_usize;
    for (pin, _) in pins.iter().filter(|(_, run)| run.is_none_or(|run| !open.contains(&run))) {
        match registry.unpin(&pin.repository, &pin.digest, &pin.owner).await {
            Ok(was_there) => removed += usize::from(was_there),
            // It costs room only, and the next start tries again.
            Err(error) => {
                let (error, owner) = (error_chain(&error), &pin.owner);
                tracing::warn!(%error, %owner, "the pin of a job that has ended stays in the registry");
            }
        }
    }
    if removed > 0 {
        tracing::info!(removed, "pins of jobs that have ended were removed from the registry");
    }
    Ok(())
}
