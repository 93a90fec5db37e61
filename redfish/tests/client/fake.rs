//! A scripted BMC as a transport: resources, scripted replies, and a journal of the requests.
//!
//! A GET returns a resource. A scripted reply for a method and path takes precedence; each is used once, in order. A
//! reply may change resources. Any other request gets 404 or 405.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use redfish::{
    Bmc, BmcBuilder, BmcCredentials, ClientOptions, Profile, Request, Response, Transport, TransportError,
    TransportErrorKind,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub(crate) const PASSWORD: &str = "canary-secret";
pub(crate) const TOKEN: &str = "canary-token";
pub(crate) const URL: &str = "http://10.0.0.1/tcanary0grant0abcdef/boot.iso";

pub(crate) const ROOT: &str = "/redfish/v1/";
pub(crate) const SYSTEMS: &str = "/redfish/v1/Systems";
pub(crate) const SYSTEM: &str = "/redfish/v1/Systems/1";
pub(crate) const RESET: &str = "/redfish/v1/Systems/1/Actions/Reset";
pub(crate) const MANAGER: &str = "/redfish/v1/Managers/1";
pub(crate) const MEDIA: &str = "/redfish/v1/Managers/1/Media";
pub(crate) const SLOT: &str = "/redfish/v1/Managers/1/Media/CD1";
pub(crate) const INSERT: &str = "/redfish/v1/Managers/1/Media/CD1/Insert";
pub(crate) const EJECT: &str = "/redfish/v1/Managers/1/Media/CD1/Eject";
pub(crate) const SESSIONS: &str = "/redfish/v1/Sessions";

/// One scripted response.
#[derive(Clone)]
pub(crate) struct Reply {
    result: Result<(u16, Vec<u8>), TransportError>,
    headers: Vec<(&'static str, String)>,
    effects: Vec<(String, Value)>,
    hang: Option<Duration>,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Reply { result: Ok((status, Vec::new())), headers: Vec::new(), effects: Vec::new(), hang: None }
    }

    pub(crate) fn json(status: u16, body: Value) -> Self {
        Reply::text(status, &body.to_string())
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Reply { result: Ok((status, body.as_bytes().to_vec())), ..Reply::status(status) }
    }

    /// A refusal with one message, in the form of the specification.
    pub(crate) fn error(status: u16, id: &str, message: &str) -> Self {
        let info = json!([{ "MessageId": id, "Message": message, "MessageSeverity": "Critical" }]);
        Reply::json(
            status,
            json!({ "error": { "code": "Base.1.0.GeneralError", "@Message.ExtendedInfo": info } }),
        )
    }

    pub(crate) fn fails(error: TransportError) -> Self {
        Reply { result: Err(error), ..Reply::status(0) }
    }

    pub(crate) fn times_out() -> Self {
        Reply::fails(TransportError::maybe_sent(TransportErrorKind::Timeout, "scripted"))
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Merges members into a resource when the reply is sent.
    pub(crate) fn effect(mut self, path: &str, members: Value) -> Self {
        self.effects.push((path.to_owned(), members));
        self
    }

    /// Sends the reply after this time.
    pub(crate) fn after(mut self, time: Duration) -> Self {
        self.hang = Some(time);
        self
    }
}

/// A request as it was sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Value>,
}

impl Sent {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

#[derive(Default)]
struct State {
    resources: BTreeMap<String, Value>,
    scripted: Vec<(Method, String, VecDeque<Reply>)>,
    journal: Vec<Sent>,
    logins: usize,
    in_flight: usize,
    mutating: usize,
    max_in_flight: usize,
    max_mutating: usize,
}

/// The scripted BMC.
pub(crate) struct Fake {
    state: Mutex<State>,
    /// Every request takes a permit; tests that delay requests start without permits.
    pub(crate) gate: Semaphore,
}

impl Fake {
    /// A BMC with one system, one manager and one CD slot, all by the specification.
    pub(crate) fn new() -> Arc<Self> {
        let fake = Fake { state: Mutex::default(), gate: Semaphore::new(Semaphore::MAX_PERMITS) };
        for (path, value) in resources() {
            fake.put(path, value);
        }
        Arc::new(fake)
    }

    pub(crate) fn put(&self, path: &str, value: Value) {
        self.state.lock().unwrap().resources.insert(path.to_owned(), value);
    }

    /// Merges members into a resource; null removes one.
    pub(crate) fn merge(&self, path: &str, members: Value) {
        merge(self.state.lock().unwrap().resources.entry(path.to_owned()).or_insert(json!({})), members);
    }

    /// Replies to the next requests with this method and path.
    pub(crate) fn on(&self, method: Method, path: &str, replies: impl IntoIterator<Item = Reply>) {
        self.state.lock().unwrap().scripted.push((method, path.to_owned(), replies.into_iter().collect()));
    }

    pub(crate) fn journal(&self) -> Vec<Sent> {
        self.state.lock().unwrap().journal.clone()
    }

    /// The requests with this method and path.
    pub(crate) fn sent(&self, method: Method, path: &str) -> Vec<Sent> {
        self.journal().into_iter().filter(|sent| sent.method == method && sent.path == path).collect()
    }

    /// The requests other than reads and logins.
    pub(crate) fn mutations(&self) -> Vec<Sent> {
        let own = |sent: &Sent| sent.method != Method::GET && sent.path != SESSIONS;
        self.journal().into_iter().filter(own).collect()
    }

    /// Maximum numbers of requests and of mutations in flight.
    pub(crate) fn most_in_flight(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.max_in_flight, state.max_mutating)
    }

    fn reply_to(&self, request: &Request) -> Reply {
        let mut state = self.state.lock().unwrap();
        // An upload is kept as text.
        let body = request.body.as_ref().map(|body| {
            serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned().into())
        });
        let (method, path) = (request.method.clone(), request.path.clone());
        state.journal.push(Sent {
            method: method.clone(),
            path: path.clone(),
            headers: request.headers.clone(),
            body,
        });
        let scripted = state
            .scripted
            .iter_mut()
            .find(|(on, at, replies)| *on == method && *at == path && !replies.is_empty())
            .and_then(|(_, _, replies)| replies.pop_front());
        if let Some(reply) = scripted {
            for (path, members) in reply.effects.clone() {
                merge(state.resources.entry(path).or_insert(json!({})), members);
            }
            return reply;
        }
        match (method.as_str(), path.as_str()) {
            ("GET", _) => match state.resources.get(&path) {
                Some(value) => Reply::json(200, value.clone()),
                None => Reply::error(404, "Base.1.0.ResourceMissingAtURI", "no such resource"),
            },
            ("POST", SESSIONS) => {
                state.logins += 1;
                let token = format!("{TOKEN}-{}", state.logins);
                let uri = format!("https://bmc.example{SESSIONS}/{}", state.logins);
                Reply::status(201).header("x-auth-token", &token).header("location", &uri)
            }
            ("DELETE", _) => Reply::status(204),
            _ => Reply::status(405),
        }
    }
}

#[async_trait]
impl Transport for Fake {
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        let mutates = request.method != Method::GET;
        {
            let mut state = self.state.lock().unwrap();
            state.in_flight += 1;
            state.mutating += usize::from(mutates);
            state.max_in_flight = state.max_in_flight.max(state.in_flight);
            state.max_mutating = state.max_mutating.max(state.mutating);
        }
        let reply = self.reply_to(&request);
        let _permit = self.gate.acquire().await.unwrap();
        let wait = reply.hang.unwrap_or_default();
        tokio::time::sleep(wait.min(deadline)).await;
        let mut state = self.state.lock().unwrap();
        state.in_flight -= 1;
        state.mutating -= usize::from(mutates);
        if wait > deadline {
            return Err(TransportError::maybe_sent(TransportErrorKind::Timeout, "scripted"));
        }
        let (status, body) = reply.result?;
        let headers =
            reply.headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Ok(Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: Bytes::from(body),
        })
    }
}

fn merge(value: &mut Value, members: Value) {
    let (Some(value), Value::Object(members)) = (value.as_object_mut(), members) else {
        panic!("objects only")
    };
    for (name, member) in members {
        match member {
            Value::Object(_) if value.get(&name).is_some_and(Value::is_object) => {
                merge(&mut value[&name], member)
            }
            member => {
                value.insert(name, member);
            }
        }
    }
}

fn resources() -> Vec<(&'static str, Value)> {
    let link = |path: &str| json!({ "@odata.id": path });
    vec![
        (
            ROOT,
            json!({
                "RedfishVersion": "1.11.0", "Vendor": "Contoso", "Product": "BMC",
                "Systems": link(SYSTEMS), "Managers": link("/redfish/v1/Managers"),
                "Links": { "Sessions": link(SESSIONS) },
            }),
        ),
        (SYSTEMS, json!({ "Members": [link(SYSTEM)] })),
        (
            SYSTEM,
            json!({
                "Id": "1", "Manufacturer": "Contoso", "Model": "M1", "SerialNumber": "SER1", "SKU": "TAG1",
                "PowerState": "Off", "Links": { "ManagedBy": [link(MANAGER)] },
                "Actions": { "#ComputerSystem.Reset": {
                    "target": RESET,
                    "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"],
                }},
                "Boot": {
                    "BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled",
                    "BootSourceOverrideMode": "UEFI",
                    "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Cd", "Hdd"],
                },
            }),
        ),
        ("/redfish/v1/Managers", json!({ "Members": [link(MANAGER)] })),
        (MANAGER, json!({ "FirmwareVersion": "7.1", "VirtualMedia": link(MEDIA) })),
        (MEDIA, json!({ "Members": [link(SLOT)] })),
        (
            SLOT,
            json!({
                "Id": "CD1", "Name": "Virtual CD", "MediaTypes": ["CD", "DVD"], "Inserted": false, "Image": null,
                "ConnectedVia": "NotConnected",
                "Actions": {
                    "#VirtualMedia.InsertMedia": { "target": INSERT }, "#VirtualMedia.EjectMedia": { "target": EJECT },
                },
            }),
        ),
    ]
}

/// The members of a slot that holds the image.
pub(crate) fn inserted() -> Value {
    json!({ "Inserted": true, "Image": URL, "ConnectedVia": "URI" })
}

pub(crate) fn builder(fake: &Arc<Fake>, profile: Profile) -> BmcBuilder {
    let credentials = BmcCredentials::new("admin", PASSWORD.to_owned());
    let options = ClientOptions { jitter_seed: Some(1), ..ClientOptions::default() };
    Bmc::builder("https://bmc.example".parse().unwrap(), credentials, fake.clone(), profile).options(options)
}

/// A client of the scripted BMC with the generic profile.
pub(crate) fn client(fake: &Arc<Fake>) -> Bmc {
    builder(fake, Profile::generic()).build()
}
