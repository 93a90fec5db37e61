//! How much the repositories that fit a pattern may hold.
//!
//! ```text
//!  used       bytes of all that their records name: a blob in two repositories counts twice
//!  reserved   bytes of uploads under way, as announced or as received, whichever is more
//!
//!  push: reserve ──refused when used + reserved would exceed the limit──> write ──> settle: reserved becomes used
//! ```
//!
//! Reserving and settling are one step each under one lock, so that however many push at the same time the limit is never
//! exceeded; pushes of the same blob at the same time each reserve it and count it once. Nothing of this is stored: at
//! the start it is counted from the records. Uploads found at the start count whatever the limit says.

use std::sync::{Arc, Mutex};

use super::locks::lock;
use super::{LAYERS, MANIFESTS, Store};
use crate::digest::Digest;
use crate::error::Error;
use crate::name::RepositoryName;
use crate::pattern::RepositoryPattern;

/// A limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The repositories which share it.
    pub repositories: RepositoryPattern,
    /// The bytes they may hold together.
    pub bytes: u64,
}

/// A limit and how much of it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The limit.
    pub quota: Quota,
    /// Bytes of what is stored.
    pub used: u64,
    /// Bytes of uploads under way.
    pub reserved: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    used: u64,
    reserved: u64,
}

/// Every limit and what is taken of it.
#[derive(Debug)]
pub(super) struct Quotas {
    limits: Vec<Quota>,
    taken: Mutex<Vec<Taken>>,
}

/// Bytes held for one push; given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    quotas: Arc<Quotas>,
    /// Which limits it counts against.
    of: Vec<usize>,
    bytes: u64,
}

impl Quotas {
    pub(super) fn new(limits: Vec<Quota>) -> Arc<Self> {
        let taken = Mutex::new(vec![Taken::default(); limits.len()]);
        Arc::new(Quotas { limits, taken })
    }

    /// Nothing yet, for a push to `name`.
    pub(super) fn reservation(self: &Arc<Self>, name: &RepositoryName) -> Reservation {
        Reservation { quotas: Arc::clone(self), of: self.of(name), bytes: 0 }
    }

    /// Counts what a repository has on disk, or no longer has.
    fn count(&self, name: &RepositoryName, change: impl Fn(&mut u64)) {
        let mut taken = lock(&self.taken);
        self.of(name).into_iter().for_each(|index| change(&mut taken[index].used));
    }

    fn of(&self, name: &RepositoryName) -> Vec<usize> {
        let limits = self.limits.iter().enumerate();
        limits.filter(|(_, quota)| quota.repositories.matches(name)).map(|(index, _)| index).collect()
    }
}

impl Reservation {
    /// Holds `total` bytes in all, or as many as before.
    pub(super) fn grow(&mut self, total: u64) -> Result<(), Error> {
        let more = total.saturating_sub(self.bytes);
        if self.of.is_empty() || more == 0 {
            return Ok(());
        }
        let mut taken = lock(&self.quotas.taken);
        for index in &self.of {
            let quota = &self.quotas.limits[*index];
            let Taken { used, reserved } = taken[*index];
            if used.saturating_add(reserved).saturating_add(more) > quota.bytes {
                return Err(Error::QuotaExceeded {
                    repositories: quota.repositories.to_string(),
                    limit: quota.bytes,
                });
            }
        }
        self.of.iter().for_each(|index| taken[*index].reserved += more);
        self.bytes += more;
        Ok(())
    }

    /// Holds `total` bytes whatever the limit says.
    pub(super) fn force(&mut self, total: u64) {
        let mut taken = lock(&self.quotas.taken);
        self.of.iter().for_each(|index| taken[*index].reserved += total.saturating_sub(self.bytes));
        self.bytes = self.bytes.max(total);
    }

    /// Ends it: its first `length` bytes are stored from now on, if `stored`.
    pub(super) fn settle(&mut self, length: u64, stored: bool) {
        let mut taken = lock(&self.quotas.taken);
        for index in &self.of {
            let taken = &mut taken[*index];
            taken.reserved = taken.reserved.saturating_sub(self.bytes);
            taken.used += if stored { length } else { 0 };
        }
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.settle(0, false);
        }
    }
}

impl Store {
    /// Every quota and what is taken of it.
    pub(crate) fn quotas(&self) -> Vec<QuotaUsage> {
        let taken = lock(&self.quotas.taken).clone();
        let pairs = self.quotas.limits.iter().cloned().zip(taken);
        pairs.map(|(quota, Taken { used, reserved })| QuotaUsage { quota, used, reserved }).collect()
    }

    /// Counts off a record that was just removed. Content that is in quarantine counts until the next start.
    pub(super) fn uncount(&self, name: &RepositoryName, digest: &Digest) {
        if !self.quotas.limits.is_empty() {
            let length = self.content(digest).metadata().map_or(0, |metadata| metadata.len());
            self.quotas.count(name, |used| *used = used.saturating_sub(length));
        }
    }

    /// Counts what is there.
    pub(super) fn count_usage(&self) -> Result<(), Error> {
        for name in self.repositories() {
            if self.quotas.of(&name).is_empty() {
                continue;
            }
            for kind in [LAYERS, MANIFESTS] {
                for digest in self.recorded(&name, kind)? {
                    let length = self.content(&digest?).metadata().map_or(0, |metadata| metadata.len());
                    self.quotas.count(&name, |used| *used += length);
                }
            }
        }
        Ok(())
    }
}
