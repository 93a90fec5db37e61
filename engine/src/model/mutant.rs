//! Deliberate defects, in test builds only: a simulation that would not notice them proves nothing.
//!
//! In every other build [`active`] is a constant `false`, and nothing of a defect is left in the program. One thread plays one
//! world, so a defect belongs to a thread.

/// A defect somebody could have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A worker that lost its lease still writes.
    IgnoresEpoch,
    /// A power-on that was interrupted is done again by a restart.
    RestartsAfterCrash,
    /// The lock of a server is kept when its job is over.
    KeepsLock,
    /// A report is acknowledged and not stored.
    LosesReport,
    /// An event that a receiver did not take is not sent again.
    ForgetsLate,
    /// A run that waits has no time at which it is looked at.
    NeverLooksAgain,
}

#[cfg(any(test, feature = "mutants"))]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread's program has that defect.
#[cfg(any(test, feature = "mutants"))]
pub fn active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether this program has that defect: never.
#[cfg(not(any(test, feature = "mutants")))]
pub const fn active(_mutant: Mutant) -> bool {
    false
}

/// Does something in a program with that defect.
#[cfg(any(test, feature = "mutants"))]
pub fn with<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(mutant));
    let done = work();
    ACTIVE.set(None);
    done
}
