//! The check of entries in their order. It needs constant memory.

use thiserror::Error;

use super::hash::{AuditHead, KnownHead};
use super::{AuditEntry, PRUNED, anchor_target};

/// A fault of a log: it is not the one that was recorded. Each fault names the first entry that shows it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ChainFault {
    /// The content of an entry does not have its hash.
    #[error("entry {seq} was changed: its content does not have its hash")]
    Changed {
        /// The number of the changed entry.
        seq: u64,
    },
    /// Entries are missing.
    #[error(
        "entry {first} is missing: the next entry is {next}; it was removed, or the entries were reordered"
    )]
    Missing {
        /// The first missing entry.
        first: u64,
        /// The number of the entry that is in the place of the missing one.
        next: u64,
    },
    /// An entry is not in its place.
    #[error("entry {seq} follows entry {after}: it was inserted or the entries were reordered")]
    OutOfOrder {
        /// The number of the entry.
        seq: u64,
        /// The entry before.
        after: u64,
    },
    /// An entry does not carry the hash of the entry before.
    #[error(
        "entry {seq} does not carry the hash of entry {}: entry {} was replaced, or entry {seq} was inserted",
        seq - 1,
        seq - 1
    )]
    Unlinked {
        /// The number of the entry.
        seq: u64,
    },
    /// No entry records the pruning that the anchor claims.
    #[error(
        "no entry records that the log was pruned up to entry {seq}: entries 1 to {seq} were removed in another way"
    )]
    UnrecordedAnchor {
        /// The last entry before the anchor.
        seq: u64,
    },
    /// The log ends before an entry that was there.
    #[error("the log ends with entry {last}, and entry {seq} was there: the end was cut off")]
    Truncated {
        /// The entry that was there.
        seq: u64,
        /// The number of the last entry.
        last: u64,
    },
    /// An entry has another hash than the one that was kept elsewhere.
    #[error(
        "entry {seq} has another hash than the one that was kept: the log was rewritten, or it is another log"
    )]
    Rewritten {
        /// The number of the entry.
        seq: u64,
    },
    /// No entry has the hash that was kept.
    #[error(
        "no entry has the hash that was kept: the end was cut off, the log was rewritten, or the entry was pruned"
    )]
    NoSuchHash,
    /// The entry that was kept was pruned.
    #[error("entry {seq} was pruned, so the head that was kept cannot be compared; use a newer one")]
    Pruned {
        /// The number of the pruned entry.
        seq: u64,
    },
}

/// The summary of a complete log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainSummary {
    /// The number of entries.
    pub entries: u64,
    /// The predecessor of the first entry: the genesis, or the last pruned entry.
    pub anchor: AuditHead,
    /// The newest entry; the anchor when there is none.
    pub head: AuditHead,
}

/// Checks entries in their order.
#[derive(Clone, Debug)]
pub struct ChainCheck {
    anchor: AuditHead,
    head: AuditHead,
    entries: u64,
    /// Whether an entry records the anchor.
    recorded: bool,
    /// The head that was kept elsewhere; `None` when it is not given or its entry was found.
    known: Option<KnownHead>,
}

impl ChainCheck {
    /// Begins a check of the entries that follow `anchor`. The entry of `known` must be among them, or be the anchor.
    pub fn new(anchor: AuditHead, known: Option<KnownHead>) -> Self {
        let known =
            known.filter(|known| known.hash != anchor.hash || known.seq.is_some_and(|seq| seq != anchor.seq));
        Self { anchor, head: anchor, entries: 0, recorded: anchor == AuditHead::genesis(), known }
    }

    /// Checks the next entry.
    ///
    /// # Errors
    /// [`ChainFault`], when the entry is not the one that followed.
    pub fn next(&mut self, entry: &AuditEntry) -> Result<(), ChainFault> {
        let (seq, expected) = (entry.seq, self.head.seq.saturating_add(1));
        if seq > expected {
            return Err(ChainFault::Missing { first: expected, next: seq });
        }
        if seq < expected {
            return Err(ChainFault::OutOfOrder { seq, after: self.head.seq });
        }
        if entry.computed_hash() != entry.hash {
            return Err(ChainFault::Changed { seq });
        }
        if entry.previous != self.head.hash {
            return Err(ChainFault::Unlinked { seq });
        }
        if let Some(known) = self.known {
            let same = known.hash == entry.hash;
            match known.seq {
                Some(kept) if kept == seq && !same => return Err(ChainFault::Rewritten { seq }),
                Some(kept) if kept != seq => {}
                _ if same => self.known = None,
                _ => {}
            }
        }
        self.recorded |= entry.action == PRUNED && entry.target == anchor_target(self.anchor);
        self.head = entry.head();
        self.entries += 1;
        Ok(())
    }

    /// Ends the check.
    ///
    /// # Errors
    /// [`ChainFault`], when the anchor is not recorded, or the entry of the known head is not there.
    pub fn finish(self) -> Result<ChainSummary, ChainFault> {
        let Self { anchor, head, entries, recorded, known } = self;
        if !recorded {
            return Err(ChainFault::UnrecordedAnchor { seq: anchor.seq });
        }
        match known {
            None => Ok(ChainSummary { entries, anchor, head }),
            Some(KnownHead { seq: None, .. }) => Err(ChainFault::NoSuchHash),
            Some(KnownHead { seq: Some(seq), .. }) if seq > head.seq => {
                Err(ChainFault::Truncated { seq, last: head.seq })
            }
            Some(KnownHead { seq: Some(seq), .. }) if seq == anchor.seq => Err(ChainFault::Rewritten { seq }),
            Some(KnownHead { seq: Some(seq), .. }) => Err(ChainFault::Pruned { seq }),
        }
    }
}
