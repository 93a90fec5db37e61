//! What the steps of one component share: its item of the plan, the outputs of its other steps, its installed version.

use redfish::{Bmc, RedfishError, SystemSelector, UpdateState};
use serde::de::DeserializeOwned;

use super::super::{InstallFirmware, names};
use super::offer::{PlanItem, Planned};
use super::validate::order;
use bmc::{failure, output_of};
use engine::{StepContext, StepError};
use firmware::{
    Component, Entry, FirmwareVersion, OwnVersions, Recognised, Restart, ShownFirmware, VersionOrder,
    candidates, compare, running,
};
use model::{Serial, StepName, StepPhase, StepRecord};

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

    /// What a state of the update means for the component: a restart of which no message says what restarts is one of the BMC for
    /// its own firmware.
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
