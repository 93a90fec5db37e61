//! The state that the steps of one component share: its item of the plan, the outputs of its other steps, its installed version.

use std::time::Duration;

use redfish::{Bmc, RedfishError, SystemSelector, UpdateState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{InstallFirmware, names, waits};
use super::offer::{PlanItem, Planned};
use super::validate::order;
use bmc::{failure, output_of, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use firmware::{
    Component, Entry, FirmwareVersion, OwnVersions, Recognised, Restart, ShownFirmware, VersionOrder,
    candidates, compare, running,
};
use model::{Serial, StepName, StepPhase, StepRecord, Time};

/// The component of a step.
pub(super) struct Current {
    pub(super) item: PlanItem,
    pub(super) entry: Entry,
    pub(super) order: InstallFirmware,
}

impl Current {
    /// The component of the step that runs.
    pub(super) fn of(step: &StepName, context: &StepContext) -> Result<Self, StepError> {
        Self::of_key(step, context, &context.record.key)
    }

    /// The component of the steps with this key.
    pub(super) fn of_key(step: &StepName, context: &StepContext, key: &str) -> Result<Self, StepError> {
        let order = order(step, context)?;
        let planned: Planned = output_of(step, context, names::FW_PLAN)?;
        let item = planned.items.into_iter().find(|item| item.installs() && item.key() == key);
        let entry = |item: &PlanItem| {
            order.files.iter().find(|entry| Some(&entry.digest) == item.digest.as_ref()).cloned()
        };
        match item.and_then(|item| entry(&item).map(|entry| (item, entry))) {
            Some((item, entry)) => Ok(Self { item, entry, order }),
            None => {
                let summary = format!("the stored plan does not contain {key}");
                Err(StepError::fail(failure(model::class::INTERNAL, step, summary, "order it again")))
            }
        }
    }

    /// Completes a state that does not say what restarts: for the firmware of the BMC it is the BMC, for all other firmware the
    /// host.
    pub(super) fn meaning(&self, state: &UpdateState) -> UpdateState {
        match state {
            UpdateState::NeedsRestart if self.item.component == Component::Bmc => {
                UpdateState::NeedsBmcRestart
            }
            UpdateState::NeedsRestart => UpdateState::NeedsHostRestart,
            state => state.clone(),
        }
    }

    /// Whether the file is used after a restart of the host. The BMC's own firmware is not, unless its file says so: a host is not
    /// restarted for it, whatever a task says.
    pub(super) fn may_need_host(&self) -> bool {
        self.item.component != Component::Bmc || self.entry.file.restart == Restart::Host
    }

    /// The version that must be installed in the end.
    pub(super) fn target(&self) -> &FirmwareVersion {
        self.entry.file.version()
    }

    /// Whether a version that the BMC shows is the new one.
    pub(super) fn is_target(&self, shown: Option<&FirmwareVersion>) -> bool {
        shown.is_some_and(|shown| compare(shown, self.target()) == VersionOrder::Same)
    }
}

/// The record of another step of a component.
pub(super) fn record<'a>(context: &'a StepContext, step: &'a StepName, key: &str) -> Option<&'a StepRecord> {
    context.snapshot.records_of(step).find(|record| record.key == key)
}

/// The output of another step of the same component.
pub(super) fn sibling<T: DeserializeOwned>(context: &StepContext, step: &StepName) -> Option<T> {
    let record = record(context, step, &context.record.key)?;
    T::deserialize(&record.output).ok()
}

/// Whether another step of the same component has ended with an effect.
pub(super) fn sibling_is_done(context: &StepContext, step: &StepName) -> bool {
    record(context, step, &context.record.key).is_some_and(|record| record.phase == StepPhase::Done)
}

/// Reads the members of the firmware inventory that can be read.
pub(super) async fn inventory(bmc: &Bmc) -> Result<Inventory, RedfishError> {
    let service = bmc.update_capability().await?;
    let inventory = bmc.firmware_inventory(&service).await?;
    let members = inventory.items.iter().map(ShownFirmware::from).collect();
    Ok(Inventory { members, unreadable: inventory.unreadable })
}

/// The firmware inventory of a BMC.
pub(super) struct Inventory {
    pub(super) members: Vec<ShownFirmware>,
    /// How many members could not be read: what they are is not known.
    pub(super) unreadable: usize,
}

/// How long a BMC may list entries of its inventory that it cannot show, before the step goes on without them.
const READABLE_WITHIN: Duration = Duration::from_secs(2 * 60);
/// The delay between two reads meanwhile.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// The output of a step that waits for the entries that could not be read.
#[derive(Serialize, Deserialize)]
struct Unread {
    unread_since: Time,
}

/// The report of a step that has met `unread` entries of the inventory which the BMC cannot show: a BMC that has just restarted lists some
/// that it shows later. `None` when there are none, or when they had their time.
pub(super) fn wait_for_unread(context: &StepContext, unread: usize) -> Option<StepReport> {
    if unread == 0 {
        return None;
    }
    let now = context.now();
    let unread_since = context.own_output::<Unread>().map_or(now, |seen| seen.unread_since);
    let left = READABLE_WITHIN.checked_sub(now.since(unread_since)).filter(|left| !left.is_zero())?;
    let detail = format!("the BMC lists {unread} entries of its firmware inventory that it cannot show");
    let mut wait = wait_for_bmc(&waits::PARTS_SHOWN, left + READABLE_WITHIN, detail);
    wait.poll = Some(READ_AGAIN);
    Some(StepReport::wait(wait).with_output(json!(Unread { unread_since })))
}

/// The firmware of a component as the BMC shows it now, with the path of its member.
pub(super) async fn shown(
    bmc: &Bmc,
    serial: &Serial,
    item: &PlanItem,
    target: &FirmwareVersion,
) -> Result<Option<Recognised>, RedfishError> {
    let all = candidates(&inventory(bmc).await?.members, item.component);
    if !item.component.is_in_every_server() {
        return Ok(of_item(&all, item, target, &OwnVersions::default()));
    }
    let own = match all.len() {
        1 => OwnVersions::default(),
        _ => OwnVersions::from(&bmc.discover(&SystemSelector::serial(serial.as_str())).await?),
    };
    let bare = || own.of(item.component).map(|version| bare(item, version.clone()));
    Ok(of_item(&all, item, target, &own).or_else(bare))
}

/// The member of a component of the plan. Of several members that look like the BMC or the BIOS, it is the one that runs, as for the
/// plan; where the machine itself shows none of their versions, the one that the plan named, then one with the new version: the ids
/// of some BMCs change with it.
pub(super) fn of_item(
    all: &[Recognised],
    item: &PlanItem,
    target: &FirmwareVersion,
    own: &OwnVersions,
) -> Option<Recognised> {
    let named = || all.iter().find(|one| Some(&one.installed.id) == item.id.as_ref());
    if !item.component.is_in_every_server() {
        return named().cloned();
    }
    let is_new = |one: &&Recognised| {
        one.installed.version.as_ref().is_some_and(|shown| compare(shown, target) == VersionOrder::Same)
    };
    let found = running(all, item.component, own).or_else(named);
    found.or_else(|| all.iter().find(is_new)).or(all.first()).cloned()
}

fn bare(item: &PlanItem, version: FirmwareVersion) -> Recognised {
    let installed = firmware::Installed {
        component: item.component,
        id: item.id.clone().unwrap_or_default(),
        vendor: None,
        model: None,
        version: Some(version),
        updateable: None,
    };
    Recognised { installed, uri: None }
}
