//! Resources as JSON: what a GET shows.
//!
//! ```text
//!   ServiceRoot ─┬─ SessionService ── Sessions ── Session
//!                ├─ Systems ── ComputerSystem ─┬─ Boot, PowerState, Actions.Reset
//!                │                  ▲          └─ VirtualMedia (tree System)
//!                └─ Managers ── Manager ─┴─ VirtualMedia (tree Manager) ── VirtualMedia: Actions.Insert, Eject
//! ```
//!
//! Reference: DSP0268; resource versions are in each `@odata.type`.

use http::header;
use serde_json::{Map, Value, json};

use super::{
    config::TwinConfig,
    power::Power,
    reply::Reply,
    routes::{self, Resource, Tree},
    state::State,
};

/// What a resource is rendered from.
pub(super) struct View<'a> {
    pub(super) config: &'a TwinConfig,
    pub(super) state: &'a State,
    /// Shown in place of the own serial number (a fault).
    pub(super) serial: &'a str,
    /// The wall clock.
    pub(super) now: jiff::Timestamp,
    /// The power, as late as this BMC shows it.
    pub(super) power: Power,
}

impl View<'_> {
    /// The answer to a GET. `None`: there is no such session.
    pub(super) fn show(&self, resource: &Resource) -> Option<Reply> {
        let body = match resource {
            Resource::Versions => return Some(Reply::ok(&json!({ "v1": self.uri(&Resource::Root) }))),
            Resource::Root => self.root(),
            Resource::SessionService => self.session_service(),
            Resource::Sessions => {
                let members = self.state.sessions.ids().map(|id| self.uri(&Resource::Session(id))).collect();
                self.collection("SessionCollection", "Session Collection", members)
            }
            Resource::Session(id) if self.state.sessions.has(*id) => self.session(*id),
            Resource::Session(_) => return None,
            Resource::Systems => self.collection(
                "ComputerSystemCollection",
                "Computer System Collection",
                vec![self.uri(&Resource::System)],
            ),
            Resource::Managers => {
                self.collection("ManagerCollection", "Manager Collection", vec![self.uri(&Resource::Manager)])
            }
            Resource::Manager => self.manager(),
            Resource::Slots(tree) => {
                let all = 0..self.config.slots.len();
                let members = all.map(|index| self.uri(&Resource::Slot(*tree, index))).collect();
                self.collection("VirtualMediaCollection", "Virtual Media Services", members)
            }
            Resource::System => return Some(tagged(self.system(), &self.state.system_etag())),
            Resource::Slot(tree, index) => {
                return Some(tagged(self.slot(*tree, *index), &self.state.slot_etag(*index)));
            }
            // Actions are not resources; their methods never include GET.
            Resource::Reset | Resource::Insert(..) | Resource::Eject(..) => return None,
        };
        Some(Reply::ok(&self.at(resource, body)))
    }

    fn uri(&self, resource: &Resource) -> String {
        routes::uri(self.config, resource)
    }

    fn link(&self, resource: &Resource) -> Value {
        json!({ "@odata.id": self.uri(resource) })
    }

    fn at(&self, resource: &Resource, mut body: Value) -> Value {
        body["@odata.id"] = json!(self.uri(resource));
        body
    }

    fn collection(&self, kind: &str, name: &str, members: Vec<String>) -> Value {
        let links: Vec<Value> = members.into_iter().map(|uri| json!({ "@odata.id": uri })).collect();
        json!({
            "@odata.type": format!("#{kind}.{kind}"),
            "Name": name,
            "Members@odata.count": links.len(),
            "Members": links,
        })
    }

    fn root(&self) -> Value {
        let identity = &self.config.identity;
        json!({
            "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
            "Id": "RootService",
            "Name": "Root Service",
            "RedfishVersion": "1.15.0",
            "UUID": identity.uuid,
            "Vendor": identity.vendor,
            "Product": identity.product,
            "ProtocolFeaturesSupported": {
                "ExpandQuery": { "ExpandAll": false, "Levels": false, "Links": false, "NoLinks": false },
                "FilterQuery": false,
                "SelectQuery": false,
                "OnlyMemberQuery": false,
                "ExcerptQuery": false,
            },
            "Systems": self.link(&Resource::Systems),
            "Managers": self.link(&Resource::Managers),
            "SessionService": self.link(&Resource::SessionService),
            "Links": { "Sessions": self.link(&Resource::Sessions) },
        })
    }

    fn session_service(&self) -> Value {
        json!({
            "@odata.type": "#SessionService.v1_1_9.SessionService",
            "Id": "SessionService",
            "Name": "Session Service",
            "ServiceEnabled": true,
            "SessionTimeout": self.config.session.timeout.as_secs(),
            "Status": { "State": "Enabled", "Health": "OK" },
            "Sessions": self.link(&Resource::Sessions),
        })
    }

    /// One session; also the answer to the login that opened it.
    pub(super) fn session(&self, id: u64) -> Value {
        json!({
            "@odata.id": self.uri(&Resource::Session(id)),
            "@odata.type": "#Session.v1_7_0.Session",
            "Id": id.to_string(),
            "Name": "User Session",
            "UserName": self.config.username,
        })
    }

    fn system(&self) -> Value {
        let (config, state, power) = (self.config, self.state, self.power);
        let identity = &config.identity;
        let mut body = json!({
            "@odata.id": self.uri(&Resource::System),
            "@odata.etag": state.system_etag(),
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": identity.system_id,
            "Name": "System",
            "SystemType": "Physical",
            "Manufacturer": identity.vendor,
            "Model": identity.model,
            "SerialNumber": self.serial,
            "UUID": identity.uuid,
            "BiosVersion": identity.bios_version,
            "PowerState": power.as_str(),
            "Status": { "State": if power == Power::Off { "Disabled" } else { "Enabled" }, "Health": "OK" },
            "BootProgress": { "LastState": self.boot_progress(power) },
            "Boot": {
                "BootSourceOverrideEnabled": state.boot.enabled.as_str(),
                "BootSourceOverrideEnabled@Redfish.AllowableValues": config.boot.enabled,
                "BootSourceOverrideTarget": state.boot.target,
                "BootSourceOverrideTarget@Redfish.AllowableValues": config.boot.targets,
                "BootSourceOverrideMode": state.boot.mode,
                "BootSourceOverrideMode@Redfish.AllowableValues": config.boot.modes,
            },
            "Links": { "ManagedBy": [self.link(&Resource::Manager)], "Chassis": [] },
            "Actions": {
                "#ComputerSystem.Reset": {
                    "target": self.uri(&Resource::Reset),
                    "ResetType@Redfish.AllowableValues": config.power.reset_types,
                }
            },
        });
        if let Some(sku) = &config.sku {
            body["SKU"] = json!(sku);
        }
        if let Some(last) = state.last_reset {
            body["LastResetTime"] = json!(rfc3339(config.started_at, last));
        }
        self.link_slots(&mut body, Tree::System);
        body
    }

    fn boot_progress(&self, power: Power) -> &'static str {
        match power {
            Power::Off | Power::PoweringOff => "None",
            Power::PoweringOn => "SystemHardwareInitializationComplete",
            Power::On => "OSBootStarted",
        }
    }

    fn manager(&self) -> Value {
        let identity = &self.config.identity;
        let mut body = json!({
            "@odata.type": "#Manager.v1_19_0.Manager",
            "Id": identity.manager_id,
            "Name": "Manager",
            "ManagerType": "BMC",
            "Model": identity.manager_model,
            "FirmwareVersion": identity.firmware_version,
            "DateTime": self.now.to_string(),
            "DateTimeLocalOffset": "+00:00",
            "PowerState": "On",
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": {
                "ManagerForServers": [self.link(&Resource::System)],
                "ManagerForServers@odata.count": 1,
            },
        });
        self.link_slots(&mut body, Tree::Manager);
        body
    }

    fn link_slots(&self, body: &mut Value, tree: Tree) {
        if routes::shows_slots(self.config, tree) {
            body["VirtualMedia"] = self.link(&Resource::Slots(tree));
        }
    }

    fn slot(&self, tree: Tree, index: usize) -> Value {
        let about = &self.config.slots[index];
        let medium = self.state.slots[index].medium.as_ref();
        let mut body = json!({
            "@odata.id": self.uri(&Resource::Slot(tree, index)),
            "@odata.etag": self.state.slot_etag(index),
            "@odata.type": "#VirtualMedia.v1_6_3.VirtualMedia",
            "Id": about.id,
            "Name": format!("Virtual Media {}", about.id),
            "MediaTypes": about.kind.media_types(),
            "Image": medium.map(|medium| medium.url.as_str()),
            "ImageName": medium.map(|medium| medium.url.file_name()),
            "Inserted": medium.is_some(),
            "ConnectedVia": if medium.is_some() { "URI" } else { "NotConnected" },
            "WriteProtected": true,
            "TransferMethod": "Stream",
            "Status": { "State": "Enabled", "Health": "OK" },
        });
        let protocols: Vec<String> = self.config.media.url.schemes.iter().map(|s| s.to_uppercase()).collect();
        let mut actions = Map::new();
        actions.insert(
            "#VirtualMedia.InsertMedia".to_owned(),
            json!({
                "target": self.uri(&Resource::Insert(tree, index)),
                "TransferProtocolType@Redfish.AllowableValues": protocols,
            }),
        );
        actions.insert(
            "#VirtualMedia.EjectMedia".to_owned(),
            json!({ "target": self.uri(&Resource::Eject(tree, index)) }),
        );
        body["Actions"] = Value::Object(actions);
        body
    }
}

fn tagged(body: Value, etag: &str) -> Reply {
    Reply::ok(&body).with(header::ETAG, etag)
}

fn rfc3339(start: jiff::Timestamp, since: std::time::Duration) -> String {
    // A clock beyond what a timestamp can say stays at its start; a twin does not live that long.
    start.checked_add(since).unwrap_or(start).to_string()
}
