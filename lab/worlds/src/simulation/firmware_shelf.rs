//! The firmware files of a world, in memory, and the runs that hold them. The shelf is the disk of the world: what it holds for a run
//! outlives the controller that asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::rng::WorldRng;
use firmware::FirmwareFile;
use model::RunId;

/// The random stream of the reads.
const READS: u64 = 0x8a1d_70c3_54f2_9be7;

/// All firmware files of a world.
pub(super) struct FirmwareShelf {
    files: OnceLock<BTreeMap<String, Shelved>>,
    /// The files that are held, by run.
    held: Mutex<BTreeMap<RunId, BTreeSet<String>>>,
    rng: WorldRng,
}

/// One firmware file.
pub(super) struct Shelved {
    pub(super) file: FirmwareFile,
    pub(super) image: Arc<[u8]>,
}

impl FirmwareShelf {
    pub(super) fn new(seed: u64) -> Self {
        Self { files: OnceLock::new(), held: Mutex::default(), rng: WorldRng::keyed(seed, READS) }
    }

    /// Puts the files of a new world onto the shelf, by the digest of their manifest.
    pub(super) fn fill(&self, files: BTreeMap<String, Shelved>) {
        // The world is new: the cell is empty.
        let _first = self.files.set(files);
    }

    /// The file with this digest of its manifest.
    pub(super) fn file(&self, digest: &str) -> Option<&Shelved> {
        self.files.get()?.get(digest)
    }

    /// Holds files for a run.
    pub(super) fn hold(&self, run: RunId, digests: impl Iterator<Item = String>) {
        self.held.lock().entry(run).or_default().extend(digests);
    }

    /// Ends the hold of a run.
    pub(super) fn release(&self, run: RunId) {
        self.held.lock().remove(&run);
    }

    /// Whether files are held for a run.
    pub(super) fn holds_for(&self, run: RunId) -> bool {
        self.held.lock().contains_key(&run)
    }

    /// Decides with a probability per mille.
    pub(super) fn chance_per_mille(&self, per_mille: u64) -> bool {
        self.rng.chance_per_mille(per_mille)
    }
}
