//! The second way to boot, as the records of a job show it.
//!
//! ```text
//!   power-on, override consumed, no read of the media, for boot_read_within_s (10 minutes)
//!        -> the step that waits for the installation ends with a SecondWay and plans, under the key "second-way":
//!           redfish.power-off -> redfish.boot-override -> redfish.power-on -> the same wait, until the deadline of the first one
//! ```
//!
//! Invariants: pure; a job has at most one second way.

use serde::Deserialize;

use bmc::power::PowerRequest;
use model::{ReadMark, Snapshot, StepName, StepPhase, StepRecord, Time};

use super::names;
use super::outputs::{BootLook, SecondWay};

/// The key of the step instances of the second way.
pub(super) const KEY: &str = "second-way";
/// The steps of the second way before the wait for the installation, in order.
pub(super) const STEPS: [&StepName; 3] = [names::POWER_OFF, names::BOOT_OVERRIDE, names::POWER_ON];

/// Returns the second way, if one was chosen.
pub(super) fn of(snapshot: &Snapshot) -> Option<SecondWay> {
    let waits = names::INSTALLING.into_iter().flat_map(|step| snapshot.records_of(step));
    waits.filter_map(|record| BootLook::deserialize(&record.output).ok()?.second_way).next()
}

/// Returns whether a step instance belongs to the second way.
pub(super) fn is_of(record: &StepRecord) -> bool {
    record.key == KEY
}

/// Returns whether the second way was given up before it began: the machine had booted after all.
pub(super) fn is_given_up(snapshot: &Snapshot) -> bool {
    let mut off = snapshot.records_of(names::POWER_OFF).filter(|record| is_of(record));
    off.any(|record| record.phase == StepPhase::Skipped)
}

/// Returns why the second way is tried, and both ways.
pub(super) fn describe(second: &SecondWay) -> String {
    let SecondWay { first, second, powered_on_at, .. } = second;
    format!(
        "second way to boot: {second}, because after the power-on at {powered_on_at} the first way ({first}) was used up and \
         the boot image was not read"
    )
}

/// The last power-on of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoweredOn {
    /// The time of the request, or of its intent when the host was found on.
    pub(super) at: Time,
    /// The reads of the media before it; `None` when the step ended without a look at them.
    pub(super) media_before: Option<ReadMark>,
}

/// Returns the last power-on of a job.
pub(super) fn powered_on(snapshot: &Snapshot) -> Option<PoweredOn> {
    let records = snapshot.records_of(names::POWER_ON).filter(|record| record.phase != StepPhase::Skipped);
    // By its place in the plan: the clock may have been set between two of them.
    let record = records.max_by_key(|record| record.at)?;
    let request = PowerRequest::deserialize(&record.output).unwrap_or_default();
    let at = request.sent_at.unwrap_or(record.started_at);
    Some(PoweredOn { at, media_before: request.media_before })
}

/// Returns the time of the last power-on.
pub(super) fn powered_on_at(snapshot: &Snapshot) -> Option<Time> {
    powered_on(snapshot).map(|powered_on| powered_on.at)
}

impl SecondWay {
    /// The power-on after which the first way was used up.
    pub(super) fn powered_on(&self) -> PoweredOn {
        PoweredOn { at: self.powered_on_at, media_before: self.media_before }
    }
}
