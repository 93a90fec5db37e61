//! The plan of an installation as operators read it, and as the steps store it. Pure.

use serde::{Deserialize, Serialize};

use firmware::{
    Component, FirmwareSet, FirmwareVersion, Installed, Plan, PlanDecision, PlanOptions, Restart,
    ServerFirmware, plan,
};

use super::super::InstallFirmware;

/// One component of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanItem {
    /// The component.
    pub component: Component,
    /// The id by which the BMC names the firmware, without its version; `None` when the server does not have it.
    pub id: Option<String>,
    /// The installed version.
    pub now: Option<FirmwareVersion>,
    /// The version of the file.
    pub then: Option<FirmwareVersion>,
    /// `install`, `skip`, `refuse` or `unknown`.
    pub decision: String,
    /// Why the component is skipped or refused; for an installation, the relation of the versions.
    pub reason: String,
    /// The digest of the artifact that is installed.
    pub digest: Option<String>,
    /// The bytes that are sent.
    pub size: Option<u64>,
    /// Whether the host must restart.
    pub restart: Option<Restart>,
    /// How many devices of the component the server has.
    pub devices: usize,
}

impl PlanItem {
    /// Whether the file is installed.
    pub fn installs(&self) -> bool {
        self.decision == "install"
    }

    /// The key of the steps of this component.
    pub fn key(&self) -> String {
        format!("{}/{}", self.component, self.id.as_deref().unwrap_or_default())
    }

    /// Names the component, its new version and its device in a few words.
    pub fn what(&self) -> String {
        let then = self.then.as_ref().map_or("", FirmwareVersion::as_str);
        match (&self.id, self.devices) {
            (Some(id), 2..) => format!("{} {then} of {id}", self.component),
            _ => format!("{} {then}", self.component),
        }
    }

    /// The version that a text names.
    pub fn version_now(&self) -> &str {
        self.now.as_ref().map_or("no shown version", FirmwareVersion::as_str)
    }
}

/// The plan of a run; the output of its step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Planned {
    /// The plan in one sentence for operators.
    pub(super) summary: String,
    /// The components, in the order of installation.
    pub(super) items: Vec<PlanItem>,
}

/// Plans a firmware order for a server: one item for each component.
///
/// # Errors
/// When the files of the order are no set.
pub fn planned(order: &InstallFirmware, server: &ServerFirmware) -> Result<Vec<PlanItem>, String> {
    let name = "order".parse().map_err(|why: firmware::InvalidIdentity| why.to_string())?;
    let set = FirmwareSet::new(name, std::collections::BTreeMap::new(), order.files.clone())
        .map_err(|why| why.to_string())?;
    let options = PlanOptions { allow_downgrade: order.allow_downgrade };
    Ok(items(&plan(server, &set, options), &server.installed))
}

/// Why it is not known whether the server has a device.
const UNREAD: &str =
    "a part of the firmware inventory could not be read, which may be such a device; it is left as it is";

fn items(plan: &Plan, installed: &[Installed]) -> Vec<PlanItem> {
    let all = plan.items.iter().map(|item| {
        let (decision, reason, entry) = match &item.decision {
            PlanDecision::Install(entry) => {
                ("install", "another version is installed".to_owned(), Some(entry))
            }
            PlanDecision::Skip(reason) => ("skip", reason.to_string(), None),
            PlanDecision::Refuse(refusal) => ("refuse", refusal.to_string(), None),
            PlanDecision::Unknown => ("unknown", UNREAD.to_owned(), None),
        };
        PlanItem {
            component: item.component,
            id: item.id.clone(),
            now: item.now.clone(),
            then: item.then.clone(),
            decision: decision.to_owned(),
            reason,
            digest: entry.map(|entry| entry.digest.clone()),
            size: entry.map(|entry| entry.file.size),
            restart: entry.map(|entry| entry.file.restart),
            devices: installed.iter().filter(|one| one.component == item.component).count(),
        }
    });
    all.collect()
}
