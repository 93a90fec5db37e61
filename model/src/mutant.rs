//! Deliberate defects, in test builds only: a simulation that does not find them proves nothing.
//!
//! In every other build [`active`] is the constant `false`, and the program contains no code of a defect. One thread runs one
//! world, so a defect belongs to a thread.

/// A plausible programming defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A worker that lost its lease still writes.
    IgnoresEpoch,
    /// An interrupted power-on is repeated as a restart.
    RestartsAfterCrash,
    /// The lock of a server is not released when its job ends.
    KeepsLock,
    /// A report is acknowledged and not stored.
    LosesReport,
    /// An event that a receiver did not accept is not sent again.
    ForgetsRetry,
    /// A waiting run has no time at which it is due.
    NeverDue,
    /// A power cycle ends with the host off: its power-on is taken as done before it was sent.
    ForgetsPowerOn,
    /// An installation of firmware asks for no lock of its server.
    SharesServer,
    /// An image whose arrival is not known is sent again, without a look at the BMC.
    SendsAgain,
    /// An update that is being written counts as ended.
    IgnoresFlash,
    /// The word of the BMC that an update succeeded, or that it stored settings, counts as proof.
    TrustsTask,
    /// The power of the host after an installation of firmware or a change of settings is not restored.
    KeepsPower,
    /// The firmware files of a run are held after its end.
    KeepsFiles,
    /// The media grants of a job stay open after its end.
    KeepsGrants,
    /// A rescue session ends, and what its recipe says about the power of the host is ignored.
    IgnoresAfter,
}

#[cfg(any(test, feature = "mutants"))]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether the defect is active in this thread.
#[cfg(any(test, feature = "mutants"))]
pub fn active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether the defect is active: never, in this build.
#[cfg(not(any(test, feature = "mutants")))]
pub const fn active(_mutant: Mutant) -> bool {
    false
}

/// Runs a function while the defect is active in this thread.
#[cfg(any(test, feature = "mutants"))]
pub fn with<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(mutant));
    let done = work();
    ACTIVE.set(None);
    done
}
