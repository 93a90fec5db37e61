//! Limits of the bytes in the repositories of a pattern.
//!
//! ```text
//!  used       bytes of all content in their records: a blob in two repositories counts twice
//!  reserved   bytes that uploads under way have received
//!
//!  push: announce ──refused when used + reserved + announced would exceed the limit──> for each piece:
//!        reserve ──refused when used + reserved would exceed the limit──> write ──> settle: reserved becomes used
//! ```
//!
//! An announced length is compared and not reserved: a client may announce a length and never send it. Reserving and
//! settling are one step each under one lock, so that concurrent pushes never exceed the limit; concurrent pushes of one
//! blob each reserve it and count it once. The counts are not stored: at the start they are computed from the records.
//! Uploads found at the start are counted even beyond the limit.
//!
//! The bytes of each repository are counted in the same steps, with quotas and without.
//!
//! What a broken connection left behind stays continuable and counts. Most clients start again instead of continuing, so
//! it must not keep them out: a push that would fit without it ends such uploads, the oldest first.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{LAYERS, MANIFESTS, Store};
use crate::config::Quota;
use crate::digest::Digest;
use crate::error::Error;
use crate::name::RepositoryName;

/// A quota and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The quota.
    pub quota: Quota,
    /// Bytes of stored content.
    pub used: u64,
    /// Bytes of uploads under way.
    pub reserved: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    used: u64,
    reserved: u64,
}

/// All quotas and their use.
#[derive(Debug)]
pub(super) struct Quotas {
    limits: Vec<Quota>,
    taken: Mutex<Vec<Taken>>,
    /// Bytes of stored content by repository.
    of_repository: Mutex<HashMap<RepositoryName, u64>>,
}

/// Bytes reserved for one push; released when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    quotas: Arc<Quotas>,
    name: RepositoryName,
    /// The indexes of the quotas against which the reservation counts.
    of: Vec<usize>,
    bytes: u64,
}

impl Quotas {
    pub(super) fn new(limits: Vec<Quota>) -> Arc<Self> {
        let taken = Mutex::new(vec![Taken::default(); limits.len()]);
        Arc::new(Quotas { limits, taken, of_repository: Mutex::default() })
    }

    /// An empty reservation for a push to `name`.
    pub(super) fn reservation(self: &Arc<Self>, name: &RepositoryName) -> Reservation {
        Reservation { quotas: Arc::clone(self), name: name.clone(), of: self.of(name), bytes: 0 }
    }

    /// Applies a change of a repository's bytes to its quotas.
    fn count(&self, name: &RepositoryName, change: impl Fn(&mut u64)) {
        let mut taken = self.taken.lock();
        self.of(name).into_iter().for_each(|index| change(&mut taken[index].used));
        drop(taken);
        change(self.of_repository.lock().entry(name.clone()).or_default());
    }

    /// Whether one quota counts the bytes of both repositories.
    pub(super) fn shared(&self, one: &RepositoryName, other: &RepositoryName) -> bool {
        self.limits.iter().any(|quota| quota.repositories.matches(one) && quota.repositories.matches(other))
    }

    fn of(&self, name: &RepositoryName) -> Vec<usize> {
        let limits = self.limits.iter().enumerate();
        limits.filter(|(_, quota)| quota.repositories.matches(name)).map(|(index, _)| index).collect()
    }
}

impl Reservation {
    /// Reserves `total` bytes in all; on failure the reservation is unchanged.
    pub(super) fn grow(&mut self, total: u64) -> Result<(), Error> {
        let more = total.saturating_sub(self.bytes);
        if self.of.is_empty() || more == 0 {
            return Ok(());
        }
        let mut taken = self.quotas.taken.lock();
        self.expect_room(&taken, more, |taken| taken.reserved)?;
        self.of.iter().for_each(|index| taken[*index].reserved += more);
        self.bytes += more;
        Ok(())
    }

    /// Checks that `total` bytes in all could be reserved now.
    pub(super) fn expect(&self, total: u64) -> Result<(), Error> {
        let more = total.saturating_sub(self.bytes);
        self.expect_room(&self.quotas.taken.lock(), more, |taken| taken.reserved)
    }

    /// Whether `total` bytes in all could be reserved if no other upload were under way.
    pub(super) fn fits_alone(&self, total: u64) -> bool {
        self.expect_room(&self.quotas.taken.lock(), total, |_| 0).is_ok()
    }

    /// Checks that `more` bytes fit beside the stored ones and those that `reserved` counts.
    fn expect_room(&self, taken: &[Taken], more: u64, reserved: fn(&Taken) -> u64) -> Result<(), Error> {
        for index in &self.of {
            let (quota, taken) = (&self.quotas.limits[*index], &taken[*index]);
            let counted = taken.used.saturating_add(reserved(taken));
            if more > 0 && counted.saturating_add(more) > quota.bytes {
                return Err(Error::QuotaExceeded {
                    repositories: quota.repositories.to_string(),
                    limit: quota.bytes,
                });
            }
        }
        Ok(())
    }

    /// Reserves no more than `total` bytes.
    pub(super) fn shrink(&mut self, total: u64) {
        let less = self.bytes.saturating_sub(total);
        if less > 0 {
            let mut taken = self.quotas.taken.lock();
            self.of
                .iter()
                .for_each(|index| taken[*index].reserved = taken[*index].reserved.saturating_sub(less));
            self.bytes -= less;
        }
    }

    /// Reserves `total` bytes even beyond the limit.
    pub(super) fn force(&mut self, total: u64) {
        let mut taken = self.quotas.taken.lock();
        self.of.iter().for_each(|index| taken[*index].reserved += total.saturating_sub(self.bytes));
        self.bytes = self.bytes.max(total);
    }

    /// Ends the reservation: its first `length` bytes count as stored, if `stored`.
    pub(super) fn settle(&mut self, length: u64, stored: bool) {
        let stored = if stored { length } else { 0 };
        let mut taken = self.quotas.taken.lock();
        for index in &self.of {
            let taken = &mut taken[*index];
            taken.reserved = taken.reserved.saturating_sub(self.bytes);
            taken.used += stored;
        }
        drop(taken);
        if stored > 0 {
            *self.quotas.of_repository.lock().entry(self.name.clone()).or_default() += stored;
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
    /// All quotas and their use.
    pub(crate) fn quotas(&self) -> Vec<QuotaUsage> {
        let taken = self.quotas.taken.lock().clone();
        let pairs = self.quotas.limits.iter().cloned().zip(taken);
        pairs.map(|(quota, Taken { used, reserved })| QuotaUsage { quota, used, reserved }).collect()
    }

    /// Subtracts a record that was just removed. Content in quarantine counts until the next start.
    pub(super) fn uncount(&self, name: &RepositoryName, digest: &Digest) {
        let length = self.content(digest).metadata().map_or(0, |metadata| metadata.len());
        self.quotas.count(name, |used| *used = used.saturating_sub(length));
    }

    /// The bytes of the content of a repository.
    pub(crate) fn bytes_of(&self, name: &RepositoryName) -> u64 {
        self.quotas.of_repository.lock().get(name).copied().unwrap_or_default()
    }

    /// Forgets the count of a repository that was removed.
    pub(super) fn forget_usage(&self, name: &RepositoryName) {
        self.quotas.of_repository.lock().remove(name);
    }

    /// Counts the stored content.
    pub(super) fn count_usage(&self) -> Result<(), Error> {
        for name in self.repositories() {
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
