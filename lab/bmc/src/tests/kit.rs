//! Test helpers: a client that follows links, a media server with range support, a recording host.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, extract::Path, routing::get};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};

use crate::{BootContext, Host, HttpMediaReader, RequestKind, SimBmc, SimBmcConfig};

pub(super) const SERIAL: &str = "7CK4LW3";
pub(super) const USER: &str = "root";
pub(super) const PASSWORD: &str = "correct horse";

pub(super) fn config() -> SimBmcConfig {
    SimBmcConfig::new(SERIAL, USER, PASSWORD)
}

/// A host that sends each boot to the test.
pub(super) struct Recorder(mpsc::UnboundedSender<BootContext>, Arc<Mutex<u32>>);

impl Host for Recorder {
    fn power_on(&self, boot: BootContext) {
        // A test that does not use the boots has dropped the receiver.
        self.0.send(boot).ok();
    }

    fn power_off(&self, serial: &str) {
        assert_eq!(serial, SERIAL);
        *self.1.lock().unwrap() += 1;
    }
}

pub(super) struct Rig {
    pub(super) bmc: SimBmc,
    pub(super) boots: mpsc::UnboundedReceiver<BootContext>,
    pub(super) power_offs: Arc<Mutex<u32>>,
}

pub(super) fn rig(config: SimBmcConfig) -> Rig {
    let (sender, boots) = mpsc::unbounded_channel();
    let power_offs = Arc::new(Mutex::new(0));
    let host = Arc::new(Recorder(sender, Arc::clone(&power_offs)));
    Rig { bmc: SimBmc::new(config, host, Arc::new(HttpMediaReader::new().unwrap())), boots, power_offs }
}

/// A request with Basic credentials, in process.
pub(super) async fn ask(
    bmc: &SimBmc,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let response = send(bmc, request(method, path, body)).await;
    let json = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
    (response.status(), json)
}

pub(super) async fn send(bmc: &SimBmc, request: Request<Bytes>) -> Response<Bytes> {
    bmc.handle(request).await.expect("a response")
}

pub(super) fn request(method: Method, path: &str, body: Option<Value>) -> Request<Bytes> {
    let mut request =
        Request::new(body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert(header::AUTHORIZATION, basic(USER, PASSWORD));
    if body.is_some() {
        request.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    }
    request
}

pub(super) fn basic(username: &str, password: &str) -> http::HeaderValue {
    use base64::{Engine, engine::general_purpose::STANDARD};
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))).parse().unwrap()
}

/// The string at a JSON pointer.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

pub(super) fn message_id(body: &Value) -> &str {
    text(body, "/error/@Message.ExtendedInfo/0/MessageId")
}

/// The paths of a simulated BMC, found by links alone.
pub(super) struct Map {
    pub(super) system: String,
    pub(super) reset: String,
    pub(super) slots: Vec<String>,
}

impl Map {
    pub(super) async fn of(bmc: &SimBmc) -> Self {
        let get = async |path: &str| {
            let (status, body) = ask(bmc, Method::GET, path, None).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            body
        };
        let root = get("/redfish/v1/").await;
        let systems = get(text(&root, "/Systems/@odata.id")).await;
        let system = get(text(&systems, "/Members/0/@odata.id")).await;
        let manager = get(text(&system, "/Links/ManagedBy/0/@odata.id")).await;
        let parent = if system.get("VirtualMedia").is_some() { &system } else { &manager };
        let slots = get(text(parent, "/VirtualMedia/@odata.id")).await;
        let members = slots["Members"].as_array().unwrap();
        Self {
            reset: text(&system, "/Actions/#ComputerSystem.Reset/target").to_owned(),
            system: text(&system, "/@odata.id").to_owned(),
            slots: members.iter().map(|member| text(member, "/@odata.id").to_owned()).collect(),
        }
    }

    pub(super) async fn act(
        &self,
        bmc: &SimBmc,
        slot: usize,
        action: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let (_, shown) = ask(bmc, Method::GET, &self.slots[slot], None).await;
        let target = text(&shown, &format!("/Actions/#VirtualMedia.{action}/target")).to_owned();
        ask(bmc, Method::POST, &target, body).await
    }

    pub(super) async fn insert(&self, bmc: &SimBmc, slot: usize, url: &str) -> (StatusCode, Value) {
        self.act(bmc, slot, "InsertMedia", Some(json!({ "Image": url }))).await
    }

    pub(super) async fn eject(&self, bmc: &SimBmc, slot: usize) -> (StatusCode, Value) {
        self.act(bmc, slot, "EjectMedia", Some(json!({}))).await
    }

    pub(super) async fn reset(&self, bmc: &SimBmc, kind: &str) -> (StatusCode, Value) {
        ask(bmc, Method::POST, &self.reset, Some(json!({ "ResetType": kind }))).await
    }

    pub(super) async fn boot_once(&self, bmc: &SimBmc, target: &str) -> (StatusCode, Value) {
        let boot = json!({ "BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": "Once" });
        ask(bmc, Method::PATCH, &self.system, Some(json!({ "Boot": boot }))).await
    }
}

pub(super) fn operations(bmc: &SimBmc) -> Vec<(RequestKind, Option<u16>)> {
    let entries = bmc.mutations().into_iter();
    entries
        .map(|entry| match entry.what {
            crate::JournalItem::Request { operation, status, .. } => (operation, status),
            crate::JournalItem::Change(change) => panic!("{change:?}"),
        })
        .collect()
}

pub(super) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), event).await.expect("an event in time")
}

/// An ISO image with descriptors only; a bootable one has a boot record.
pub(super) fn iso(label: &str, bootable: bool, sectors: usize) -> Vec<u8> {
    let mut image = vec![0_u8; sectors * 2048];
    let mut put = |sector: usize, kind: u8| {
        image[sector * 2048] = kind;
        image[sector * 2048 + 1..sector * 2048 + 7].copy_from_slice(b"CD001\x01");
    };
    put(16, 1);
    put(17, if bootable { 0 } else { 255 });
    put(18, 255);
    image[16 * 2048 + 40..16 * 2048 + 72].fill(b' ');
    image[16 * 2048 + 40..16 * 2048 + 40 + label.len()].copy_from_slice(label.as_bytes());
    if bootable {
        let id = b"EL TORITO SPECIFICATION";
        image[17 * 2048 + 7..17 * 2048 + 7 + id.len()].copy_from_slice(id);
    }
    image
}

/// Serves `/m/{name}` on a real socket: boot.iso, task.iso, usb.img and images with every kind of defect.
pub(super) async fn media_server() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}/m", listener.local_addr().unwrap());
    let router = Router::new().route("/m/{name}", get(image));
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}

async fn image(Path(name): Path<String>, method: Method, headers: HeaderMap) -> Response<Body> {
    let image = match name.as_str() {
        "boot.iso" | "whole.iso" | "lying.iso" => iso("MAINT", true, 300),
        "task.iso" => iso("TASK_0123456789A", false, 512),
        "short.iso" => iso("SHORT", true, 299),
        "odd.iso" => vec![0; 300 * 2048 + 1],
        "chunked.iso" => return Response::new(Body::new(Endless)),
        "usb.img" => {
            let mut disk = vec![0; 64 * 512];
            disk[510..512].copy_from_slice(&[0x55, 0xAA]);
            disk
        }
        "moved.iso" => {
            let moved = Response::builder().status(302).header(header::LOCATION, "/m/boot.iso");
            return moved.body(Body::empty()).unwrap();
        }
        "secret.iso" => return Response::builder().status(403).body(Body::empty()).unwrap(),
        "slow.iso" => std::future::pending().await,
        _ => return Response::builder().status(404).body(Body::empty()).unwrap(),
    };
    let total = image.len();
    let range = headers.get(header::RANGE).map(|range| range.to_str().unwrap().to_owned());
    match range {
        Some(range) if name != "whole.iso" => {
            let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            let shown = if name == "lying.iso" { total + 2048 } else { total };
            Response::builder()
                .status(206)
                .header(header::CONTENT_RANGE, format!("bytes {first}-{last}/{shown}"))
                .body(Body::from(image[first..=last].to_vec()))
                .unwrap()
        }
        _ if method == Method::HEAD => {
            Response::builder().header(header::CONTENT_LENGTH, total).body(Body::empty()).unwrap()
        }
        _ => Response::new(Body::from(image)),
    }
}

/// A body of unknown length.
struct Endless;

impl axum::body::HttpBody for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, std::io::Error>>> {
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(Bytes::from_static(b"0")))))
    }
}
