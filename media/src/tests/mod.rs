//! The crate as a BMC uses it: real sockets, a grant store in memory, a library in a temporary directory.
//!
//! ```text
//! reqwest or raw TCP ──> axum on 127.0.0.1:0 ──> MediaGrants ──> FakeGrantStore, Library
//! ```

mod firmware;
mod flushing;
mod golden;
mod grant_life;
mod http;
pub(crate) mod log_lines;
mod os_medium;

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::extract::Request;
use bytes::Bytes;
use iso9660::{BiosBoot, Boot, ImageOptions, ImagePlan, Profile, ReadAt, Tree};
use model::{Grant, GrantReads, ManualClock, RunId, StoredGrant, Time};
use secrets::{KEY_BYTES, MasterKey};
use tokio::sync::watch;

use super::job_document::tests::document;
use super::*;

pub(super) const TASK_TOKEN: &str = "task0000000000000000000000";
pub(super) const BOOT_TOKEN: &str = "boot0000000000000000000000";

/// A grant store in memory with switches and counters.
pub(super) struct FakeGrantStore {
    grants: Mutex<HashMap<String, StoredGrant>>,
    down: Mutex<bool>,
    finds: watch::Sender<usize>,
    recorded: watch::Sender<Vec<(String, GrantReads)>>,
}

#[async_trait]
impl GrantStore for FakeGrantStore {
    async fn find(&self, token_hash: &str) -> Result<Option<StoredGrant>, GrantStoreUnavailable> {
        self.finds.send_modify(|finds| *finds += 1);
        self.refuse_when_down()?;
        Ok(self.grants.lock().unwrap().get(token_hash).cloned())
    }

    async fn record_reads(&self, token_hash: &str, reads: GrantReads) -> Result<(), GrantStoreUnavailable> {
        self.refuse_when_down()?;
        if let Some(grant) = self.grants.lock().unwrap().get_mut(token_hash) {
            grant.reads = grant.reads.merge(reads);
        }
        self.recorded.send_modify(|recorded| recorded.push((token_hash.to_owned(), reads)));
        Ok(())
    }
}

impl FakeGrantStore {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            grants: Mutex::default(),
            down: Mutex::default(),
            finds: watch::Sender::new(0),
            recorded: watch::Sender::default(),
        })
    }

    pub(super) fn add(&self, stored: StoredGrant) {
        self.grants.lock().unwrap().insert(stored.grant.token_hash.clone(), stored);
    }

    pub(super) fn end(&self, token: &str) {
        let mut grants = self.grants.lock().unwrap();
        grants.get_mut(&hash(token)).unwrap().ended_at = Some(time("1970-01-01T00:00:00Z"));
    }

    pub(super) fn set_down(&self, down: bool) {
        *self.down.lock().unwrap() = down;
    }

    pub(super) fn finds(&self) -> usize {
        *self.finds.borrow()
    }

    /// Waits until reads were recorded `times` times and returns all records.
    pub(super) async fn recorded(&self, times: usize) -> Vec<(String, GrantReads)> {
        let mut updates = self.recorded.subscribe();
        updates.wait_for(|recorded| recorded.len() >= times).await.unwrap().clone()
    }

    fn refuse_when_down(&self) -> Result<(), GrantStoreUnavailable> {
        if *self.down.lock().unwrap() {
            return Err(GrantStoreUnavailable { reason: "switched off".into() });
        }
        Ok(())
    }
}

/// A media server with two grants, and a client.
pub(super) struct World {
    pub(super) store: Arc<FakeGrantStore>,
    pub(super) grants: MediaGrants,
    pub(super) address: SocketAddr,
    pub(super) client: reqwest::Client,
    /// The bytes behind the two tokens.
    pub(super) task: Vec<u8>,
    pub(super) boot: Vec<u8>,
    /// Removed when the world ends.
    _dir: tempfile::TempDir,
}

impl World {
    /// One job with both images, served on its own port.
    pub(super) async fn new() -> Self {
        Self::with_limits(CacheLimits::default()).await
    }

    pub(super) async fn with_limits(limits: CacheLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = library(&dir.path().join("library"));
        let store = FakeGrantStore::new();
        let inputs = record_inputs(&task_input()).unwrap();
        store.add(task_grant(TASK_TOKEN, &inputs));
        let boot = boot_image();
        let path = dir.path().join("maintenance.iso");
        std::fs::write(&path, &boot).unwrap();
        let image = library.import(path.to_str().unwrap(), &|_, _| ()).await.unwrap();
        let mut stored = task_grant(BOOT_TOKEN, &inputs);
        stored.grant = Grant {
            artifact: Artifact::Boot,
            inputs: None,
            sha256: image.digest.to_hex(),
            size: image.len,
            ..stored.grant
        };
        store.add(stored);
        let grants = MediaGrants::with_limits(store.clone(), library, &key(), clock(), limits);
        let address = listen(grants.clone()).await;
        Self {
            store,
            grants,
            address,
            client: client(),
            task: bytes_of(&plan(&task_input()).unwrap()),
            boot,
            _dir: dir,
        }
    }

    pub(super) fn url(&self, token: &str, artifact: Artifact) -> String {
        let token = MediaToken::parse(token).unwrap();
        media_url(&format!("http://{}", self.address), &token, artifact, Suffix::Iso).unwrap()
    }

    pub(super) async fn get(
        &self,
        token: &str,
        artifact: Artifact,
        range: Option<&str>,
    ) -> reqwest::Response {
        let mut request = self.client.get(self.url(token, artifact));
        if let Some(range) = range {
            request = request.header("range", range);
        }
        request.send().await.unwrap()
    }
}

pub(super) fn client() -> reqwest::Client {
    let tls = tls_config(b"").unwrap();
    reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap()
}

/// A policy for tests on loopback with files anywhere.
pub(super) fn everything() -> crate::SourcePolicy {
    let loopback = ["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    crate::SourcePolicy {
        addresses: crate::AddressPolicy::allowing(&loopback),
        files: crate::FilePolicy::below("/".into(), Vec::new()),
    }
}

pub(super) fn library(dir: &std::path::Path) -> Library {
    Library::open(
        dir,
        LibraryOptions { tls: tls_config(b"").unwrap(), max_image_bytes: 64 << 20, sources: everything() },
    )
    .unwrap()
}

/// Serves the grants on a new port. Every second request has a connection that supports sendfile.
pub(super) async fn listen(grants: MediaGrants) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let app = axum::Router::new().fallback(move |request: Request| {
        let (grants, requests) = (grants.clone(), requests.clone());
        async move {
            let mut request = request.into_parts().0;
            if requests.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                request.extensions.insert(FileSending::new(ReadingSender::default()));
            }
            grants.serve(&request).await
        }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A file sender that reads the bytes immediately, in pieces, and counts them.
#[derive(Clone, Default)]
pub(super) struct ReadingSender(pub(super) Arc<AtomicUsize>);

impl SendFiles for ReadingSender {
    fn placeholder(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes> {
        let mut bytes = vec![0; usize::try_from(length).unwrap().min(100_000)];
        file.read_exact_at(&mut bytes, offset).unwrap();
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Some(bytes.into())
    }
}

pub(super) fn hash(token: &str) -> String {
    MediaToken::parse(token).unwrap().hash()
}

pub(super) fn task_input() -> TaskImageInput {
    let job = document();
    let files = render(&RenderInput {
        job: &job,
        recipe: b"{\"task_target\":\"install-linux.target\",\"target_disk\":\"/dev/sda\"}",
        recipe_schema: b"{\"$id\":\"https://shoal.dev/provisioner/recipe.schema.json\"}",
        user_data: Some(b"#cloud-config\nhostname: sn-0001\n"),
        network_config: Some(b"version: 2\n"),
        vendor_data: None,
        unattend_xml: Some(b"<unattend/>"),
        ks_cfg: Some(b"text\nreboot\n"),
    });
    TaskImageInput { job_id: job.job_id, created_at: job.created_at, files: files.unwrap(), volume_id: None }
}

pub(super) fn time(text: &str) -> Time {
    text.parse().unwrap()
}

pub(super) fn key() -> MasterKey {
    MasterKey::from_bytes(&[7; KEY_BYTES])
}

/// A clock that the test moves.
pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(time("2027-01-15T08:00:00Z")))
}

/// Recorded inputs as the store keeps them.
pub(super) fn sealed(inputs: &[u8]) -> Option<String> {
    Some(crate::grants::sealed_inputs::seal(&key().derive("media-grants"), run(), inputs).unwrap())
}

pub(super) fn task_grant(token: &str, inputs: &TaskInputs) -> StoredGrant {
    let grant = Grant {
        token_hash: hash(token),
        run: run(),
        artifact: Artifact::Task,
        inputs: sealed(&inputs.to_bytes().unwrap()),
        sha256: inputs.digest().to_hex(),
        size: inputs.len(),
        created_at: Time::from_timestamp(document().created_at),
    };
    StoredGrant { grant, server: None, ended_at: None, reads: GrantReads::default() }
}

/// A bootable image of some megabytes whose payload has no two equal sectors.
pub(super) fn boot_image() -> Vec<u8> {
    let mut tree = Tree::new();
    tree.add_file("boot/bios.img", vec![0xB1; 2048]).unwrap();
    let payload: Vec<u8> =
        (0..3 << 18).flat_map(|at: u32| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    tree.add_file("payload.bin", payload).unwrap();
    let mut options = ImageOptions::new(Profile::Boot, "MAINTENANCE", 1_700_000_000);
    options.boot = Some(Boot::new(Some(BiosBoot::new("boot/bios.img")), None));
    bytes_of(&ImagePlan::new(&tree, &options).unwrap())
}

pub(super) fn bytes_of(source: &dyn ReadAt) -> Vec<u8> {
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

pub(super) fn run() -> RunId {
    RunId(document().job_id)
}
