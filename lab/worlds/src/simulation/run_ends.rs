//! The rules of a run at the moment of its end: of an installation of firmware, of a change of BIOS settings, and of a rescue session.
//!
//! ```text
//!   acknowledged ─► watched ─► the transaction that ends the run ─► checked at once: the next run of the server has not begun
//!
//!   installation   succeeded ─► every planned version is installed        one accepted image for each component
//!                  the power of the host is as it was, unless an update did not end        no file is held
//!   settings       succeeded ─► every wanted value is in force           nothing written that waits or is in force
//!                  the power of the host is as it was
//!   rescue         succeeded ─► off or on, as its recipe says             (its grants: an invariant of the rows)
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use lab_bmc::{Component, Power, SimBmc};
use serde_json::{Value, json};

use super::state::WorldState;
use super::watched::{Counters, What};
use model::{Outcome, RunId, Serial, Snapshot, StepPhase, StepRecord};

impl WorldState {
    /// The number of accepted installations of firmware.
    pub(super) fn installations(&self) -> u64 {
        self.watched.installations.load(Ordering::Relaxed)
    }

    pub(super) fn watch_installation(&self, run: RunId, serial: &Serial) {
        self.watched.installations.fetch_add(1, Ordering::Relaxed);
        self.watch(run, serial, What::Installation);
    }

    pub(super) fn watch_settings(&self, run: RunId, serial: &Serial) {
        self.watch(run, serial, What::Settings);
    }

    /// `off`: the recipe leaves the host off.
    pub(super) fn watch_rescue(&self, run: RunId, serial: &Serial, off: bool) {
        if off {
            self.checker.rescue_leaves_off(run);
        }
        self.watch(run, serial, What::Rescue { off });
    }

    fn watch(&self, run: RunId, serial: &Serial, what: What) {
        // The response may have come after the end.
        if !self.observer().peek_ended(run) {
            self.watched.runs.lock().insert(run, (serial.clone(), what));
        }
    }

    /// A run changes a BMC.
    pub(super) fn run_changes(&self, run: RunId, bmc: &SimBmc) {
        let counters =
            || Counters { accepted: bmc.accepted_images().len(), needless: bmc.bios_needless_writes() };
        self.watched.before.lock().entry(run).or_insert_with(counters);
    }

    /// A transaction has ended a run.
    pub(super) fn run_ended(&self, run: RunId) {
        let before = self.watched.before.lock().remove(&run);
        let Some((serial, what)) = self.watched.runs.lock().remove(&run) else { return };
        let (Some(bmc), Some(snapshot)) = (self.bmc(&serial), self.observer().peek_snapshot(run)) else {
            return;
        };
        match what {
            What::Installation => {
                self.check_versions(&bmc, &snapshot);
                self.check_images(&serial, &bmc, run, before);
                self.check_power(&serial, &bmc, &snapshot, "firmware");
                let released = step(&snapshot, "firmware.release").is_some_and(done);
                if released && self.firmware.holds_for(run) {
                    self.checker
                        .violation(format!("job {run} has ended and its firmware files are still held"));
                }
            }
            What::Settings => {
                self.check_values(&bmc, &snapshot);
                self.check_writes(&serial, &bmc, run, before);
                self.check_power(&serial, &bmc, &snapshot, "bios");
            }
            What::Rescue { off } => self.check_rescue(&serial, &bmc, &snapshot, off),
        }
    }

    fn check_versions(&self, bmc: &SimBmc, snapshot: &Snapshot) {
        if snapshot.run.outcome != Some(Outcome::Succeeded) {
            return;
        }
        let Some(plan) = step(snapshot, "firmware.plan") else { return };
        for (component, version) in planned(&plan.output) {
            let kind = match component {
                "bmc" => Component::Bmc,
                "bios" => Component::Bios,
                _ => Component::Device,
            };
            let installed = bmc.versions_of(kind);
            if !installed.iter().any(|one| one == version) {
                self.checker.violation(format!(
                    "job {} succeeded, but its {component} is {installed:?} and not {version}",
                    snapshot.run.id
                ));
            }
        }
    }

    /// No image is accepted twice in a run, whatever the BMC loses or hides.
    fn check_images(&self, serial: &Serial, bmc: &SimBmc, run: RunId, before: Option<Counters>) {
        let Some(before) = before else { return };
        let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
        for image in bmc.accepted_images().into_iter().skip(before.accepted) {
            *counts.entry(image).or_default() += 1;
        }
        for ((component, version), count) in counts.into_iter().filter(|(_, count)| *count > 1) {
            self.checker.violation(format!(
                "job {run} sent a second image of {component} {version} to {serial}: {count} were accepted"
            ));
        }
    }

    /// After a change of settings that succeeded, every wanted value is in force.
    fn check_values(&self, bmc: &SimBmc, snapshot: &Snapshot) {
        if snapshot.run.outcome != Some(Outcome::Succeeded) {
            return;
        }
        let Some(plan) = step(snapshot, "bios.plan") else { return };
        let attributes = bmc.bios_attributes();
        for item in settings(&plan.output) {
            let (name, then) = (item["name"].as_str().unwrap_or_default(), &item["then"]);
            let now = match item["boot_order"] == true {
                true => json!(bmc.boot_order()),
                false => attributes.get(name).cloned().unwrap_or_default(),
            };
            if now != *then {
                self.checker.violation(format!(
                    "job {} succeeded, but its setting {name} is {now} and not {then}",
                    snapshot.run.id
                ));
            }
        }
    }

    /// A run writes no settings that wait or are in force already, at a BMC that shows what waits for a restart. A write without a
    /// response is sent again if the host boots meanwhile and its firmware does not take the values.
    fn check_writes(&self, serial: &Serial, bmc: &SimBmc, run: RunId, before: Option<Counters>) {
        let (Some(before), true) = (before, bmc.config().bios.settings.is_some()) else { return };
        let needless = bmc.bios_needless_writes() - before.needless;
        if needless > 0 {
            self.checker.violation(format!(
                "job {run} wrote settings of {serial} that its BMC had already, {needless} times"
            ));
        }
    }

    /// `of`: the first part of the names of the steps.
    fn check_power(&self, serial: &Serial, bmc: &SimBmc, snapshot: &Snapshot, of: &str) {
        let step = |name: &str| step(snapshot, &format!("{of}.{name}"));
        let Some(was) = step("identify").and_then(|found| found.output["was"].as_str()) else {
            return;
        };
        let left = step("settle").is_some_and(|settled| settled.output["is_running"] == true);
        let restored = step("power-restore").is_some_and(done);
        if left || !restored {
            return;
        }
        let was_off = matches!(was, "Off" | "PoweringOff");
        let power = bmc.snapshot().power;
        let is_off = matches!(power, Power::Off | Power::PoweringOff);
        if is_off && self.checker.stopped_by_another(serial, snapshot.run.id) {
            return;
        }
        if was_off != is_off {
            self.checker.violation(format!(
                "the power of {serial} was {was} before the {of} job {} and is {} after it",
                snapshot.run.id,
                power.as_str()
            ));
        }
    }

    fn check_rescue(&self, serial: &Serial, bmc: &SimBmc, snapshot: &Snapshot, off: bool) {
        let run = snapshot.run.id;
        let ends = ["cleanup.power-off", "cleanup.power-on"];
        let clean = ends.iter().all(|name| step(snapshot, name).is_some_and(done));
        if snapshot.run.outcome != Some(Outcome::Succeeded) || !clean {
            return;
        }
        let power = bmc.snapshot().power;
        if off != matches!(power, Power::Off | Power::PoweringOff) {
            let said = if off { "off" } else { "on" };
            self.checker.violation(format!(
                "the rescue {run} of {serial} leaves its host {said}, and its power is {}",
                power.as_str()
            ));
        }
    }
}

/// The record of a step.
fn step<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a StepRecord> {
    snapshot.records().find(|record| &*record.name == name)
}

/// Whether a step ended as it should.
fn done(record: &StepRecord) -> bool {
    matches!(record.phase, StepPhase::Done | StepPhase::Skipped)
}

/// The items of a plan of settings.
fn settings(plan: &Value) -> impl Iterator<Item = &Value> {
    plan["items"].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// Component and version of what a plan installs.
fn planned(plan: &Value) -> impl Iterator<Item = (&str, &str)> {
    let items = plan["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| {
        let install = item["decision"] == "install";
        install.then_some((item["component"].as_str()?, item["then"].as_str()?))
    })
}
