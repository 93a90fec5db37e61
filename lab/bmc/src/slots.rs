//! Virtual media slots as JSON, in the shape of each vendor.
//!
//! ```text
//!   empty, ejecting, attaching, inserted ──► Inserted, ConnectedVia, Image, ImageName
//!   insert methods (MediaVia)            ──► Actions, Actions.Oem, Oem.{Hp,Hpe,Huawei}.Actions, CfgCD beside the slots
//! ```
//!
//! Reference: DSP0268 VirtualMedia.

use serde_json::{Map, Value, json};

use super::{
    config::{BootOem, ImageShown, MediaVia},
    host::MediaUrl,
    resources::View,
    routes::{Oem, Resource, Tree},
    state::NextBoot,
};

impl View<'_> {
    pub(super) fn slot(&self, tree: Tree, index: usize) -> Value {
        let (config, about, slot) = (self.config, &self.config.slots[index], &self.state.slots[index]);
        let last = slot.last.as_ref().map(|(url, _)| url);
        let ejecting = slot.ejecting(config, self.at);
        let attached = slot.attached(self.at).map(|medium| &medium.url);
        let inserted = attached.or(last.filter(|_| ejecting));
        let image = inserted.or(last.filter(|_| config.media.image_sticks));
        let mut body = json!({
            "@odata.type": "#VirtualMedia.v1_6_3.VirtualMedia",
            "Id": about.id,
            "Name": format!("Virtual Media {}", about.id),
            "MediaTypes": about.types(),
            "Image": image.map(|url| self.shown(url)),
            "ImageName": image.map(MediaUrl::file_name),
            "Inserted": inserted.is_some(),
            "ConnectedVia": if inserted.is_some() { "URI" } else { "NotConnected" },
            "WriteProtected": true,
            "TransferMethod": "Stream",
            "Status": { "State": "Enabled", "Health": "OK" },
        });
        self.add_actions(&mut body, tree, index, inserted.is_some());
        body
    }

    fn shown<'a>(&self, url: &'a MediaUrl) -> &'a str {
        match self.config.media.image_shown {
            ImageShown::Whole => url.as_str(),
            ImageShown::FileName => url.file_name(),
            ImageShown::Nothing => "",
        }
    }

    fn add_actions(&self, body: &mut Value, tree: Tree, index: usize, inserted: bool) {
        let media = &self.config.media;
        let via = |way: MediaVia| media.via.contains(&way) && self.config.slots[index].insertable;
        if via(MediaVia::Action) {
            let protocols: Vec<String> =
                media.url.schemes.iter().map(|scheme| scheme.to_uppercase()).collect();
            let mut insert = json!({
                "target": self.uri(&Resource::Insert(tree, index)),
                "TransferProtocolType@Redfish.AllowableValues": protocols,
            });
            if media.action_info {
                insert["@Redfish.ActionInfo"] = json!(self.uri(&Resource::InsertInfo(tree, index)));
            }
            let mut actions = Map::from_iter([("#VirtualMedia.InsertMedia".to_owned(), insert)]);
            if inserted || media.eject_offered_while_empty {
                let eject = json!({ "target": self.uri(&Resource::Eject(tree, index)) });
                actions.insert("#VirtualMedia.EjectMedia".to_owned(), eject);
            }
            body["Actions"] = Value::Object(actions);
        }
        for (way, key, name) in [(MediaVia::HpAction, "Hp", "HpiLO"), (MediaVia::HpeAction, "Hpe", "HpeiLO")]
        {
            if via(way) {
                for (verb, action) in
                    [("Insert", Oem::HpInsert(tree, index)), ("Eject", Oem::HpEject(tree, index))]
                {
                    body["Oem"][key]["Actions"][format!("#{name}VirtualMedia.{verb}VirtualMedia")] =
                        json!({ "target": self.uri(&Resource::Oem(action)) });
                }
            }
        }
        if self.config.boot.oem == Some(BootOem::HpeNextServerReset) {
            body["Oem"]["Hpe"]["BootOnNextServerReset"] =
                json!(self.state.next_boot == Some(NextBoot::Slot(index)));
        }
        if via(MediaVia::HuaweiVmmControl) {
            body["Oem"]["Huawei"]["Actions"]["#VirtualMedia.VmmControl"] = json!({
                "target": self.uri(&Resource::Oem(Oem::Vmm(tree, index))),
                "VmmControlType@Redfish.AllowableValues": ["Connect", "Disconnect"],
            });
        }
    }

    pub(super) fn add_oem_to_slots(&self, body: &mut Value, tree: Tree) {
        if tree == Tree::Manager && self.config.media.via.contains(&MediaVia::SmcIsoConfig) {
            body["Oem"]["Supermicro"] =
                json!({ "VirtualMediaConfig": self.link(&Resource::Oem(Oem::CfgCd)) });
        }
    }

    pub(super) fn insert_info(&self) -> Value {
        let rules = &self.config.media.insert;
        let parameter = |name: &String| {
            json!({
                "Name": name,
                "Required": rules.required.contains(name),
                "DataType": if matches!(name.as_str(), "Inserted" | "WriteProtected") { "Boolean" } else { "String" },
            })
        };
        json!({
            "@odata.type": "#ActionInfo.v1_3_0.ActionInfo",
            "Id": "InsertMediaActionInfo",
            "Name": "Insert Media Action Info",
            "Parameters": rules.accepted.iter().map(parameter).collect::<Vec<_>>(),
        })
    }

    pub(super) fn cfg_cd(&self) -> Value {
        let (host, path) = &self.state.cfg_cd;
        json!({
            "@odata.type": "#IsoConfig.v1_0_0.IsoConfig",
            "Id": "CfgCD",
            "Name": "Virtual CD Configuration",
            "Host": host,
            "Path": path,
            "Username": "",
            "Password": "",
            "Actions": {
                "#IsoConfig.Mount": { "target": self.uri(&Resource::Oem(Oem::CfgCdMount)) },
                "#IsoConfig.UnMount": { "target": self.uri(&Resource::Oem(Oem::CfgCdUnmount)) },
            },
        })
    }
}
