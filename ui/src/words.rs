//! Names of the API in words for people.

use crate::data::JobJson;
use crate::state::State;

/// The maximum of characters that a page shows of a text of a BMC or an installer.
const SHOWN: usize = 500;

/// A step in words; an unknown one keeps its name.
pub(crate) fn step(name: &str) -> &str {
    match name {
        "validate" => "Check the recipe",
        "iso.build" => "Plan the task image",
        "redfish.discover" => "Find the BMC",
        "redfish.power-off" => "Power off",
        "redfish.eject" => "Empty the slots",
        "redfish.mount.maintenance" => "Mount the boot image",
        "redfish.mount.task" => "Mount the task image",
        "redfish.boot-override" => "Boot once from the medium",
        "redfish.power-on" => "Power on",
        "webhook.wait" | "redfish.poll" => "The machine installs",
        "cleanup.power-off" => "Clean up: power off",
        "cleanup.eject" => "Clean up: empty the slots",
        "cleanup.boot-override" => "Clean up: clear the boot setting",
        "cleanup.power-on" => "Clean up: power on",
        "cleanup.grant" => "Clean up: close the media",
        "firmware.validate" => "Check the files",
        "bios.validate" => "Check the order",
        "firmware.identify" | "power.identify" | "bmc.identify" | "bios.identify" => "Find the BMC",
        "firmware.power-on" => "Power on",
        "firmware.plan" => "Plan each component",
        "firmware.host-off" => "Power the host off",
        "firmware.upload" => "Send the file",
        "firmware.watch" => "The BMC installs it",
        "firmware.shut-down" => "Shut the host down",
        "firmware.host-on" => "Power the host on",
        "firmware.verify" => "Read the new version",
        "firmware.confirm" => "Read the inventory again",
        "firmware.settle" => "Look whether an update runs",
        "firmware.power-restore" | "power.restore" | "bios.power-restore" => "Power as it was",
        "firmware.release" | "power.release" | "bmc.release" | "inventory.release" | "bios.release" => {
            "Give the BMC back"
        }
        "bios.plan" => "Plan each setting",
        "bios.write" => "Write the settings",
        "bios.boot-order" => "Write the boot order",
        "bios.shut-down" => "Shut the host down",
        "bios.host-on" => "Power the host on",
        "bios.verify" => "Read the values",
        "bios.settle" => "Look what is not in force",
        "inventory.read" => "Read the inventory",
        "power.off" => "Power off",
        "power.on" => "Power on",
        "bmc.reset" => "Restart the BMC",
        "bmc.back" => "The BMC returns",
        "rescue.wait" => "The rescue session",
        "diagnostics.prepare" => "Prepare the checks",
        "diagnostics.check" => "Check the BMC",
        "diagnostics.clean" => "Clean up after the checks",
        other => other,
    }
}

/// Whether a step of an installation changes the state of the BMC of its machine.
pub(crate) fn changes_machine(step: &str) -> bool {
    step.starts_with("redfish.") && !matches!(step, "redfish.discover" | "redfish.poll")
}

/// Whether a step of an installation starts what the job has inserted.
pub(crate) fn starts_machine(step: &str) -> bool {
    step == "redfish.power-on"
}

/// A reason of a wait in words, to follow "waiting"; an unknown one keeps its name.
pub(crate) fn wait(reason: &str) -> &str {
    match reason {
        "report" | "media_report" => "for the maintenance OS to report",
        "power_permit" => "for a permit to power on",
        "power_on" => "for a BMC to show its host as on",
        "power_off" => "for a BMC to show its host as off",
        "shutdown" => "for an operating system to shut down",
        "bmc_busy" => "for a BMC to take changes again",
        "bmc_silent" => "for a BMC to respond again",
        "bmc_restarts" => "for a BMC to accept connections and logins again",
        "update_runs" => "for a BMC to end an update that an earlier job left running",
        "eject" => "for a virtual media slot to be empty",
        "mount" => "for a BMC to show its inserted media",
        "settle" => "for a BMC to settle after a change",
        "boot_override" => "for a BMC to show the boot setting",
        "media_import" => "for the maintenance ISO to be imported",
        "install_signs" => "for the host to show that its installation has ended",
        "rescue_session" => "for the rescue session to be finished",
        "image_read" => "for a BMC to read the firmware image",
        "upload_look" => "for a BMC to show whether it has the firmware image",
        "flashing" => "for a BMC to write the firmware image",
        "flash_ends" => "for a running update to end",
        "version" => "for a BMC to show the new version",
        "parts" => "for a BMC to list all parts of a host that was powered on",
        "parts_shown" => "for a BMC to show its whole firmware inventory",
        "settings_look" => "for a BMC to show whether it has the settings",
        "settings_values" => "for a BMC to show the new values",
        "restart_forbidden" => "for an operator to restart the host",
        "restart_window" => "for the maintenance window to begin",
        "graceful_shutdown" => "for an operating system to shut down",
        "shutdown_pending" => "for a BMC to pass the shutdown on to the host",
        "bmc_away" => "for a BMC to begin its restart",
        "bmc_back" => "for a BMC to return from its restart",
        "retry" => "for the next attempt of a step that failed",
        other => other,
    }
}

/// The blocker of queued jobs in words, to follow "queued"; an unknown one keeps its name.
pub(crate) fn blocker(name: &str) -> &str {
    match name {
        "drain" => "until the drain ends",
        "maintenance" => "until the maintenance of their servers ends",
        "batch-stopped" => "until their batch is continued",
        "batch-canary" => "until the first jobs of their batch have succeeded",
        "pressure" => "until a shortage of the controller ends",
        "lock" => "until another job of their server or BMC ends",
        "limit" => "for a place below the limit of their batch, site or kind",
        "place" => "for a worker",
        other => other,
    }
}

/// The workflow that installs a server.
pub const INSTALLATION: &str = "provision";

/// A kind of job in words.
pub(crate) fn workflow(name: &str) -> &str {
    match name {
        INSTALLATION => "Installation",
        "diagnostics" => "Diagnostics",
        "power.cycle" => "Power cycle",
        "bmc.reset" => "Restart of the BMC",
        "inventory.out-of-band" => "Inventory",
        "firmware.install" => "Firmware installation",
        "bios.apply" => "BIOS settings",
        other => other,
    }
}

/// The name of a role in words; an unknown one keeps its name.
pub(crate) fn role(name: &str) -> &str {
    match name {
        "admin" => "administrator",
        "report-only" => "reports only",
        "registry-only" => "registry only",
        other => other,
    }
}

/// The state of a job, and the word for it.
pub(crate) fn state(job: &JobJson) -> (State, &'static str) {
    if job.status == "complete" {
        let state = match job.outcome.as_deref() {
            Some("succeeded") => State::Done,
            Some("cancelled") => State::Cancelled,
            _ => State::Failed,
        };
        return (state, state.word());
    }
    let retries = job.wait.as_ref().is_some_and(|wait| wait.reason == "retry");
    match () {
        () if job.hold.is_some() => (State::Held, "Held"),
        () if retries => (State::Waiting, "Retrying"),
        () if job.status == "queued" => (State::Queued, "Queued"),
        () if job.wait.is_some() => (State::Waiting, "Waiting"),
        () if job.outcome.is_some() => (State::Working, "Cleaning up"),
        () => (State::Working, "Working"),
    }
}

/// The reason of the state of a job, as one sentence; empty without one.
pub(crate) fn why(job: &JobJson) -> String {
    let text = match (&job.failure, &job.hold, &job.wait) {
        (Some(failure), _, _) => failure.summary.clone(),
        (_, Some(hold), _) => hold.detail.clone(),
        (_, _, Some(wait)) if wait.detail.is_empty() => format!("waiting {}", self::wait(&wait.reason)),
        (_, _, Some(wait)) => format!("{}: {}", self::wait(&wait.reason), wait.detail),
        _ => String::new(),
    };
    cut(&text)
}

/// A sentence with a capital at its begin; the name of a unit, a file or a serial number stays as it is.
pub(crate) fn capital(text: &str) -> String {
    let word = text.split([' ', ':', ';', ',']).next().unwrap_or_default();
    if !word.chars().all(|c| c.is_ascii_lowercase()) {
        return text.to_owned();
    }
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// At most [`SHOWN`] characters of a text.
pub(crate) fn cut(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}

/// A number of bytes in the largest unit that gives at least one.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = UNITS.len().saturating_sub(1).min((count.max(1).ilog2() / 10) as usize);
    if unit == 0 {
        return format!("{count} {}", if count == 1 { "byte" } else { "bytes" });
    }
    let scaled = count as f64 / (1_u64 << (10 * unit)) as f64;
    let digits = if scaled >= 100.0 { 0 } else { 1 };
    format!("{scaled:.digits$} {}", UNITS[unit])
}

/// A number with its noun, in the plural where it is not one.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", thousands(number)),
    }
}

/// A number with separators between its thousands.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A text as a parameter of a URL.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_where_it_matters() {
        for (count, text) in
            [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (642_000_000, "612 MiB")]
        {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(u64::MAX), "16777216 TiB");
        assert_eq!(
            (thousands(0), thousands(999), thousands(10_482)),
            ("0".into(), "999".into(), "10,482".into())
        );
        assert_eq!(encoded("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }

    /// The names that some function of this module must know: the first words of lines of a golden file.
    fn reasons(golden: &str) -> impl Iterator<Item = &str> {
        golden.lines().filter(|line| !line.is_empty() && !line.starts_with(' '))
    }

    #[test]
    fn every_wait_of_the_workflows_has_words() {
        let goldens = [include_str!("../../golden/waits.txt"), include_str!("../../golden/upkeep-waits.txt")];
        let unknown: Vec<&str> =
            goldens.into_iter().flat_map(reasons).filter(|reason| wait(reason) == *reason).collect();
        assert!(unknown.is_empty(), "waits without words: {unknown:?}");
        assert_eq!(wait("a_new_one"), "a_new_one");
    }

    #[test]
    fn every_step_of_the_workflows_has_words() {
        let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut folders: Vec<_> =
            ["provision/src", "upkeep/src", "diagnostics/src"].map(|folder| workspace.join(folder)).into();
        let (mut known, mut unknown) = (0, Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                    continue;
                }
                let text = std::fs::read_to_string(&entry).unwrap();
                for name in text.split("StepName::new(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                    known += 1;
                    if step(name) == name {
                        unknown.push(name.to_owned());
                    }
                }
            }
        }
        assert!(known > 40, "{known}");
        assert!(unknown.is_empty(), "steps without words: {unknown:?}");
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(cut(&"ü".repeat(600)).chars().count(), SHOWN + 1);
        assert_eq!(cut("short"), "short");
    }
}
