//! A fake controller for the tests of this crate: one HTTP server for media ranges, a registry and installation reports.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use iso9660::{ImageOptions, ImagePlan, Profile, Tree};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::{
    http,
    images::{self, RootfsImage, RootfsSpec},
    oci::{Authorization, digest_of},
};

pub(crate) const TOKEN: &str = "webhook-token-of-this-job";
pub(crate) const SCHEMA: &str = include_str!("../../../schemas/recipe.schema.json");
/// The schema of recipes that version 1 does not know.
const SCHEMA_2: &str = include_str!("../../../schemas/recipe-v2.schema.json");
pub(crate) const SCHEMA_2_ID: &str = "https://shoal.dev/provisioner/recipe-v2.schema.json";
pub(crate) const REPOSITORY: &str = "os-images/ubuntu-rootfs";

/// A received installation report.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedReport {
    pub(crate) secret: String,
    pub(crate) body: Value,
}

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) media: Mutex<HashMap<String, Vec<u8>>>,
    pub(crate) blobs: Mutex<BTreeMap<String, Bytes>>,
    pub(crate) manifests: Mutex<BTreeMap<String, (String, Bytes)>>,
    pub(crate) uploads: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Statuses for the next reports; after them 200.
    pub(crate) report_statuses: Mutex<VecDeque<u16>>,
    /// Statuses for the next range requests; after them the requests succeed.
    pub(crate) media_faults: Mutex<VecDeque<u16>>,
    /// `head-405`, `no-range`, `etag-changes`.
    pub(crate) media_mode: Mutex<String>,
    /// Requests with this path prefix never get a response.
    pub(crate) stall: Mutex<Option<String>>,
    pub(crate) requests: Mutex<Vec<String>>,
}

pub(crate) struct FakeController {
    pub(crate) base: String,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: watch::Receiver<Vec<ReceivedReport>>,
    pub(crate) stalled: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Drop for FakeController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct ServerState {
    shared: Arc<Shared>,
    reports: watch::Sender<Vec<ReceivedReport>>,
    stalled: watch::Sender<usize>,
}

impl FakeController {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let (reports_sender, reports) = watch::channel(Vec::new());
        let (stalled_sender, stalled) = watch::channel(0);
        let inner =
            ServerState { shared: Arc::clone(&shared), reports: reports_sender, stalled: stalled_sender };
        let router = Router::new().fallback(handle).with_state(inner);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base, shared, reports, stalled, task }
    }

    /// Serves bytes as an image and returns its URL.
    pub(crate) fn put_media(&self, name: &str, bytes: Vec<u8>) -> String {
        self.shared.media.lock().unwrap().insert(format!("/t1/{name}"), bytes);
        format!("{}/t1/{name}", self.base)
    }

    pub(crate) fn maintenance(&self) -> String {
        self.put_media("boot.iso", bytes_of(&images::maintenance_iso().unwrap()))
    }

    /// Serves a task image and returns its URL.
    pub(crate) fn task(&self, name: &str, job: &Value, recipe: &Value, more: &[(&str, &str)]) -> String {
        self.put_media(name, task_iso("", job, recipe, more))
    }

    /// A job document with the URLs of this server.
    pub(crate) fn job(&self, serial: &str) -> Value {
        json!({
            "job_id": format!("job-of-{serial}"),
            "server_serial": serial,
            "controller_url": self.base,
            "controller_ca": null,
            "webhook_url": format!("{}/api/v1/status-webhook/{serial}", self.base),
            "webhook_token": TOKEN,
            "registry": { "url": self.base, "username": "pull", "password": "pull-token" },
            "recipe_schema_id": "https://shoal.dev/provisioner/recipe.schema.json",
            "created_at": "2025-11-03T20:30:00.000Z",
            "shoal_version": "0.1.0",
        })
    }

    pub(crate) async fn push_rootfs(&self) -> RootfsImage {
        let image = images::rootfs_image(&RootfsSpec::default()).unwrap();
        let client = http::api_client(None).unwrap();
        let authorization = Authorization::Basic { username: "pull".into(), password: "pull-token".into() };
        let receipt =
            images::push(client, &self.base, REPOSITORY, "22.04", authorization, &image).await.unwrap();
        assert_eq!(receipt.digest, image.digest);
        image
    }

    pub(crate) fn requests(&self, wanted: &str) -> usize {
        self.shared.requests.lock().unwrap().iter().filter(|line| line.contains(wanted)).count()
    }
}

/// The Linux recipe of docs/seeds.md S000-120.
pub(crate) fn recipe() -> Value {
    json!({
        "task_target": "install-linux.target",
        "target_disk": "/dev/sda",
        "oci_url": format!("controller.internal:8080/{REPOSITORY}:22.04"),
        "user_data": "#!/bin/bash\n",
        "partition_layout": [
            { "size": "512M", "type_guid": "ef00", "format": "vfat" },
            { "size": "100%", "type_guid": "8300", "format": "ext4" }
        ]
    })
}

pub(crate) fn bytes_of(plan: &ImagePlan) -> Vec<u8> {
    let mut bytes = Vec::new();
    plan.write_to(&mut bytes).unwrap();
    bytes
}

/// A volume with the task files in `directory`.
pub(crate) fn task_iso(directory: &str, job: &Value, recipe: &Value, more: &[(&str, &str)]) -> Vec<u8> {
    let mut tree = Tree::new();
    let mut add = |name: &str, text: String| {
        tree.add_file(&format!("{directory}{name}"), text).unwrap();
    };
    add("job.json", job.to_string());
    add("recipe.json", recipe.to_string());
    let schema = if job["recipe_schema_id"] == SCHEMA_2_ID { SCHEMA_2 } else { SCHEMA };
    add("recipe.schema.json", schema.to_owned());
    for (name, text) in more {
        add(name, (*text).to_owned());
    }
    bytes_of(
        &ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "TASK_0123456789A", 1_700_000_000)).unwrap(),
    )
}

async fn handle(State(fake): State<ServerState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    fake.shared.requests.lock().unwrap().push(format!("{} {path}", parts.method));
    let stalls = fake.shared.stall.lock().unwrap().clone();
    if stalls.is_some_and(|prefix| path.starts_with(&prefix)) {
        fake.stalled.send_modify(|count| *count += 1);
        std::future::pending::<()>().await;
    }
    let header_of = |name: header::HeaderName| {
        parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let body = to_bytes(body, 64 << 20).await.unwrap();
    if path.starts_with("/t1/") {
        return media(&fake.shared, &parts.method, &path, &header_of(header::RANGE));
    }
    if let Some(rest) = path.strip_prefix(&format!("/v2/{REPOSITORY}/")) {
        if header_of(header::AUTHORIZATION) != "Basic cHVsbDpwdWxsLXRva2Vu" {
            return reply(
                401,
                &[],
                Body::from(r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#),
            );
        }
        let query = parts.uri.query().unwrap_or_default();
        return registry(&fake.shared, &parts.method, rest, query, &header_of(header::CONTENT_TYPE), body);
    }
    if path.starts_with("/api/v1/status-webhook/") {
        let secret = parts.headers.get("x-webhook-secret").unwrap().to_str().unwrap().to_owned();
        fake.reports.send_modify(|reports| {
            reports.push(ReceivedReport { secret, body: serde_json::from_slice(&body).unwrap() });
        });
        let status = fake.shared.report_statuses.lock().unwrap().pop_front().unwrap_or(200);
        return reply(status, &[], Body::from(r#"{"ok":true}"#));
    }
    reply(404, &[], Body::empty())
}

fn reply(status: u16, headers: &[(header::HeaderName, String)], body: Body) -> Response {
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(body).unwrap()
}

fn media(shared: &Shared, method: &Method, path: &str, range: &str) -> Response {
    let media = shared.media.lock().unwrap();
    let Some(bytes) = media.get(path) else { return reply(404, &[], Body::empty()) };
    let mode = shared.media_mode.lock().unwrap().clone();
    let total = bytes.len();
    let etag = (header::ETAG, format!("\"{}\"", digest_of(bytes)));
    if *method == Method::HEAD {
        let length = (header::CONTENT_LENGTH, total.to_string());
        return if mode == "head-405" {
            reply(405, &[], Body::empty())
        } else {
            reply(200, &[length, etag], Body::empty())
        };
    }
    if let Some(status) = shared.media_faults.lock().unwrap().pop_front() {
        return reply(status, &[], Body::empty());
    }
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return reply(200, &[etag], Body::from(bytes.clone()));
    };
    if mode == "no-range" {
        return reply(200, &[etag], Body::from(bytes.clone()));
    }
    let etag = if mode == "etag-changes" { (header::ETAG, "\"another\"".to_owned()) } else { etag };
    let (first, last): (usize, usize) =
        (first.parse().unwrap(), last.parse::<usize>().unwrap().min(total - 1));
    let covered = (header::CONTENT_RANGE, format!("bytes {first}-{last}/{total}"));
    reply(206, &[covered, etag], Body::from(bytes[first..=last].to_vec()))
}

fn registry(
    shared: &Shared,
    method: &Method,
    rest: &str,
    query: &str,
    media_type: &str,
    body: Bytes,
) -> Response {
    let digest_header =
        |digest: &str| (header::HeaderName::from_static("docker-content-digest"), digest.to_owned());
    let session = format!("/v2/{REPOSITORY}/blobs/uploads/1?state=x");
    let mut uploads = shared.uploads.lock().unwrap();
    match (method.as_str(), rest) {
        ("POST", "blobs/uploads/") => {
            uploads.insert("1".into(), Vec::new());
            reply(202, &[(header::LOCATION, session)], Body::empty())
        }
        ("PATCH", "blobs/uploads/1") => {
            uploads.get_mut("1").unwrap().extend_from_slice(&body);
            reply(202, &[(header::LOCATION, session)], Body::empty())
        }
        ("PUT", "blobs/uploads/1") => {
            let bytes = Bytes::from(uploads.remove("1").unwrap());
            let digest = digest_of(&bytes);
            assert!(query.contains(&format!("digest={}", digest.replace(':', "%3A"))), "{query}");
            shared.blobs.lock().unwrap().insert(digest, bytes);
            reply(201, &[], Body::empty())
        }
        ("PUT", rest) => {
            let mut manifests = shared.manifests.lock().unwrap();
            let reference = rest.strip_prefix("manifests/").unwrap();
            manifests.insert(reference.to_owned(), (media_type.to_owned(), body.clone()));
            manifests.insert(digest_of(&body), (media_type.to_owned(), body));
            reply(201, &[], Body::empty())
        }
        (_, rest) if rest.starts_with("blobs/") => {
            match shared.blobs.lock().unwrap().get(rest.strip_prefix("blobs/").unwrap()) {
                Some(bytes) => reply(200, &[], Body::from(bytes.clone())),
                None => reply(404, &[], Body::from(r#"{"errors":[{"code":"BLOB_UNKNOWN","message":"no"}]}"#)),
            }
        }
        (_, rest) => match shared.manifests.lock().unwrap().get(rest.strip_prefix("manifests/").unwrap()) {
            Some((media_type, bytes)) => {
                let headers = [(header::CONTENT_TYPE, media_type.clone()), digest_header(&digest_of(bytes))];
                reply(200, &headers, Body::from(bytes.clone()))
            }
            None => reply(404, &[], Body::from(r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no"}]}"#)),
        },
    }
}
