//! The closed list of wait reasons of a provisioning job, with their texts for operators.
//!
//! ```text
//!  media_import            ends when the image is in the library
//!  report                  ends by a signal: the installation report
//!  media_report            ends by the same signal, or by the power state; for recipes with `delivery: media`
//!  install_signs           ends by a completion sign; for targets that cannot report
//!  rescue_session          ends by a signal of an operator or a report; for `rescue.target`
//!  those of `bmc::waits`   end when a read of the BMC shows the change, or the BMC responds
//! ```
//!
//! `golden/waits.txt` shows each text as `shoal job explain` prints it.

use bmc::waits;
use engine::WaitReason;

/// The library imports the maintenance ISO.
pub(super) const MEDIA_IMPORT: WaitReason = WaitReason {
    name: "media_import",
    means: "the maintenance ISO to be imported",
    ends_by: "the end of the import: the image is stored under its digest",
    next_action: "check that the controller can read the image's location; an interrupted import continues where it stopped",
};

/// The machine is being installed and will report.
pub(super) const REPORT: WaitReason = WaitReason {
    name: "report",
    means: "the maintenance OS to report how the installation ended",
    ends_by: "a report to /api/v1/status-webhook of this server",
    next_action: "check the events for media reads: without reads the machine did not boot from the media; with reads, check its console",
};

/// The machine is being installed without a network and reports by reads of its medium.
pub(super) const MEDIA_REPORT: WaitReason = WaitReason {
    name: "media_report",
    means: "the maintenance OS to report, by reads of its medium, how the installation ended",
    ends_by: "a report that arrives as reads at the media address, or the power state: the machine powers itself off after a \
              success and stays on after a failure",
    next_action: "check the events for media reads: without reads the machine did not boot from the media; with reads, check its console",
};

/// The machine is being installed and cannot report.
pub(super) const SIGNS: WaitReason = WaitReason {
    name: "install_signs",
    means: "signs that the installer, which cannot report, has finished",
    ends_by: "after INSTALL_MIN_TIME any of: a power change, a newer LastResetTime, a BootProgress that starts again, media \
              read and then not for ten minutes; at the deadline success is assumed if the boot image was read",
    next_action: "check the machine's console; if the installation failed, cancel the job before success is assumed",
};

/// An operator works on the machine in the rescue system.
pub(super) const RESCUE_SESSION: WaitReason = WaitReason {
    name: "rescue_session",
    means: "the end of the rescue session",
    ends_by: "`shoal job finish JOB`, or the deadline of the session; then the media are ejected and the host is powered as the recipe says",
    next_action: "log in as the summary says, compare the fingerprint of the host key, repair, then end the session with `shoal job finish JOB`",
};

/// All wait reasons.
pub(super) const ALL: [&WaitReason; 17] = [
    &MEDIA_IMPORT,
    &waits::POWER_OFF,
    &waits::SHUTDOWN,
    &waits::EJECT,
    &waits::MOUNT,
    &waits::SETTLE,
    &waits::BOOT_OVERRIDE,
    &waits::POWER_PERMIT,
    &waits::POWER_ON,
    &waits::BMC_BUSY,
    &waits::BMC_SILENT,
    &waits::BMC_RESTARTS,
    &waits::UPDATE_RUNS,
    &REPORT,
    &MEDIA_REPORT,
    &SIGNS,
    &RESCUE_SESSION,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use super::*;

    #[test]
    fn the_texts_of_all_wait_reasons_match_the_golden_file() {
        assert!(waits::ALL.iter().all(|shared| ALL.iter().any(|reason| reason.name == shared.name)));
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
