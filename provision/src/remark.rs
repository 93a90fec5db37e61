//! The remark about a job: facts that its records and the reads of its media show beyond its wait or failure.
//!
//! ```text
//!   choosing slots           which slot refused which image, by plan
//!   waiting for the report   boot image never read                  -> not booted: the BMC does not reach the media
//!                            read before the power-on only          -> not booted: the host does not boot from the media
//!                            read since the power-on                -> booted, has not reported
//!   second way to boot       both ways, and why
//! ```
//!
//! A BMC reads the media itself when they are inserted, so only reads after the power-on request show a boot (decision D4).
//! Invariant: pure.

use serde::de::DeserializeOwned;

use engine::Remark;
use model::{Artifact, MediaEvidence, Outcome, Phase, Snapshot, StepName};

use super::media_report;
use super::names;
use super::outputs::{Discovered, Validated};
use super::report::SIGNAL;
use super::second_way;
use super::slot_refusals::{REPEATED_STEPS, describe_all, refused_attempts};
use super::steps::slot_fallbacks;

/// Returns the remark about a job, if there is one. A failure after a deadline has its remark already.
pub(super) fn remark(snapshot: &Snapshot) -> Option<Remark> {
    let run = &snapshot.run;
    let step = match (run.phase, run.outcome, &run.failure) {
        (Phase::Ended, Some(Outcome::Cancelled), Some(failure)) => &failure.step,
        (phase, ..) if phase.is_forward() => run.step.as_ref()?,
        _ => return None,
    };
    if REPEATED_STEPS.contains(&step) {
        return refused_plans(snapshot);
    }
    let second = second_way::of(snapshot).filter(|_| !second_way::is_given_up(snapshot));
    let second = second.map(|second| second_way::describe(&second));
    let installing = names::INSTALLING.contains(&step);
    let booted = installing.then(|| boot(snapshot, step == names::AWAIT_REPORT)).flatten();
    let remark = match (booted, second) {
        (Some(booted), Some(second)) => Remark { facts: format!("{}; {second}", booted.facts), ..booted },
        (Some(booted), None) => booted,
        (None, Some(second)) if installing || second_way::STEPS.contains(&step) => {
            Remark { facts: second, next_action: None }
        }
        (None, _) => return None,
    };
    // A cancelled job keeps its next action.
    Some(Remark { next_action: remark.next_action.filter(|_| run.phase.is_forward()), ..remark })
}

/// Returns the output of the last instance of a step.
fn output<T: DeserializeOwned>(snapshot: &Snapshot, step: &StepName) -> Option<T> {
    T::deserialize(&snapshot.records_of(step).next_back()?.output).ok()
}

fn refused_plans(snapshot: &Snapshot) -> Option<Remark> {
    let found: Discovered = output(snapshot, names::DISCOVER)?;
    let (refused, _) = refused_attempts(&found, &slot_fallbacks(snapshot));
    let facts = format!("refused before: {}", describe_all(&refused));
    (!refused.is_empty()).then_some(Remark { facts, next_action: None })
}

/// Returns the status that the machine has reported at its end, if it has reported one.
fn reported(snapshot: &Snapshot) -> Option<&str> {
    let report = snapshot.signals.iter().find(|signal| signal.name == SIGNAL)?;
    report.payload.get("status")?.as_str()
}

/// Returns the remark about the boot of the machine, by the reads of its media. `reports`: the machine is expected to report.
fn boot(snapshot: &Snapshot, reports: bool) -> Option<Remark> {
    let powered_on = second_way::powered_on_at(snapshot)?;
    let last_read = |artifact| {
        let of = |media: &&MediaEvidence| media.artifact == artifact;
        snapshot.media.iter().filter(of).max_by_key(|media| media.reads.last_read_at)
    };
    let boot = last_read(Artifact::Boot)?;
    let (facts, next_action) = match boot.reads.last_read_at {
        None => (
            "the machine has not booted from the media: its BMC has never read the boot image".to_owned(),
            "check the network from the BMC to the media address (MEDIA_BASE_URL): `shoal bmc doctor` tests it with a small image"
                .to_owned(),
        ),
        Some(last) if last <= powered_on => (
            format!(
                "the machine has not booted from the media: the boot image was last read at {last}, before the power-on at {powered_on}"
            ),
            "check the machine's console: did it stop in its self-test, boot from disk, or refuse the medium (Secure Boot, boot mode)?"
                .to_owned(),
        ),
        Some(_) if let Some(status) = reported(snapshot) => (
            format!("the machine booted from the media and has reported {status}"),
            "the job ends with this report when it goes on: `shoal job resume` if it is held".to_owned(),
        ),
        Some(last) => {
            let silent = if reports { " and has not reported" } else { "" };
            let task = match last_read(Artifact::Task).filter(|_| has_task_slot(snapshot)) {
                Some(task) if task.reads.last_read_at.is_none_or(|last| last <= powered_on) => {
                    "; it has not read the task image since"
                }
                _ => "",
            };
            let (bytes, size) = (boot.reads.bytes, boot.size);
            let said = media_report::heard(snapshot);
            let silent = match (&said.unusable, said.done, said.started) {
                (Some(words), ..) => format!(" and reports by its medium are not possible ({words})"),
                (None, Some(unit), _) => format!(" and said by its medium that {unit} is done"),
                (None, None, true) => " and said by its medium that the installation runs".to_owned(),
                (None, None, false) => silent.to_owned(),
            };
            let facts = format!(
                "the machine booted from the media{silent}: the boot image was last read at {last}, {bytes} bytes in all of an image of {size}{task}"
            );
            (facts, console(snapshot, reports))
        }
    };
    Some(Remark { facts, next_action: Some(next_action) })
}

/// Returns the next action for a machine that booted from the media.
fn console(snapshot: &Snapshot, reports: bool) -> String {
    match output::<Validated>(snapshot, names::VALIDATE).filter(|_| reports) {
        Some(validated) => format!(
            "check the machine's console: the maintenance OS was started; it must find its task image and reach {}",
            validated.controller_url
        ),
        None => "check the machine's console; if the installation failed, cancel the job".to_owned(),
    }
}

/// Returns whether the current slot plan gives the task image a slot.
fn has_task_slot(snapshot: &Snapshot) -> bool {
    output::<Discovered>(snapshot, names::DISCOVER)
        .is_some_and(|found| refused_attempts(&found, &slot_fallbacks(snapshot)).1.second.is_some())
}
