//! The update service, the inventory and the list of tasks as JSON.

use serde_json::{Value, json};

use super::progress::{Stage, Updates};
use crate::{
    config::{Component, UpdateAnswer},
    etag,
    resources::View,
    routes::Resource,
    sim_bmc::SimBmc,
};

impl View<'_> {
    pub(crate) fn update_service(&self) -> Value {
        let policy = &self.config.update;
        let updates = &self.state.updates;
        let mut body = json!({
            "@odata.type": "#UpdateService.v1_11_3.UpdateService",
            "Id": "UpdateService",
            "Name": "Update Service",
            "ServiceEnabled": true,
            "FirmwareInventory": self.link(&Resource::Firmware),
        });
        for (name, path) in [("MultipartHttpPushUri", &policy.multipart), ("HttpPushUri", &policy.push)] {
            if let Some(path) = path {
                body[name] = json!(path);
            }
        }
        if let Some(bytes) = policy.max_bytes {
            body["MaxImageSizeBytes"] = json!(bytes);
        }
        if policy.push_options {
            body["HttpPushUriOptions"] = json!({ "HttpPushUriApplyTime": {
                "ApplyTime": "Immediate",
                "ApplyTime@Redfish.AllowableValues": ["Immediate", "OnReset"],
            }});
            body["HttpPushUriTargets"] = json!([]);
            body["HttpPushUriTargetsBusy"] = json!(updates.is_busy());
            for name in ["HttpPushUriOptions", "HttpPushUriTargets"] {
                if let Some(value) = updates.push_options.get(name) {
                    body[name] = value.clone();
                }
            }
        }
        if let Some(simple) = &policy.simple {
            let mut action = json!({ "target": self.uri(&Resource::UpdateSimple) });
            if simple.action_info {
                action["@Redfish.ActionInfo"] = json!(self.uri(&Resource::UpdateSimpleInfo));
            } else if !simple.unlisted {
                action["TransferProtocol@Redfish.AllowableValues"] = json!(simple.protocols);
            }
            body["Actions"]["#UpdateService.SimpleUpdate"] = action;
        }
        if policy.start_action {
            body["Actions"]["#UpdateService.StartUpdate"] =
                json!({ "target": self.uri(&Resource::UpdateStart) });
        }
        if policy.answer == UpdateAnswer::ServiceState {
            let shown = &updates.shown;
            let mut state = json!({ "State": shown.state });
            if shown.state == "Updating" {
                state["FlashProgressPercent"] = json!(shown.percent);
            }
            if let Some(message) = &shown.message {
                state["Result"] = json!({ "MessageId": "iLO.2.14.UpdateFailed", "Message": message });
            } else if updates.waits_for_host() {
                state["Result"] = json!({ "MessageId": "iLO.2.14.SystemResetRequired" });
            }
            let oem = if self.config.identity.oem.is_empty() {
                "Vendor"
            } else {
                self.config.identity.oem.as_str()
            };
            body["Oem"] = json!({ oem: state });
        }
        body
    }

    pub(crate) fn simple_update_info(&self) -> Value {
        let simple = self.config.update.simple.as_ref();
        let protocols = simple.map(|simple| simple.protocols.clone()).unwrap_or_default();
        let mut parameters = vec![
            json!({ "Name": "ImageURI", "Required": true, "DataType": "String" }),
            json!({ "Name": "TransferProtocol", "Required": false, "DataType": "String", "AllowableValues": protocols }),
        ];
        if simple.is_some_and(|simple| !simple.refuses_targets) {
            parameters.push(json!({ "Name": "Targets", "Required": false, "DataType": "StringArray" }));
        }
        json!({
            "@odata.type": "#ActionInfo.v1_3_0.ActionInfo",
            "Id": "SimpleUpdateActionInfo",
            "Name": "Simple Update Action Info",
            "Parameters": parameters,
        })
    }

    pub(crate) fn task_service(&self) -> Value {
        json!({
            "@odata.type": "#TaskService.v1_2_0.TaskService",
            "Id": "TaskService",
            "Name": "Task Service",
            "ServiceEnabled": true,
            "Tasks": self.link(&Resource::Tasks),
        })
    }

    /// The member with this id; `None` when no firmware has it now.
    pub(crate) fn firmware_named(&self, id: &str) -> Option<Value> {
        let updates = &self.state.updates;
        let any_case = self.config.service.any_case;
        let same = |known: &str, id: &str| known == id || (any_case && known.eq_ignore_ascii_case(id));
        if let Some((path, facts)) = &updates.stored
            && path.rsplit('/').next().is_some_and(|known| same(known, id))
        {
            return Some(json!({
                "@odata.type": "#SoftwareInventory.v1_10_0.SoftwareInventory",
                "Id": id, "Name": facts.component, "Version": facts.version, "Updateable": true,
            }));
        }
        if let Some(staged) = id.strip_prefix(STAGED) {
            let item = updates.items.iter().find(|item| same(&item.id, staged))?;
            let version = item.staged.as_ref()?;
            return Some(json!({
                "@odata.type": "#SoftwareInventory.v1_10_0.SoftwareInventory",
                "Id": id, "Name": "Staged image", "Version": version, "Updateable": true,
                "Status": { "State": "StandbySpare", "Health": "OK" },
            }));
        }
        let at = updates.items.iter().position(|item| same(&item.id, id))?;
        let item = &self.config.service.firmware[at];
        let mut body = json!({
            "@odata.type": "#SoftwareInventory.v1_10_0.SoftwareInventory",
            "Id": updates.items[at].id,
            "Name": item.name,
            "Version": Some(&updates.items[at].version).filter(|version| !version.is_empty()),
            "Updateable": item.updateable,
        });
        let related = match item.component {
            Component::Bmc => Some(Resource::Manager),
            Component::Bios => Some(Resource::System),
            Component::Device => None,
        };
        if let Some(related) = related.filter(|_| self.config.update.takes_images()) {
            body["RelatedItem"] = match &item.related {
                Some(below) => json!([{ "@odata.id": format!("{}/{below}", self.uri(&related)) }]),
                None => json!([self.link(&related)]),
            };
        }
        if let Some(manufacturer) = &item.manufacturer {
            body["Manufacturer"] = json!(manufacturer);
        }
        if let Some(state) = &item.state {
            body["Status"] = json!({ "State": state, "Health": "OK" });
        }
        Some(body)
    }

    /// The members of the firmware inventory now.
    pub(crate) fn firmware_members(&self) -> Vec<Resource> {
        let items = self.state.updates.items.iter();
        let staged = items.clone().filter(|item| item.staged.is_some());
        let staged = staged.map(|item| Resource::FirmwareNamed(format!("{STAGED}{}", item.id)));
        let stored = self.state.updates.stored.as_ref().and_then(|(path, _)| path.rsplit('/').next());
        let stored = stored.map(|id| Resource::FirmwareNamed(id.to_owned()));
        items.map(|item| Resource::FirmwareNamed(item.id.clone())).chain(staged).chain(stored).collect()
    }

    /// A version as the manager or the system shows it, after an update.
    pub(crate) fn version_of(&self, component: Component, configured: &str) -> String {
        match self.state.updates.replaced(self.config, component) {
            Some((old, new)) if configured.contains(&old) => configured.replace(&old, &new),
            Some((_, new)) => new,
            None => configured.to_owned(),
        }
    }
}

const STAGED: &str = "staged_";

impl Updates {
    fn waits_for_host(&self) -> bool {
        self.job.as_ref().is_some_and(|job| matches!(job.stage, Stage::WaitingForHost { .. }))
    }
}

impl SimBmc {
    /// The ETag of the firmware inventory; grows with every image.
    pub(crate) fn inventory_etag(&self) -> String {
        etag::opaque("f", self.state().updates.images)
    }
}
