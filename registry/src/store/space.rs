//! Free space: pushes leave the reserve to the rest of the program.
//!
//! Most clients do not announce lengths, so the free space is read again while uploads grow. All of them are counted together:
//! many at a time take no more than a quarter of the reserve before it is read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Store;
use super::disk::Space;
use crate::error::Error;

/// The most that uploads grow before the free space is read again, however large the reserve is.
const LOOK_EVERY: u64 = 16 << 20;
/// More than any limit, without an overflow when chunks are added.
const LOOK_NOW: u64 = u64::MAX / 2;

/// The growth of all uploads since the free space was read.
#[derive(Default)]
pub(super) struct SpaceWatch {
    written: AtomicU64,
    /// The growth after which the free space is read again; 0 before the first time.
    limit: AtomicU64,
}

impl Store {
    pub(crate) fn free_bytes(&self) -> Result<u64, Error> {
        Ok(self.disk.space(&self.config.root)?.free)
    }

    /// Whether `incoming` more bytes fit without touching the reserve.
    pub(crate) fn expect_space_for(&self, incoming: u64) -> Result<(), Error> {
        let Space { free, total } = self.disk.space(&self.config.root)?;
        let reserve = self.config.reserve.of(total);
        let limit = if reserve == 0 { LOOK_EVERY } else { LOOK_EVERY.min(reserve / 4) };
        self.space.limit.store(limit, Ordering::Relaxed);
        if free < incoming.saturating_add(reserve) { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Whether an upload may grow by `incoming` bytes. Reads the free space only now and then.
    pub(super) fn expect_room_for(&self, incoming: u64) -> Result<(), Error> {
        let SpaceWatch { written, limit } = &self.space;
        if written.fetch_add(incoming, Ordering::Relaxed) + incoming <= limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        written.store(incoming, Ordering::Relaxed);
        // While there is no space, each upload finds that out with its next bytes.
        self.expect_space_for(incoming).inspect_err(|_| written.store(LOOK_NOW, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use bytes::Bytes;

    use super::super::disk::{Disk, DiskHook, DiskOp, HookAction};
    use super::super::faults::{config, directory};
    use super::*;
    use crate::config::{Config, Reserve};
    use crate::digest::Algorithm;

    const MIB: u64 = 1 << 20;

    /// A disk whose uploads are all that is on it.
    struct SmallDisk {
        uploads: PathBuf,
        total: u64,
        looks: AtomicUsize,
    }

    impl SmallDisk {
        fn used(&self) -> u64 {
            let files = self.uploads.read_dir().unwrap();
            files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
        }
    }

    impl DiskHook for SmallDisk {
        fn before(&self, _: DiskOp<'_>) -> HookAction {
            HookAction::Go
        }

        fn after(&self, _: DiskOp<'_>) {}

        fn space(&self) -> Option<Space> {
            self.looks.fetch_add(1, Ordering::Relaxed);
            Some(Space { free: self.total - self.used(), total: self.total })
        }
    }

    #[test]
    fn uploads_at_one_time_leave_three_quarters_of_the_reserve_at_least() {
        let root = directory();
        let total = 16 * MIB;
        let disk = SmallDisk { uploads: root.path().join("uploads"), total, looks: AtomicUsize::new(0) };
        let disk = Arc::new(disk);
        for reserve in [Reserve::Bytes(4 * MIB), Reserve::Percent(25)] {
            let config = Config { reserve, ..config(root.path()) };
            let hook = Disk { hook: Some(Arc::clone(&disk) as _) };
            let store = Arc::new(Store::open_on(hook, config).unwrap());
            let open = |_| {
                let session = store.begin_upload(&"a".parse().unwrap(), Algorithm::Sha256).unwrap();
                store.sink(Arc::clone(&session), session.try_lock().unwrap()).unwrap()
            };
            let mut sinks: Vec<_> = (0..8).map(open).collect();
            let chunk = Bytes::from(vec![0; 64 << 10]);
            disk.looks.store(0, Ordering::Relaxed);
            let (mut most, mut refused) = (0, 0);
            while let Some(sink) = sinks.pop() {
                match sink.append(&chunk) {
                    Ok(sink) => sinks.insert(0, sink),
                    Err(error) => {
                        assert!(matches!(error, Error::NoSpace), "{error}");
                        refused += 1;
                        break;
                    }
                }
                most = most.max(disk.used());
            }
            assert_eq!(refused, 1);
            assert!((11 * MIB..=13 * MIB).contains(&most), "{most}");
            assert!(disk.looks.load(Ordering::Relaxed) <= 16, "{disk:?}", disk = disk.looks);
            // The place of the refused upload is free again, and the others see that.
            assert!(sinks.pop().unwrap().append(&chunk).is_ok());
            drop(sinks);
            let left: Vec<_> = store.sessions.lock().values().cloned().collect();
            left.iter().for_each(|session| store.abandon(session));
        }
    }
}
