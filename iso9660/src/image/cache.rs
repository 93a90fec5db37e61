//! A cache of directories.
//!
//! ```text
//! first byte of a directory --> its children, in order; least recently used first to be evicted
//! ```
//!
//! Invariants: at most [`MAX_BYTES`] and [`MAX_DIRECTORIES`], for any image. A directory that would fill most of the
//! cache alone is never kept. A cached directory equals what another read would return.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::view::Child;

/// The approximate limit of memory for all directories, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The largest number of cached directories.
const MAX_DIRECTORIES: usize = 256;
/// The approximate limit of memory for one directory, in bytes.
pub(crate) const MAX_DIRECTORY: usize = MAX_BYTES / 4;

/// The directories used most recently.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    directories: HashMap<u64, Directory>,
    bytes: usize,
    /// A counter of uses.
    clock: u64,
}

#[derive(Debug)]
struct Directory {
    children: Arc<[Child]>,
    bytes: usize,
    used: u64,
}

impl Cache {
    /// Returns the children of the directory at byte `offset`, if they are cached.
    pub(crate) fn get(&self, offset: u64) -> Option<Arc<[Child]>> {
        let mut kept = self.0.lock();
        kept.clock += 1;
        let clock = kept.clock;
        let directory = kept.directories.get_mut(&offset)?;
        directory.used = clock;
        Some(Arc::clone(&directory.children))
    }

    /// Caches the children of a directory, which take approximately `bytes` bytes.
    pub(crate) fn put(&self, offset: u64, children: &Arc<[Child]>, bytes: usize) {
        if bytes > MAX_DIRECTORY {
            return;
        }
        let mut kept = self.0.lock();
        while kept.bytes + bytes > MAX_BYTES || kept.directories.len() >= MAX_DIRECTORIES {
            let oldest = kept.directories.iter().min_by_key(|(_, directory)| directory.used);
            let Some(oldest) = oldest.map(|(offset, _)| *offset) else { break };
            kept.forget(oldest);
        }
        kept.forget(offset);
        kept.clock += 1;
        kept.bytes += bytes;
        let used = kept.clock;
        kept.directories.insert(offset, Directory { children: Arc::clone(children), bytes, used });
    }
}

impl Kept {
    fn forget(&mut self, offset: u64) {
        if let Some(directory) = self.directories.remove(&offset) {
            self.bytes -= directory.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_directories_stay_and_the_bounds_hold() {
        let cache = Cache::default();
        let none: Arc<[Child]> = Vec::new().into();
        for offset in 0..1000 {
            cache.put(offset, &none, 10_000);
            assert!(cache.get(0).is_some(), "used all the time");
        }
        assert!(cache.get(999).is_some() && cache.get(1).is_none());
        cache.put(5, &none, MAX_DIRECTORY + 1);
        assert!(cache.get(5).is_none(), "too large to be kept");
        cache.put(999, &none, 1);
        let kept = cache.0.lock();
        assert!(kept.bytes <= MAX_BYTES);
        assert_eq!(kept.bytes, kept.directories.values().map(|directory| directory.bytes).sum::<usize>());
        drop(kept);
        for offset in 0..1000 {
            cache.put(offset, &none, 0);
        }
        assert!(cache.0.lock().directories.len() <= MAX_DIRECTORIES);
    }
}
