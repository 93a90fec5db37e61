//! The closed list of wait reasons of a provisioning job, with their texts for operators.
//!
//! ```text
//!  media_import                                              ends when the image is in the library
//!  power_off, shutdown, eject, mount, settle,
//!  boot_override, power_on                                   ends when a read of the BMC shows the change
//!  power_permit                                              ends when fewer hosts power on
//!  bmc_busy                                                  ends when the BMC accepts a change again
//!  bmc_silent                                                ends when the BMC responds to a probe request
//!  report                                                    ends by a signal: the installation report
//!  install_signs                                             ends by a completion sign; for targets that cannot report
//! ```
//!
//! `golden/waits.txt` shows each text as `shoal job explain` prints it.

use engine::WaitReason;

/// The library imports the maintenance ISO.
pub(super) const MEDIA_IMPORT: WaitReason = WaitReason {
    name: "media_import",
    means: "the maintenance ISO to be imported",
    ends_by: "the end of the import: the image is stored under its digest",
    next_action: "check that the controller can read the image's location; an interrupted import continues where it stopped",
};

/// The BMC does not show a forced power-off yet.
pub(super) const POWER_OFF: WaitReason = WaitReason {
    name: "power_off",
    means: "the BMC to report the host as off",
    ends_by: "a read of the power state that returns Off",
    next_action: "check the power state in the web interface of the BMC; a BMC that always shows On needs a restart of the BMC",
};

/// The operating system received a graceful shutdown request.
pub(super) const SHUTDOWN: WaitReason = WaitReason {
    name: "shutdown",
    means: "the operating system to shut down",
    ends_by: "the host being off, or the end of the grace period, after which power is forced off",
    next_action: "nothing: power is forced off when the grace period ends",
};

/// A slot still shows its media.
pub(super) const EJECT: WaitReason = WaitReason {
    name: "eject",
    means: "a virtual media slot to be empty",
    ends_by: "a read of the slot that shows no media",
    next_action: "close other virtual media sessions on this BMC (its web console, another tool)",
};

/// A slot does not show the inserted media yet.
pub(super) const MOUNT: WaitReason = WaitReason {
    name: "mount",
    means: "the BMC to show the inserted media",
    ends_by: "a read of the slot that shows the image as inserted",
    next_action: "check that the BMC can reach the controller's media address: see MEDIA_BASE_URL and the network between them",
};

/// The BMC needs settle time after an insert or a power-off.
pub(super) const SETTLE: WaitReason = WaitReason {
    name: "settle",
    means: "the BMC to be ready for a power-on after the insert of media or a power-off",
    ends_by: "the end of the settle time of the BMC's profile",
    next_action: "nothing; the quirks settle_after_mount_s and settle_after_off_s of the server change the time",
};

/// The BMC does not show the one-time boot yet.
pub(super) const BOOT_OVERRIDE: WaitReason = WaitReason {
    name: "boot_override",
    means: "the BMC to show the one-time boot setting",
    ends_by: "a read of the system that shows the requested setting",
    next_action: "check the web interface of the BMC for a pending BIOS job that locks the boot settings",
};

/// MAX_POWER_ONS other hosts are powering on.
pub(super) const POWER_PERMIT: WaitReason = WaitReason {
    name: "power_permit",
    means: "a permit to power on",
    ends_by: "the release of a permit: another host boots, or has been on for POWER_ON_SETTLE",
    next_action: "nothing: MAX_POWER_ONS limits how many hosts power on at once, to protect power supply and network",
};

/// The BMC does not show a power-on yet.
pub(super) const POWER_ON: WaitReason = WaitReason {
    name: "power_on",
    means: "the BMC to report the host as on",
    ends_by: "a read of the power state that returns On, or the report of the maintenance OS",
    next_action: "check the machine: a power supply, a chassis interlock or a power cap can keep it off",
};

/// The BMC or the host firmware refuses changes for now.
pub(super) const BMC_BUSY: WaitReason = WaitReason {
    name: "bmc_busy",
    means: "the BMC, or the host's firmware, to accept changes again",
    ends_by: "a change that is not refused as busy",
    next_action: "check the machine's console: a host that never leaves its power-on self-test locks its settings",
};

/// The circuit breaker of the BMC is open after repeated failures.
pub(super) const BMC_SILENT: WaitReason = WaitReason {
    name: "bmc_silent",
    means: "the BMC to respond again",
    ends_by: "the response to a probe request that is sent at intervals (REDFISH_BREAKER_OPEN_TIME)",
    next_action: "check that the BMC has power and network, and that its address is still the registered one",
};

/// The machine is being installed and will report.
pub(super) const REPORT: WaitReason = WaitReason {
    name: "report",
    means: "the maintenance OS to report how the installation ended",
    ends_by: "a report to /api/v1/status-webhook of this server",
    next_action: "check the events for media reads: without reads the machine did not boot from the media; with reads, check its console",
};

/// The machine is being installed and cannot report.
pub(super) const SIGNS: WaitReason = WaitReason {
    name: "install_signs",
    means: "signs that the installer, which cannot report, has finished",
    ends_by: "after INSTALL_MIN_TIME any of: a power change, a newer LastResetTime, a BootProgress that starts again, media \
              read and then not for ten minutes; at the deadline success is assumed",
    next_action: "check the machine's console; if the installation failed, cancel the job before success is assumed",
};

/// All wait reasons.
pub(super) const ALL: [&WaitReason; 13] = [
    &MEDIA_IMPORT,
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
    &REPORT,
    &SIGNS,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use super::*;

    #[test]
    fn the_texts_of_all_wait_reasons_match_the_golden_file() {
        let names: BTreeSet<&str> = ALL.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), ALL.len(), "two reasons of one name");
        let mut text = String::new();
        for WaitReason { name, means, ends_by, next_action } in ALL {
            writeln!(text, "{name}\n  waiting for {means}\n  ends by: {ends_by}\n  to do: {next_action}\n")
                .unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/waits.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }
}
