//! The closed list of wait reasons that concern a BMC, with their texts for operators.
//!
//! ```text
//!  power_off, shutdown, eject, mount, settle,
//!  boot_override, power_on                      end when a read of the BMC shows the change
//!  power_permit                                 ends when fewer hosts power on
//!  bmc_busy                                     ends when the BMC accepts a change again
//!  bmc_silent                                   ends when the BMC responds to a probe request
//!  update_runs                                  ends when the BMC has ended an update that an earlier run left to it
//! ```
//!
//! A workflow lists these reasons beside its own.

use engine::WaitReason;

/// The BMC does not show a forced power-off yet.
pub const POWER_OFF: WaitReason = WaitReason {
    name: "power_off",
    means: "the BMC to report the host as off",
    ends_by: "a read of the power state that returns Off",
    next_action: "check the power state in the web interface of the BMC; a BMC that always shows On needs a restart of the BMC",
};

/// The operating system received a graceful shutdown request.
pub const SHUTDOWN: WaitReason = WaitReason {
    name: "shutdown",
    means: "the operating system to shut down",
    ends_by: "the host being off, or the end of the grace period, after which power is forced off",
    next_action: "nothing: power is forced off when the grace period ends",
};

/// A slot still shows its media.
pub const EJECT: WaitReason = WaitReason {
    name: "eject",
    means: "a virtual media slot to be empty",
    ends_by: "a read of the slot that shows no media",
    next_action: "close other virtual media sessions on this BMC (its web console, another tool)",
};

/// A slot does not show the inserted media yet.
pub const MOUNT: WaitReason = WaitReason {
    name: "mount",
    means: "the BMC to show the inserted media",
    ends_by: "a read of the slot that shows the image as inserted",
    next_action: "check that the BMC can reach the controller's media address: see MEDIA_BASE_URL and the network between them",
};

/// The BMC needs settle time after an insert or a power-off.
pub const SETTLE: WaitReason = WaitReason {
    name: "settle",
    means: "the BMC to be ready for a power-on after the insert of media or a power-off",
    ends_by: "the end of the settle time of the BMC's profile",
    next_action: "nothing; the quirks settle_after_mount_s and settle_after_off_s of the server change the time",
};

/// The BMC does not show the one-time boot yet.
pub const BOOT_OVERRIDE: WaitReason = WaitReason {
    name: "boot_override",
    means: "the BMC to show the one-time boot setting",
    ends_by: "a read of the system that shows the requested setting",
    next_action: "check the web interface of the BMC for a pending BIOS job that locks the boot settings",
};

/// MAX_POWER_ONS other hosts are powering on.
pub const POWER_PERMIT: WaitReason = WaitReason {
    name: "power_permit",
    means: "a permit to power on",
    ends_by: "the release of a permit: another host boots, or has been on for POWER_ON_SETTLE",
    next_action: "nothing: MAX_POWER_ONS limits how many hosts power on at once, to protect power supply and network",
};

/// The BMC does not show a power-on yet.
pub const POWER_ON: WaitReason = WaitReason {
    name: "power_on",
    means: "the BMC to report the host as on",
    ends_by: "a read of the power state that returns On, or a signal from the system that started",
    next_action: "check the machine: a power supply, a chassis interlock or a power cap can keep it off",
};

/// The BMC or the host firmware refuses changes for now.
pub const BMC_BUSY: WaitReason = WaitReason {
    name: "bmc_busy",
    means: "the BMC, or the host's firmware, to accept changes again",
    ends_by: "a change that is not refused as busy",
    next_action: "check the machine's console: a host that never leaves its power-on self-test locks its settings; if the host is not in it and the BMC shows no update, restart the BMC",
};

/// The circuit breaker of the BMC is open after repeated failures.
pub const BMC_SILENT: WaitReason = WaitReason {
    name: "bmc_silent",
    means: "the BMC to respond again",
    ends_by: "the response to a probe request that is sent at intervals (REDFISH_BREAKER_OPEN_TIME)",
    next_action: "check that the BMC has power and network, and that its address is still the registered one",
};

/// The BMC rejects what it accepted before in this run: its login, or TLS.
pub const BMC_RESTARTS: WaitReason = WaitReason {
    name: "bmc_restarts",
    means: "the BMC to accept connections and logins again, as it did before in this job",
    ends_by: "an attempt that the BMC accepts; there is one a minute, and fewer logins so that the account is not locked",
    next_action: "a BMC that restarts does this for some minutes. If its password was changed, correct it with `shoal server update` and \
                  `--bmc-password-stdin`; the next attempt uses it",
};

/// An earlier run left an update running on the BMC.
pub const UPDATE_RUNS: WaitReason = WaitReason {
    name: "update_runs",
    means: "the BMC to end an update that an earlier job left running",
    ends_by: "three reads that show the end of the update, or no trace of it; or the end of the profile's update_timeout_s, after which \
              the job fails",
    next_action: "do not remove power: an update that is cut may leave a server that does not start. If it hangs in the web interface of \
                  the BMC too, cancel this job and restart the BMC in spite of it: `shoal server reset-bmc` with `--forced`",
};

/// All wait reasons of this crate.
pub const ALL: [&WaitReason; 12] = [
    &POWER_OFF,
    &SHUTDOWN,
    &EJECT,
    &MOUNT,
    &SETTLE,
    &BOOT_OVERRIDE,
    &POWER_PERMIT,
    &POWER_ON,
    &BMC_BUSY,
    &BMC_SILENT,
    &BMC_RESTARTS,
    &UPDATE_RUNS,
];
