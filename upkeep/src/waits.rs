//! The closed list of wait reasons of the upkeep workflows, with their texts for operators.
//!
//! ```text
//!  graceful_shutdown           ends when the host is off, or its grace period is over
//!  shutdown_pending            the cleanup waits out a shutdown that it cannot take back
//!  bmc_away                    ends when the BMC stops responding, or shows that it has restarted
//!  bmc_back                    ends when the BMC responds to a login and shows the same machine
//!  those of `bmc::waits`       end when a read of the BMC shows the change, or the BMC responds
//! ```

use bmc::waits;
use engine::WaitReason;

/// The operating system received a shutdown request.
pub const GRACEFUL_SHUTDOWN: WaitReason = WaitReason {
    name: "graceful_shutdown",
    means: "the operating system to shut down",
    ends_by: "a read of the power state that returns Off, or the end of the grace period (grace_seconds)",
    next_action: "check the console: an operating system without ACPI or with a blocked shutdown ignores the request; \
                  at the end of the grace period power is forced off only if the order says `force`",
};

/// A cancelled or failed cycle has a shutdown request under way.
pub const SHUTDOWN_PENDING: WaitReason = WaitReason {
    name: "shutdown_pending",
    means: "the end of a shutdown that was requested and cannot be taken back",
    ends_by: "a read that shows the host off, after which it is powered on again, or the end of two minutes",
    next_action: "nothing: the host is powered on again if it shuts down in this time",
};

/// A restart was requested; the BMC still responds as before.
pub const BMC_AWAY: WaitReason = WaitReason {
    name: "bmc_away",
    means: "the BMC to begin its restart",
    ends_by: "two reads without response, a rejected session, or a newer LastResetTime",
    next_action: "nothing for three minutes; a BMC that never restarts needs its power removed, or a restart in its web interface",
};

/// The BMC restarts.
pub const BMC_BACK: WaitReason = WaitReason {
    name: "bmc_back",
    means: "the BMC to return from its restart",
    ends_by: "a login and a read of the same machine",
    next_action: "wait up to 20 minutes; then check that the BMC has power and network, and whether it received another address",
};

/// All wait reasons.
pub const ALL: [&WaitReason; 11] = [
    &GRACEFUL_SHUTDOWN,
    &SHUTDOWN_PENDING,
    &BMC_AWAY,
    &BMC_BACK,
    &waits::POWER_OFF,
    &waits::SHUTDOWN,
    &waits::SETTLE,
    &waits::POWER_PERMIT,
    &waits::POWER_ON,
    &waits::BMC_BUSY,
    &waits::BMC_SILENT,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_wait_has_its_own_name_and_says_what_ends_it() {
        let names: BTreeSet<&str> = ALL.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), ALL.len());
        for reason in ALL {
            assert!(!reason.ends_by.is_empty() && !reason.next_action.is_empty(), "{}", reason.name);
        }
    }
}
