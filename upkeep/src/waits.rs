//! The closed list of wait reasons of the upkeep workflows, with their texts for operators.
//!
//! ```text
//!  graceful_shutdown           ends when the host is off, or its grace period is over
//!  shutdown_pending            the cleanup waits out a shutdown that it cannot take back
//!  bmc_away                    ends when the BMC stops responding, or shows that it has restarted
//!  bmc_back                    ends when the BMC responds to a login and shows the same machine
//!  flashing, image_read, upload_look, version   end when the BMC shows the end of an update, or the installed version
//!  settings_look, settings_values      end when the BMC shows the settings as stored, or as in force
//!  restart_forbidden, restart_window   end when the host may be restarted, or was
//!  flash_ends                  the cleanup lets a running update finish
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
    ends_by: "a read that shows the host off, after which it is powered on again, or the end of its grace period: two minutes for a \
              power cycle, ten for a restart that firmware or settings needed",
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

/// A BMC writes a firmware image.
pub const FLASHING: WaitReason = WaitReason {
    name: "flashing",
    means: "the BMC to check and write the firmware image",
    ends_by: "a read of the task that shows its end, or the installed version, or the end of the profile's update_timeout_s",
    next_action: "do not restart the BMC and do not remove power: an update that is cut may leave a server that does not start",
};

/// The BMC has not shown whether it has the firmware image.
pub const UPLOAD_LOOK: WaitReason = WaitReason {
    name: "upload_look",
    means: "the BMC to show whether it has the firmware image",
    ends_by: "a task of the update, the installed version, or the end of the profile's update_timeout_s without either",
    next_action: "nothing: an image that may have arrived is not sent again; the web interface of the BMC may show the update",
};

/// The BMC reads an image from a URL.
pub const IMAGE_READ: WaitReason = WaitReason {
    name: "image_read",
    means: "the BMC to read the firmware image from this controller",
    ends_by: "the last byte of the image, the end of the BMC's task, or ten minutes without a read",
    next_action: "if nothing is read, check that the BMC reaches the address of the media server: route, firewall, MEDIA_BASE_URL",
};

/// The new version is read until it is shown three times.
pub const VERSION: WaitReason = WaitReason {
    name: "version",
    means: "the BMC to show the new version",
    ends_by: "three reads of the inventory with the new version, or ten minutes after the end of the update, half an hour after a restart of the host",
    next_action: "nothing; some BMCs show the new version minutes after the restart of the host",
};

/// A host that was powered on for the installation tests its parts.
pub const PARTS: WaitReason = WaitReason {
    name: "parts",
    means: "the BMC to list all parts of the host, which was powered on for the installation",
    ends_by: "a read of the inventory with every component of the set, or ten minutes after the power-on",
    next_action: "nothing; a part that is not listed then counts as absent",
};

/// The BMC lists parts that it cannot show.
pub const PARTS_SHOWN: WaitReason = WaitReason {
    name: "parts_shown",
    means: "the BMC to show every entry that its firmware inventory lists",
    ends_by: "a read of the inventory without an error, or two minutes after the first read",
    next_action: "nothing; a device that is not shown then is left as it is, and the plan says so",
};

/// The order forbids the restart of the host.
pub const RESTART_FORBIDDEN: WaitReason = WaitReason {
    name: "restart_forbidden",
    means: "an operator to restart the host, because the order forbids it to the run",
    ends_by: "a read that shows the new version, or the new values, as in use",
    next_action: "restart the host when it suits, in its operating system or in the web interface of the BMC; what is stored is put into use by the restart",
};

/// The maintenance window has not begun.
pub const RESTART_WINDOW: WaitReason = WaitReason {
    name: "restart_window",
    means: "the beginning of the maintenance window (restart_from)",
    ends_by: "the time restart_from, at which the host is restarted, or firmware that needs no restart is sent; or a restart by an operator",
    next_action: "nothing; what is stored is put into use by the restart, and what is not sent yet is sent in the window",
};

/// The BMC has not shown whether it has the new settings.
pub const SETTINGS_LOOK: WaitReason = WaitReason {
    name: "settings_look",
    means: "the BMC to show whether it has the new settings",
    ends_by: "a read that shows them as pending or in force, or a minute in which no read does",
    next_action: "nothing: settings that may have arrived are not sent again before the BMC has shown that they did not",
};

/// Settings are read until all of them are in force three times.
pub const SETTINGS_VALUES: WaitReason = WaitReason {
    name: "settings_values",
    means: "the BMC to show the new settings as in force",
    ends_by: "three reads with all wanted values, or thirty minutes after the restart of the host",
    next_action: "nothing; some hosts restart once more by themselves before new settings are in force",
};

/// A run that ends lets a running update finish.
pub const FLASH_ENDS: WaitReason = WaitReason {
    name: "flash_ends",
    means: "the end of the update that the BMC carries out, because it must not be interrupted",
    ends_by: "a read that shows the end of the update; the run ends right after it",
    next_action: "nothing: a cancel was accepted and no further component is changed; do not restart the BMC",
};

/// All wait reasons.
pub const ALL: [&WaitReason; 24] = [
    &FLASHING,
    &IMAGE_READ,
    &UPLOAD_LOOK,
    &VERSION,
    &PARTS,
    &PARTS_SHOWN,
    &RESTART_FORBIDDEN,
    &RESTART_WINDOW,
    &SETTINGS_LOOK,
    &SETTINGS_VALUES,
    &FLASH_ENDS,
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
    &waits::BMC_RESTARTS,
    &waits::UPDATE_RUNS,
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
