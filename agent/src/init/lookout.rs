//! The look at the media while the controller of a job is not reached.
//!
//! ```text
//! job found --a minute--> look --half a minute--> look …   a medium has a job that replaces it -> the search begins again
//!                                                          the controller responds             -> no further look
//! ```
//!
//! Invariant: devices are opened for reading only, by the readers of the search.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::discovery::{FoundTask, RefusedJobs};
use crate::log::Log;
use crate::search::{Devices, Readers, SETTLE_TIME, block_devices, is_fixed, replacement};
use crate::serials::MachineSerials;

/// When the media are read again for the first time.
const FIRST_LOOK: Duration = Duration::from_secs(60);
/// The pause between two looks.
const NEXT_LOOK: Duration = Duration::from_secs(30);

/// A thread that reads the media while the controller of a job is not reached: an older medium must not hide a newer one.
pub(super) struct Lookout {
    has_found: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Readers>,
}

impl Lookout {
    /// Begins to read, a minute after this call and each half minute after it.
    pub(super) fn begin(readers: Readers, found: FoundTask, refused: RefusedJobs, log: &Log) -> Self {
        let (has_found, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (finds, ends, log) = (Arc::clone(&has_found), Arc::clone(&is_over), log.clone());
        let thread = std::thread::spawn(move || {
            let (sys, dev) = (Path::new("/sys"), Path::new("/dev"));
            let devices = Devices {
                list: &|| block_devices(sys, dev),
                is_fixed: &|path| is_fixed(sys, path),
                settle: SETTLE_TIME,
            };
            let mut pause = FIRST_LOOK;
            while !ends.load(Ordering::Relaxed) && !finds.load(Ordering::Relaxed) {
                std::thread::park_timeout(pause);
                pause = NEXT_LOOK;
                let serials = MachineSerials::read(sys);
                let found = || replacement(&readers, &devices, &serials, &refused, &found, &log).is_some();
                if !ends.load(Ordering::Relaxed) && found() {
                    finds.store(true, Ordering::Relaxed);
                }
            }
            readers
        });
        Self { has_found, is_over, thread }
    }

    /// Whether a medium holds a job that replaces this one.
    pub(super) fn has_found(&self) -> bool {
        self.has_found.load(Ordering::Relaxed)
    }

    /// Ends the reading.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }

    /// Ends the reading. Returns the readers, which know the devices that do not respond.
    pub(super) fn end(self) -> Readers {
        self.stop();
        self.thread.join().unwrap_or_default()
    }
}
