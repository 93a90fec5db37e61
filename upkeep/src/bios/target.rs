//! The two resources that a run writes: the attributes of the BIOS, and the boot order of the system.

use redfish::{Bmc, ChangeResult, Discovery, RedfishError, SettingsDiff, SettingsView};
use serde_json::{Map, Value};

use super::super::names;
use super::plan::Planned;
use super::read::options;
use model::StepName;

/// The resource that a step writes: the attributes of the BIOS, or the boot order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Attributes,
    BootOrder,
}

impl Target {
    pub(super) const ALL: [Self; 2] = [Self::Attributes, Self::BootOrder];

    /// The target of a writing step.
    pub(super) fn of(step: &StepName) -> Self {
        if step == names::BIOS_BOOT_ORDER { Self::BootOrder } else { Self::Attributes }
    }

    /// The step that writes the target.
    pub(super) fn step(self) -> &'static StepName {
        match self {
            Self::Attributes => names::BIOS_WRITE,
            Self::BootOrder => names::BIOS_BOOT_ORDER,
        }
    }

    /// The name of the target in a sentence.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Attributes => "the settings of the BIOS",
            Self::BootOrder => "the boot order",
        }
    }

    /// The wanted values.
    pub(super) fn wanted(self, plan: &Planned) -> Map<String, Value> {
        match self {
            Self::Attributes => plan.attributes(),
            Self::BootOrder => plan.boot_order(),
        }
    }

    /// Whether the plan has something of it that is not in force.
    pub(super) fn is_open(self, plan: &Planned) -> bool {
        plan.items.iter().any(|item| item.boot_order == (self == Self::BootOrder) && item.is_open())
    }

    /// Whether nothing shows what waits of it for a restart.
    pub(super) fn is_hidden(self, plan: &Planned) -> bool {
        match self {
            Self::Attributes => plan.hides_attributes,
            Self::BootOrder => plan.hides_boot_order,
        }
    }

    /// Reads what the BMC shows of it.
    pub(super) async fn view(self, bmc: &Bmc, found: &Discovery) -> Result<SettingsView, RedfishError> {
        match self {
            Self::Attributes => Ok(bmc.bios(&found.system).await?.settings),
            Self::BootOrder => bmc.boot_order(&found.system).await,
        }
    }

    /// Writes it with one request.
    pub(super) async fn write(
        self,
        bmc: &Bmc,
        found: &Discovery,
        wanted: &Map<String, Value>,
    ) -> Result<ChangeResult<SettingsView>, RedfishError> {
        match self {
            Self::Attributes => {
                let bios = bmc.bios(&found.system).await?;
                bmc.set_bios(&bios, wanted, None).await
            }
            Self::BootOrder => bmc.set_boot_order(&found.system, &options(wanted), None).await,
        }
    }
}

/// The wanted settings that are not in force yet, as one read of the BMC showed them.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The name, the value in force and the wanted value of each setting that is not in force.
    pub(super) open: Vec<(String, Value, Value)>,
    /// How many open settings wait for a restart.
    pub(super) pending: usize,
    /// How many open settings may wait for a restart, because the BMC does not show what it stores.
    pub(super) unseen: usize,
    /// Whether an open setting waits no longer, although the BMC would show it.
    pub(super) is_lost: bool,
}

impl Seen {
    /// Reads both targets, as far as the plan has them.
    pub(super) async fn read(bmc: &Bmc, found: &Discovery, plan: &Planned) -> Result<Self, RedfishError> {
        let mut seen = Self::default();
        for target in Target::ALL {
            let wanted = target.wanted(plan);
            if wanted.is_empty() {
                continue;
            }
            let view = target.view(bmc, found).await?;
            let SettingsDiff { pending, missing, .. } = view.compare(&wanted);
            seen.pending += pending.len();
            match target.is_hidden(plan) {
                true => seen.unseen += missing.len(),
                false => seen.is_lost |= !missing.is_empty(),
            }
            for name in pending.into_iter().chain(missing) {
                let now = view.current.get(&name).cloned().unwrap_or_default();
                let then = wanted.get(&name).cloned().unwrap_or_default();
                seen.open.push((name, now, then));
            }
        }
        Ok(seen)
    }

    /// Whether every wanted value is in force.
    pub(super) fn is_in_force(&self) -> bool {
        self.open.is_empty()
    }
}
