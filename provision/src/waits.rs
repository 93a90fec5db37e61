//! What a provisioning job waits for: the closed list, with the words an operator is given.
//!
//! ```text
//!  media_import ... mount, settle .. power_off, shutdown, eject, boot_override, power_on      the BMC catches up: looked at again
//!                    bmc_busy                                                     the BMC takes changes: tried again
//!                    bmc_silent                                                   the BMC answers: one request at a time
//!                                                     report                         the machine installs: a signal ends it
//!                                                     install_signs                  it cannot tell: looked at again
//! ```
//!
//! `golden/waits.txt` shows each as `shoal job explain` says it.

use engine::Reason;

/// The maintenance ISO is on its way into the library.
pub(super) const MEDIA_IMPORT: Reason = Reason {
    name: "media_import",
    means: "the maintenance ISO to be imported",
    ends_by: "the whole image being stored under its digest",
    next_action: "check that the controller can read the image's location; the import goes on where it stopped",
};

/// A forced power-off does not show yet.
pub(super) const POWER_OFF: Reason = Reason {
    name: "power_off",
    means: "the BMC to report the host as off",
    ends_by: "a read of the power state that says Off",
    next_action: "look at the power state in the BMC's own interface; a BMC that always says On needs a restart of the BMC",
};

/// The operating system was asked to shut down.
pub(super) const SHUTDOWN: Reason = Reason {
    name: "shutdown",
    means: "the operating system to shut down",
    ends_by: "the host going off, or the grace period after which power is forced off",
    next_action: "nothing: the host is forced off when the grace period ends",
};

/// A slot still shows its medium.
pub(super) const EJECT: Reason = Reason {
    name: "eject",
    means: "a virtual media slot to be empty",
    ends_by: "a read of the slot that shows no medium",
    next_action: "close virtual media sessions others have open on this BMC (its web console, another tool)",
};

/// An inserted medium does not show yet.
pub(super) const MOUNT: Reason = Reason {
    name: "mount",
    means: "the BMC to show the inserted medium",
    ends_by: "a read of the slot that shows the image as inserted",
    next_action: "check that the BMC can reach the controller's media address: see MEDIA_BASE_URL and the network in between",
};

/// Media and power need their time.
pub(super) const SETTLE: Reason = Reason {
    name: "settle",
    means: "the BMC to get the inserted media, or the power it switched off, ready for a start",
    ends_by: "the time the BMC's profile gives it",
    next_action: "nothing; flags settle_after_mount_s and settle_after_off_s of the server change how long it takes",
};

/// The one-time boot does not show yet.
pub(super) const BOOT_OVERRIDE: Reason = Reason {
    name: "boot_override",
    means: "the BMC to show the one-time boot setting",
    ends_by: "a read of the system that shows the setting as asked for",
    next_action: "look in the BMC's own interface for a pending BIOS job that keeps boot settings locked",
};

/// Other hosts are powering on.
pub(super) const POWER_TURN: Reason = Reason {
    name: "power_permit",
    means: "its turn to power on",
    ends_by: "a host before it that boots, or has been on for POWER_ON_SETTLE",
    next_action: "nothing: hosts take turns so that power and network hold; MAX_POWER_ONS says how many at once",
};

/// A power-on does not show yet.
pub(super) const POWER_ON: Reason = Reason {
    name: "power_on",
    means: "the BMC to report the host as on",
    ends_by: "a read of the power state that says On, or the report of the maintenance OS",
    next_action: "look at the machine: a power supply, a chassis interlock or a power cap can keep it off",
};

/// The firmware takes no change right now.
pub(super) const BMC_BUSY: Reason = Reason {
    name: "bmc_busy",
    means: "the BMC, or the host's firmware, to take changes again",
    ends_by: "a change that is not refused as coming too early",
    next_action: "look at the machine's console: a host that never leaves its power-on self-test keeps settings locked",
};

/// The BMC has not answered so often that it is left alone.
pub(super) const BMC_SILENT: Reason = Reason {
    name: "bmc_silent",
    means: "the BMC to answer again",
    ends_by: "the answer to one request that is tried from time to time (REDFISH_BREAKER_OPEN_TIME)",
    next_action: "look whether the BMC has power and network, and whether its address is still the registered one",
};

/// The machine installs itself.
pub(super) const REPORT: Reason = Reason {
    name: "report",
    means: "the maintenance OS to report how the installation ended",
    ends_by: "a report to /api/v1/status-webhook of this server",
    next_action: "see in the events whether media were read: never read, it did not boot from them; read, look at its console",
};

/// The machine installs itself and cannot tell.
pub(super) const SIGNS: Reason = Reason {
    name: "install_signs",
    means: "signs that the installer, which cannot report, has finished",
    ends_by: "after INSTALL_MIN_TIME any of: a power change, a newer LastResetTime, a BootProgress that begins anew, media \
              read and then silent for ten minutes; at the deadline success is assumed",
    next_action: "look at the machine's console; if the installation has failed there, cancel the job before success is assumed",
};

/// All of them.
pub(super) const ALL: [&Reason; 13] = [
    &MEDIA_IMPORT,
    &POWER_OFF,
    &SHUTDOWN,
    &EJECT,
    &MOUNT,
    &SETTLE,
    &BOOT_OVERRIDE,
    &POWER_TURN,
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
    fn every_wait_has_words_and_they_are_the_golden_ones() {
        let names: BTreeSet<&str> = ALL.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), ALL.len(), "two reasons of one name");
        let mut text = String::new();
        for Reason { name, means, ends_by, next_action } in ALL {
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
