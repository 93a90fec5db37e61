//! Resources as JSON: the responses to GET.
//!
//! ```text
//!   ServiceRoot ─┬─ SessionService ── Sessions ── Session
//!                ├─ Systems ─┬─ ComputerSystem ─┬─ Boot, PowerState, Actions.Reset, settings
//!                │           └─ others          └─ VirtualMedia (tree System)
//!                ├─ Managers ── Manager ─┴─ VirtualMedia (tree Manager) ── VirtualMedia     (slots.rs)
//!                ├─ Chassis
//!                └─ UpdateService ── FirmwareInventory
//! ```
//!
//! Reference: DSP0268; resource versions are in each `@odata.type`.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    config::{BootOem, Component, SerialShown, SimBmcConfig},
    etag,
    parts::Part,
    reply::Reply,
    routes::{self, Oem, Resource, Tree},
    state::State,
    types::{MediaKind, Power, ResetType},
};

/// The data from which resources are rendered.
pub(super) struct View<'a> {
    pub(super) config: &'a SimBmcConfig,
    pub(super) state: &'a State,
    /// The serial number to show; a fault can replace the real one.
    pub(super) serial: &'a str,
    /// The current time.
    pub(super) now: jiff::Timestamp,
    /// Time since the start of the simulated BMC.
    pub(super) at: Duration,
}

impl View<'_> {
    /// The response to a GET; `None` if the resource does not exist now.
    pub(super) fn show(&self, resource: &Resource, query: Option<&str>) -> Option<Reply> {
        if let Resource::TaskMonitor(id) = resource {
            return self.state.tasks.monitor(self.config, *id);
        }
        if let Resource::ExtraSystem(index) = resource
            && let Some(status) = self.config.service.extra_systems[*index].status_while_off
            && self.state.machine.power() == Power::Off
        {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Some(Reply::json(status, &json!({})));
        }
        if let Some((kind, name, members)) = self.members(resource) {
            let reply = Reply::ok(&self.collection(resource, kind, name, &members, query));
            return Some(match resource {
                Resource::UpdatePush => {
                    reply.with(http::header::ETAG, &etag::opaque("f", self.state.updates.images))
                }
                _ => reply,
            });
        }
        let body = self.body(resource)?;
        let opaque = self.opaque(resource);
        let reply = Reply::ok(&body);
        Some(match opaque {
            Some(opaque) => {
                let allow: Vec<&str> =
                    resource.methods(self.config).iter().map(http::Method::as_str).collect();
                etag::tag(self.config.etag, reply, &opaque).with(http::header::ALLOW, &allow.join(", "))
            }
            None => reply,
        })
    }

    /// The body of a resource that is not a collection.
    fn body(&self, resource: &Resource) -> Option<Value> {
        let mut body = match resource {
            Resource::Versions => return Some(json!({ "v1": self.uri(&Resource::Root) })),
            Resource::Root => self.root(),
            Resource::SessionService => self.session_service(),
            Resource::Session(id) if self.state.sessions.has(*id) => self.session(*id),
            Resource::System => self.system(),
            Resource::ExtraSystem(index) => self.extra_system(*index),
            Resource::Settings => self.settings(),
            Resource::Bios => self.bios(),
            Resource::BiosSettings => self.bios_settings(),
            Resource::RegistryFile => self.registry_file(),
            Resource::RegistryDocument => self.registry_document(),
            Resource::ResetInfo => self.reset_info(),
            Resource::Manager => self.manager(),
            Resource::Slot(tree, index) => self.slot(*tree, *index),
            Resource::InsertInfo(..) => self.insert_info(),
            Resource::Chassis => self.chassis(),
            Resource::Part(part) => self.part(*part)?,
            Resource::UpdateService => self.update_service(),
            Resource::FirmwareNamed(id) => self.firmware_named(id)?,
            Resource::UpdateSimpleInfo => self.simple_update_info(),
            Resource::TaskService => self.task_service(),
            Resource::Task(id) => self.state.tasks.show(self.config, *id)?,
            Resource::Oem(Oem::CfgCd) => self.cfg_cd(),
            Resource::Oem(Oem::Attributes) => self.attributes(),
            _ => return None,
        };
        body["@odata.id"] = json!(match (resource, body["Id"].as_str()) {
            // A vendor that ignores the case of paths shows the id as it is.
            (Resource::FirmwareNamed(_), Some(id)) => self.uri(&Resource::FirmwareNamed(id.to_owned())),
            _ => self.uri(resource),
        });
        if let Some(tag) = self.opaque(resource).and_then(|opaque| etag::given(self.config.etag, &opaque)) {
            body["@odata.etag"] = json!(tag);
        }
        Some(body)
    }

    fn opaque(&self, resource: &Resource) -> Option<String> {
        match resource {
            Resource::System => Some(self.state.system_etag()),
            Resource::Settings => Some(self.state.settings_etag()),
            Resource::Bios | Resource::BiosSettings => Some(self.state.bios.etag()),
            Resource::Slot(_, index) => Some(self.state.slot_etag(*index)),
            _ => None,
        }
    }

    // === Collections ===

    fn members(&self, resource: &Resource) -> Option<(&'static str, &'static str, Vec<Resource>)> {
        let service = &self.config.service;
        Some(match resource {
            Resource::Sessions => {
                let all = self.state.sessions.ids().map(Resource::Session).collect();
                ("SessionCollection", "Session Collection", all)
            }
            Resource::Systems => {
                let others = |first: bool| {
                    let others = service.extra_systems.iter().enumerate();
                    others
                        .filter(move |(_, other)| other.first == first)
                        .map(|(index, _)| Resource::ExtraSystem(index))
                };
                let all = others(true).chain([Resource::System]).chain(others(false)).collect();
                ("ComputerSystemCollection", "Computer System Collection", all)
            }
            Resource::Managers => ("ManagerCollection", "Manager Collection", vec![Resource::Manager]),
            Resource::Registries => {
                ("MessageRegistryFileCollection", "Registry File Collection", vec![Resource::RegistryFile])
            }
            Resource::Slots(tree) => {
                let there = 0..self.state.slots_there(self.config, self.at);
                let all = there.map(|index| Resource::Slot(*tree, index)).collect();
                ("VirtualMediaCollection", "Virtual Media Services", all)
            }
            Resource::ChassisAll => ("ChassisCollection", "Chassis Collection", vec![Resource::Chassis]),
            Resource::Part(part) => return self.parts(*part),
            Resource::Firmware => {
                ("SoftwareInventoryCollection", "Firmware Inventory", self.firmware_members())
            }
            // A GET of the inventory where uploads go to it.
            Resource::UpdatePush => {
                ("SoftwareInventoryCollection", "Firmware Inventory", self.firmware_members())
            }
            Resource::Tasks => {
                ("TaskCollection", "Task Collection", self.state.tasks.ids().map(Resource::Task).collect())
            }
            _ => return None,
        })
    }

    fn collection(
        &self,
        resource: &Resource,
        kind: &str,
        name: &str,
        members: &[Resource],
        query: Option<&str>,
    ) -> Value {
        let asked = |name: &str| {
            let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name || *key == name.replace('$', "%24")).map(|(_, value)| value)
        };
        let skip = asked("$skip").and_then(|skip| skip.parse().ok()).unwrap_or(0_usize);
        let size = self.config.service.page.unwrap_or(usize::MAX).max(1);
        let expand = asked("$expand").is_some();
        let shown = members.iter().skip(skip).take(size).map(|member| {
            let expanded = expand.then(|| self.body(member)).flatten();
            expanded.unwrap_or_else(|| self.link(member))
        });
        let mut body = json!({
            "@odata.id": self.uri(resource),
            "@odata.type": format!("#{kind}.{kind}"),
            "Name": name,
            "Members@odata.count": members.len(),
            "Members": shown.collect::<Vec<Value>>(),
        });
        let next = skip.saturating_add(size);
        if next < members.len() {
            body["Members@odata.nextLink"] = json!(format!("{}?$skip={next}", self.uri(resource)));
        }
        if let Resource::Slots(tree) = resource {
            self.add_oem_to_slots(&mut body, *tree);
        }
        body
    }

    pub(super) fn uri(&self, resource: &Resource) -> String {
        routes::uri(self.config, resource)
    }

    pub(super) fn link(&self, resource: &Resource) -> Value {
        json!({ "@odata.id": self.uri(resource) })
    }

    // === The service ===

    fn root(&self) -> Value {
        let (identity, service) = (&self.config.identity, &self.config.service);
        let expand = service.expand;
        let mut body = json!({
            "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
            "Id": "RootService",
            "Name": "Root Service",
            "RedfishVersion": identity.redfish_version,
            "UUID": identity.uuid,
            "ProtocolFeaturesSupported": {
                "ExpandQuery": {
                    "ExpandAll": expand, "Levels": expand, "MaxLevels": 1, "Links": false, "NoLinks": expand,
                },
                "FilterQuery": false,
                "SelectQuery": false,
                "OnlyMemberQuery": false,
                "ExcerptQuery": false,
            },
            "Systems": self.link(&Resource::Systems),
            "Managers": self.link(&Resource::Managers),
            "Links": {},
        });
        for (key, value) in [("Vendor", &identity.vendor), ("Product", &identity.product)] {
            if !value.is_empty() {
                body[key] = json!(value);
            }
        }
        if !identity.oem.is_empty() {
            body["Oem"] = json!({ &identity.oem: {} });
        }
        if self.config.session.offered {
            body["SessionService"] = self.link(&Resource::SessionService);
            body["Links"] = json!({ "Sessions": self.link(&Resource::Sessions) });
        }
        if service.chassis {
            body["Chassis"] = self.link(&Resource::ChassisAll);
        }
        if !service.firmware.is_empty() {
            body["UpdateService"] = self.link(&Resource::UpdateService);
        }
        if self.config.bios.registry.is_some() {
            body["Registries"] = self.link(&Resource::Registries);
        }
        if self.config.update.takes_images() {
            body["Tasks"] = self.link(&Resource::TaskService);
        }
        body
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

    /// A session; also the response to the login that opened it.
    pub(super) fn session(&self, id: u64) -> Value {
        json!({
            "@odata.id": self.uri(&Resource::Session(id)),
            "@odata.type": "#Session.v1_7_0.Session",
            "Id": id.to_string(),
            "Name": "User Session",
            "UserName": self.config.username,
        })
    }

    fn chassis(&self) -> Value {
        let identity = &self.config.identity;
        let mut body = json!({
            "@odata.type": "#Chassis.v1_23_0.Chassis",
            "Id": identity.system_id,
            "Name": "Chassis",
            "ChassisType": "RackMount",
            "Manufacturer": identity.manufacturer,
            "Model": identity.model,
            "Links": {
                "ComputerSystems": [self.link(&Resource::System)],
                "ManagedBy": [self.link(&Resource::Manager)],
            },
        });
        body["PowerSubsystem"] = self.link(&Resource::Part(Part::PowerSubsystem));
        if identity.serial == SerialShown::Chassis {
            body["SerialNumber"] = json!(self.serial);
        }
        body
    }

    // === The systems ===

    fn system(&self) -> Value {
        let (config, state) = (self.config, self.state);
        let identity = &config.identity;
        let power = state.shown_power(config, self.at);
        let mut body = json!({
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": identity.system_id,
            "Name": "System",
            "SystemType": "Physical",
            "Manufacturer": identity.manufacturer,
            "Model": identity.model,
            "UUID": identity.uuid,
            "BiosVersion": self.version_of(Component::Bios, &identity.bios_version),
            "PowerState": power.as_str(),
            "Status": { "State": if power == Power::Off { "Disabled" } else { "Enabled" }, "Health": "OK" },
            "BootProgress": { "LastState": self.boot_progress(power) },
            "Boot": self.boot(false),
            "Links": { "ManagedBy": [self.link(&Resource::Manager)], "Chassis": [] },
            "Actions": { "#ComputerSystem.Reset": { "target": self.uri(&Resource::Reset) } },
        });
        let reset = &mut body["Actions"]["#ComputerSystem.Reset"];
        if config.power.action_info {
            reset["@Redfish.ActionInfo"] = json!(self.uri(&Resource::ResetInfo));
        } else {
            reset["ResetType@Redfish.AllowableValues"] = json!(self.reset_types());
        }
        match identity.serial {
            SerialShown::SerialNumber => body["SerialNumber"] = json!(self.serial),
            SerialShown::Sku => {
                body["SerialNumber"] = json!(format!("CN{}0A1B", self.serial));
                body["SKU"] = json!(self.serial);
            }
            SerialShown::Chassis | SerialShown::Nowhere => {}
        }
        if let Some(sku) = &config.sku {
            body["SKU"] = json!(sku);
        }
        if let Some(last) = state.last_reset {
            body["LastResetTime"] = json!(rfc3339(config.started_at, last));
        }
        if config.boot.settings.is_some() {
            body["@Redfish.Settings"] = json!({
                "@odata.type": "#Settings.v1_3_5.Settings",
                "SettingsObject": self.link(&Resource::Settings),
            });
        }
        if config.service.chassis {
            body["Links"]["Chassis"] = json!([self.link(&Resource::Chassis)]);
        }
        if config.bios.is_shown() {
            body["Bios"] = self.link(&Resource::Bios);
        }
        self.link_slots(&mut body, Tree::System);
        self.link_hardware(&mut body);
        body
    }

    fn boot(&self, pending: bool) -> Value {
        let (policy, boot) = (&self.config.boot, &self.state.boot);
        let mut body = json!({
            "BootSourceOverrideEnabled": boot.enabled.as_str(),
            "BootSourceOverrideTarget": boot.target,
        });
        if !policy.modes.is_empty() {
            body["BootSourceOverrideMode"] = json!(boot.mode);
        }
        if policy.shows_allowable {
            body["BootSourceOverrideEnabled@Redfish.AllowableValues"] = json!(policy.enabled);
            body["BootSourceOverrideTarget@Redfish.AllowableValues"] = json!(policy.targets);
            if !policy.modes.is_empty() {
                body["BootSourceOverrideMode@Redfish.AllowableValues"] = json!(policy.modes);
            }
        }
        if !self.config.bios.boot_order.is_empty() {
            body["BootOrder"] = json!(self.state.bios.order(pending));
        }
        body
    }

    fn settings(&self) -> Value {
        json!({
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": self.config.boot.settings.as_ref().map(|settings| &settings.id),
            "Name": "System Settings",
            "Boot": self.boot(true),
        })
    }

    fn extra_system(&self, index: usize) -> Value {
        let system = &self.config.service.extra_systems[index];
        let mut body = json!({
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": system.id,
            "Name": system.id,
            "SystemType": "Physical",
            "Manufacturer": self.config.identity.manufacturer,
            "PowerState": "On",
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": { "ManagedBy": [self.link(&Resource::Manager)], "Chassis": [] },
        });
        if system.boot {
            body["Boot"] = json!({ "BootOptions": { "@odata.id": format!("{}/BootOptions", self.uri(&Resource::ExtraSystem(index))) } });
        }
        body
    }

    fn reset_types(&self) -> Vec<ResetType> {
        let policy = &self.config.power;
        policy.reset_types.iter().chain(&policy.not_implemented).copied().collect()
    }

    fn reset_info(&self) -> Value {
        json!({
            "@odata.type": "#ActionInfo.v1_3_0.ActionInfo",
            "Id": "ResetActionInfo",
            "Name": "Reset Action Info",
            "Parameters": [{
                "Name": "ResetType",
                "Required": true,
                "DataType": "String",
                "AllowableValues": self.reset_types(),
            }],
        })
    }

    fn boot_progress(&self, power: Power) -> &'static str {
        match power {
            Power::Off | Power::PoweringOff => "None",
            Power::PoweringOn => "SystemHardwareInitializationComplete",
            Power::On => "OSBootStarted",
        }
    }

    // === The manager ===

    fn manager(&self) -> Value {
        let identity = &self.config.identity;
        let mut systems = vec![self.link(&Resource::System)];
        systems.extend(
            (0..self.config.service.extra_systems.len()).map(|n| self.link(&Resource::ExtraSystem(n))),
        );
        let mut body = json!({
            "@odata.type": "#Manager.v1_19_0.Manager",
            "Id": identity.manager_id,
            "Name": "Manager",
            "ManagerType": "BMC",
            "Model": identity.manager_model,
            "FirmwareVersion": self.version_of(Component::Bmc, &identity.firmware_version),
            "DateTime": self.now.to_string(),
            "DateTimeLocalOffset": "+00:00",
            "PowerState": "On",
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": {
                "ManagerForServers@odata.count": systems.len(),
                "ManagerForServers": systems,
            },
        });
        let policy = &self.config.manager;
        if !policy.reset_types.is_empty() {
            body["Actions"]["#Manager.Reset"] = json!({
                "target": self.uri(&Resource::ManagerReset),
                "ResetType@Redfish.AllowableValues": policy.reset_types,
            });
        }
        if policy.shows_last_reset {
            body["LastResetTime"] = json!(self.manager_reset());
        }
        self.link_slots(&mut body, Tree::Manager);
        let mut oem = Vec::new();
        if self.config.media.enable.is_some() {
            oem.push(("#AMIVirtualMedia.EnableRMedia", Oem::EnableMedia));
            oem.push(("#AMIVirtualMedia.ConfigureCDInstance", Oem::ConfigureCds));
        }
        if self.config.boot.oem == Some(BootOem::DellServerBoot) {
            oem.push(("#OemManager.ImportSystemConfiguration", Oem::ImportProfile));
        }
        if routes::shows_attributes(self.config) {
            body["Links"]["Oem"] = json!({
                "Dell": { "DellAttributes": [self.link(&Resource::Oem(Oem::Attributes))] }
            });
        }
        for (name, action) in oem {
            body["Actions"]["Oem"][name] = json!({ "target": self.uri(&Resource::Oem(action)) });
        }
        body
    }

    fn link_slots(&self, body: &mut Value, tree: Tree) {
        if routes::shows_slots(self.config, tree) {
            body["VirtualMedia"] = self.link(&Resource::Slots(tree));
        } else if tree == Tree::Manager && self.config.service.manager_links_system_slots {
            body["VirtualMedia"] = self.link(&Resource::Slots(Tree::System));
        }
    }

    /// The last restart of the BMC, as this BMC knows it.
    fn manager_reset(&self) -> String {
        let started = self.config.started_at;
        let an_hour_before = started.checked_sub(Duration::from_secs(3600)).unwrap_or(started);
        let at =
            self.state.manager_reset.map_or(an_hour_before, |at| started.checked_add(at).unwrap_or(started));
        let moves = self.config.manager.last_reset_moves.as_secs();
        let moved = Duration::from_secs(self.state.counters.requests % (moves + 1));
        at.checked_add(moved).unwrap_or(at).to_string()
    }

    fn attributes(&self) -> Value {
        let device = match self.state.next_boot {
            Some(super::state::NextBoot::First(MediaKind::Cd)) => "VCD-DVD",
            Some(super::state::NextBoot::First(MediaKind::Usb)) => "vFDD",
            _ => "Normal",
        };
        json!({
            "@odata.type": "#DellAttributes.v1_0_0.DellAttributes",
            "Id": "iDRACAttributes",
            "Name": "OEMAttributeRegistry",
            "Attributes": {
                "ServerBoot.1.BootOnce": if device == "Normal" { "Disabled" } else { "Enabled" },
                "ServerBoot.1.FirstBootDevice": device,
                "VirtualMedia.1.Attached": self.config.media.attached.as_deref().unwrap_or("AutoAttach"),
            },
        })
    }
}

fn rfc3339(start: jiff::Timestamp, since: Duration) -> String {
    // On overflow the start is shown; no simulated BMC runs that long.
    start.checked_add(since).unwrap_or(start).to_string()
}
