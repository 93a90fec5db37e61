//! Test helpers: a BMC of a vendor that receives single requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use lab_bmc::{
    ConnectionCut, MediaReader, MediaRefusal, MediaRequest, MediaResponse, NullHost, SimBmc, SimBmcConfig,
    SimBmcSnapshot,
};
use serde_json::{Value, json};

pub(crate) const SERIAL: &str = "7CK4LW3";
pub(crate) const USER: &str = "root";
pub(crate) const PASSWORD: &str = "canary-secret";
/// A URL that every vendor with HTTP accepts.
pub(crate) const IMAGE: &str = "http://192.0.2.1/tabc/boot.iso";

/// One image in memory, served for every URL.
pub(crate) struct Memory(Bytes);

impl Memory {
    pub(crate) fn of(image: Vec<u8>) -> Arc<Self> {
        Arc::new(Self(image.into()))
    }

    /// A bootable ISO 9660 image of 300 sectors that is also a disk with a boot signature.
    pub(crate) fn bootable() -> Arc<Self> {
        let mut image = vec![0_u8; 300 * 2048];
        image[510..512].copy_from_slice(&[0x55, 0xAA]);
        for (sector, kind) in [(16, 1), (17, 0), (18, 255)] {
            image[sector * 2048] = kind;
            image[sector * 2048 + 1..sector * 2048 + 7].copy_from_slice(b"CD001\x01");
        }
        image[17 * 2048 + 7..][..23].copy_from_slice(b"EL TORITO SPECIFICATION");
        Arc::new(Self(image.into()))
    }
}

#[async_trait]
impl MediaReader for Memory {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        let total = self.0.len();
        let (first, last) = request.range.map_or((0, total - 1), |(first, last)| {
            (usize::try_from(first).unwrap(), usize::try_from(last).unwrap().min(total - 1))
        });
        let body = self.0.slice(first..=last);
        Ok(MediaResponse {
            status: if request.range.is_some() { 206 } else { 200 },
            length: Some(if request.head { total } else { body.len() } as u64),
            content_range: request.range.map(|_| format!("bytes {first}-{last}/{total}")),
            encoded: false,
            body: if request.head { Bytes::new() } else { body.slice(..body.len().min(request.keep)) },
        })
    }
}

pub(crate) fn config(vendor: &str) -> SimBmcConfig {
    SimBmcConfig::vendor(vendor, SERIAL, USER, PASSWORD).unwrap()
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: Bytes,
}

impl Answer {
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.body
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("{pointer}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the body contains a word.
    pub(crate) fn says(&self, word: &str) -> bool {
        String::from_utf8_lossy(&self.text).contains(word)
    }
}

/// A simulated BMC and the paths found in it.
pub(crate) struct Bmc {
    pub(crate) sim_bmc: SimBmc,
    pub(crate) root: Answer,
    pub(crate) system: String,
    pub(crate) manager: String,
    pub(crate) reset: String,
}

impl Bmc {
    pub(crate) async fn of(vendor: &str) -> Self {
        Self::with(config(vendor)).await
    }

    pub(crate) async fn with(config: SimBmcConfig) -> Self {
        let system_id = config.identity.system_id.clone();
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), Memory::bootable());
        let mut bmc = Self {
            root: ask(&sim_bmc, Method::GET, "/redfish/v1/", None, &[]).await.unwrap(),
            sim_bmc,
            system: String::new(),
            manager: String::new(),
            reset: String::new(),
        };
        let systems = bmc.get(bmc.root.text("/Systems/@odata.id")).await;
        let members = systems.body["Members"].as_array().unwrap().iter();
        let mut links = members.map(|member| member["@odata.id"].as_str().unwrap());
        let ours = links.find(|link| link.trim_end_matches('/').ends_with(&system_id)).unwrap();
        let system = bmc.get(ours).await;
        bmc.system = ours.to_owned();
        bmc.manager = system.text("/Links/ManagedBy/0/@odata.id").to_owned();
        bmc.reset = system.text("/Actions/#ComputerSystem.Reset/target").to_owned();
        bmc
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        ask(&self.sim_bmc, Method::GET, path, None, &[]).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        ask(&self.sim_bmc, Method::POST, path, Some(body), &[]).await.unwrap()
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        ask(&self.sim_bmc, Method::PATCH, path, Some(body), &[]).await.unwrap()
    }

    pub(crate) async fn patch_if(&self, path: &str, tag: &str, body: Value) -> Answer {
        ask(&self.sim_bmc, Method::PATCH, path, Some(body), &[("if-match", tag)]).await.unwrap()
    }

    /// The paths of the slots, as the system or else the manager links to them.
    pub(crate) async fn slots(&self) -> Vec<String> {
        let (system, manager) = (self.get(&self.system).await, self.get(&self.manager).await);
        let parent = if system.body.get("VirtualMedia").is_some() { system } else { manager };
        let slots = self.get(parent.text("/VirtualMedia/@odata.id")).await;
        let members = slots.body["Members"].as_array().unwrap().iter();
        members.map(|member| member["@odata.id"].as_str().unwrap().to_owned()).collect()
    }

    /// Inserts by the standard action.
    pub(crate) async fn insert(&self, slot: &str, body: Value) -> Answer {
        let target = self.get(slot).await.text("/Actions/#VirtualMedia.InsertMedia/target").to_owned();
        self.post(&target, body).await
    }

    /// Ejects by the standard action, with a body.
    pub(crate) async fn eject(&self, slot: &str) -> Answer {
        let target = self.get(slot).await.text("/Actions/#VirtualMedia.EjectMedia/target").to_owned();
        self.post(&target, json!({})).await
    }

    pub(crate) async fn boot(&self) -> Value {
        self.get(&self.system).await.body["Boot"].clone()
    }

    pub(crate) async fn power(&self, kind: &str) -> Answer {
        self.post(&self.reset, json!({ "ResetType": kind })).await
    }

    /// Waits in virtual time.
    pub(crate) async fn until(&self, wanted: impl FnMut(&SimBmcSnapshot) -> bool) -> SimBmcSnapshot {
        tokio::time::timeout(Duration::from_secs(600), self.sim_bmc.wait_for(wanted)).await.expect("in time")
    }

    /// Powers the host on and returns whether it booted from a medium.
    pub(crate) async fn boots_from_media(&self) -> bool {
        let before = self.sim_bmc.snapshot();
        assert!(self.power("On").await.status < 300);
        let after = self.until(|now| now.generation > before.generation).await;
        after.boots_from_media > before.boots_from_media
    }
}

/// A PATCH body with target, `Once`, and the mode if there is one.
pub(crate) fn once(target: &str, mode: Option<&str>) -> Value {
    let mut boot = json!({ "BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": "Once" });
    if let Some(mode) = mode {
        boot["BootSourceOverrideMode"] = json!(mode);
    }
    json!({ "Boot": boot })
}

pub(crate) async fn ask(
    sim_bmc: &SimBmc,
    method: Method,
    path: &str,
    body: Option<Value>,
    headers: &[(&'static str, &str)],
) -> Result<Answer, ConnectionCut> {
    let account = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    let mut request = Request::builder().method(method).uri(path).header(header::AUTHORIZATION, account);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let response = sim_bmc.handle(request.body(body).unwrap()).await?;
    let (parts, text) = response.into_parts();
    let body = serde_json::from_slice(&text).unwrap_or_default();
    Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body, text })
}
