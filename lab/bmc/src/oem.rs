//! OEM requests of vendors: enabling slots, inserting media, choosing the boot device.
//!
//! ```text
//!   AMI         EnableRMedia {"RMediaState":"Enable"} ──► slots after some time;  ConfigureCDInstance {"CDInstance":n}
//!   HPE         {Hpi,Hpei}LOVirtualMedia.InsertVirtualMedia {"Image"}, .EjectVirtualMedia {}
//!               PATCH slot {"Oem":{"Hpe":{"BootOnNextServerReset":true}}}
//!   Supermicro  PATCH CfgCD {"Host","Path","Username","Password"} ──► IsoConfig.Mount {} ──► first slot
//!   Huawei      VmmControl {"VmmControlType":"Connect","Image"} | {"VmmControlType":"Disconnect"}
//!   Dell        ImportSystemConfiguration {"ImportBuffer","ShareParameters"}, PATCH Attributes ──► next boot
//! ```

use http::StatusCode;
use serde_json::{Map, Value};

use super::{
    actions::object,
    call::Call,
    config::Success,
    journal::StateChange,
    reply::{ErrorReply, Reply},
    routes::{Oem, Resource, Tree},
    sim_bmc::SimBmc,
    state::NextBoot,
    types::MediaKind,
};

impl SimBmc {
    pub(super) async fn oem(&self, call: &Call, oem: Oem) -> Result<Reply, ErrorReply> {
        let responses = self.inner.config.responses;
        match oem {
            Oem::EnableMedia => self.enable_media(call),
            Oem::ConfigureCds => self.configure_cds(call),
            Oem::HpInsert(tree, index) => {
                let body = required(call, "Image")?;
                only(body, &["Image"])?;
                let url = self.take_url(text(body, "Image")?, index, "Image")?;
                self.insert_url(tree, index, url, responses.insert).await
            }
            Oem::HpEject(tree, index) => {
                object(call)?;
                self.eject_slot(tree, index, responses.eject)
            }
            Oem::CfgCd => self.patch_cfg_cd(call),
            Oem::CfgCdMount => self.mount_cfg_cd(responses.insert).await,
            Oem::CfgCdUnmount => self.eject_slot(Tree::Manager, 0, responses.eject),
            Oem::Vmm(tree, index) => self.vmm_control(call, tree, index).await,
            Oem::Attributes => self.patch_attributes(call),
            Oem::ImportProfile => self.import_profile(call),
        }
    }

    // === AMI ===

    fn enable_media(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = required(call, "RMediaState")?;
        let at = self.elapsed();
        let mut state = self.state();
        match text(body, "RMediaState")? {
            "Enable" => state.enabled = Some(state.enabled.unwrap_or(at)),
            "Disable" => state.enabled = None,
            other => return Err(ErrorReply::parameter_not_in_list("EnableRMedia", "RMediaState", other)),
        }
        drop(state);
        if let Some(enable) = &self.inner.config.media.enable {
            self.notify_after(enable.settle);
        }
        Ok(self.done("Enable media", self.inner.config.responses.patch, &Resource::Manager))
    }

    fn configure_cds(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = required(call, "CDInstance")?;
        let wanted = body.get("CDInstance").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let most = self.inner.config.slots.len();
        let wanted = wanted
            .filter(|wanted| *wanted <= most)
            .ok_or_else(|| ErrorReply::parameter_type("ConfigureCDInstance", "CDInstance"))?;
        let at = self.elapsed();
        let mut state = self.state();
        state.instances = wanted;
        // The slots disappear and come back.
        state.enabled = state.enabled.map(|_| at);
        drop(state);
        self.notify();
        Ok(self.done("Configure CDs", self.inner.config.responses.patch, &Resource::Manager))
    }

    // === HPE ===

    /// `Oem.Hpe.BootOnNextServerReset` of a slot.
    pub(super) fn boot_slot_next(
        &self,
        body: &Map<String, Value>,
        tree: Tree,
        index: usize,
    ) -> Result<Reply, ErrorReply> {
        let received = body.get("Oem").and_then(|oem| oem.pointer("/Hpe/BootOnNextServerReset"));
        let next = received.and_then(Value::as_bool).ok_or_else(|| ErrorReply::property_type("Oem/Hpe"))?;
        let mut state = self.state();
        state.next_boot = next.then_some(NextBoot::Slot(index));
        state.slots[index].revision += 1;
        drop(state);
        self.notify();
        Ok(self.done("Boot device", self.inner.config.responses.patch, &Resource::Slot(tree, index)))
    }

    // === Supermicro ===

    fn patch_cfg_cd(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = required(call, "Host")?;
        if let Some(name) =
            body.keys().find(|name| !matches!(name.as_str(), "Host" | "Path" | "Username" | "Password"))
        {
            return Err(ErrorReply::property_unknown(name));
        }
        let cfg = (text(body, "Host")?.to_owned(), text(body, "Path")?.to_owned());
        self.state().cfg_cd = cfg;
        self.notify();
        Ok(self.done("Configure CD", self.inner.config.responses.patch, &Resource::Oem(Oem::CfgCd)))
    }

    async fn mount_cfg_cd(&self, how: Success) -> Result<Reply, ErrorReply> {
        let (host, path) = self.state().cfg_cd.clone();
        let image = format!("{}/{}", host.trim_end_matches('/'), path.trim_start_matches('/'));
        let url = self.take_url(&image, 0, "Host")?;
        self.insert_url(Tree::Manager, 0, url, how).await
    }

    // === Huawei ===

    async fn vmm_control(&self, call: &Call, tree: Tree, index: usize) -> Result<Reply, ErrorReply> {
        let body = required(call, "VmmControlType")?;
        only(body, &["VmmControlType", "Image"])?;
        let responses = self.inner.config.responses;
        match text(body, "VmmControlType")? {
            "Connect" => {
                let url = self.take_url(text(body, "Image")?, index, "Image")?;
                if self.state().slots[index].medium.is_some() {
                    return Err(ErrorReply::new(
                        StatusCode::CONFLICT,
                        "iBMC.1.0.ConnectionOccupied",
                        "The virtual media connection is occupied.",
                    ));
                }
                self.insert_url(tree, index, url, responses.insert).await
            }
            "Disconnect" => self.eject_slot(tree, index, responses.eject),
            other => Err(ErrorReply::parameter_not_in_list("VmmControl", "VmmControlType", other)),
        }
    }

    // === Dell ===

    fn patch_attributes(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = required(call, "Attributes")?;
        let attributes = body
            .get("Attributes")
            .and_then(Value::as_object)
            .ok_or_else(|| ErrorReply::property_type("Attributes"))?;
        let mut device = None;
        for (name, value) in attributes {
            match (name.as_str(), value.as_str()) {
                ("ServerBoot.1.BootOnce", Some("Enabled" | "Disabled")) => {}
                ("ServerBoot.1.FirstBootDevice", Some(word)) => {
                    device =
                        Some(boot_device(word).ok_or_else(|| ErrorReply::property_not_in_list(name, word))?);
                }
                _ => return Err(ErrorReply::property_unknown(name)),
            }
        }
        if let Some(device) = device {
            self.choose_next(device);
        }
        Ok(self.done("Attributes", Success::Message, &Resource::Oem(Oem::Attributes)))
    }

    /// A server configuration profile; only its boot device is evaluated.
    fn import_profile(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = required(call, "ImportBuffer")?;
        let buffer = text(body, "ImportBuffer")?;
        let attribute = |name: &str| {
            let from = buffer.find(&format!("<Attribute Name=\"{name}\">"))?;
            buffer[from..].split('>').nth(1)?.split('<').next()
        };
        let device = attribute("ServerBoot.1#FirstBootDevice").and_then(boot_device);
        // The firmware refuses white space between two tags.
        let tight = !buffer.split('>').skip(1).any(|rest| {
            let gap = rest.split('<').next().unwrap_or_default();
            !gap.is_empty() && gap.trim().is_empty()
        });
        let once = attribute("ServerBoot.1#BootOnce") == Some("Enabled");
        let bmc = self.clone();
        Ok(self.begin_task("Import Configuration", Success::TaskLocation, async move {
            let Some(device) = device.filter(|_| tight && once) else {
                return Err(ErrorReply::new(
                    StatusCode::BAD_REQUEST,
                    "IDRAC.2.8.SYS045",
                    "Unable to parse the Server Configuration Profile.",
                ));
            };
            bmc.choose_next(device);
            Ok(())
        }))
    }

    fn choose_next(&self, device: Option<MediaKind>) {
        let at = self.elapsed();
        let mut state = self.state();
        state.next_boot = device.map(NextBoot::First);
        let target = match device {
            Some(MediaKind::Cd) => "VCD-DVD",
            Some(MediaKind::Usb) => "vFDD",
            None => "Normal",
        };
        state.changed(at, StateChange::BootOverride { target: target.to_owned(), enabled: "Once" });
        drop(state);
        self.notify();
    }
}

/// The value of `FirstBootDevice`: `None` if it is unknown, `Some(None)` for the usual boot order.
fn boot_device(word: &str) -> Option<Option<MediaKind>> {
    match word {
        "VCD-DVD" => Some(Some(MediaKind::Cd)),
        "VFDD" | "vFDD" => Some(Some(MediaKind::Usb)),
        "Normal" => Some(None),
        _ => None,
    }
}

/// The body of a request that must have this property.
fn required<'a>(call: &'a Call, name: &str) -> Result<&'a Map<String, Value>, ErrorReply> {
    let missing = || ErrorReply::property_missing(name);
    object(call)?.filter(|body| body.contains_key(name)).ok_or_else(missing)
}

fn only(body: &Map<String, Value>, known: &[&str]) -> Result<(), ErrorReply> {
    match body.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(ErrorReply::property_unknown(name)),
        None => Ok(()),
    }
}

fn text<'a>(body: &'a Map<String, Value>, name: &str) -> Result<&'a str, ErrorReply> {
    let value = body.get(name).ok_or_else(|| ErrorReply::property_missing(name))?;
    value.as_str().ok_or_else(|| ErrorReply::property_type(name))
}
