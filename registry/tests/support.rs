//! A registry on a real socket, and a client.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use base64::Engine as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use registry::{
    AccessControl, Algorithm, AllowAll, Authorizer, Config, Digest, Htpasswd, HtpasswdOptions, LocalAddress,
    Policy, READ_BUFFER, Registry, SendfileStream,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

pub(crate) const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A served registry; stopped when dropped.
pub(crate) struct Server {
    pub(crate) registry: Registry,
    pub(crate) address: SocketAddr,
    pub(crate) client: reqwest::Client,
    task: JoinHandle<()>,
    /// Absent when the test owns the directory.
    root: Option<tempfile::TempDir>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut config = config(root.path());
        change(&mut config);
        let mut server = Self::open(config, Arc::new(AllowAll)).await;
        server.root = Some(root);
        server
    }

    pub(crate) async fn open(config: Config, authorizer: Arc<dyn Authorizer>) -> Self {
        let registry = Registry::open(config).await.unwrap();
        let router = registry.router(authorizer);
        Self::serve(registry, router).await
    }

    /// A registry behind a router of the test.
    pub(crate) async fn serve(registry: Registry, router: axum::Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(accept(listener, router));
        Server { registry, address, client: client(), task, root: None }
    }

    /// A second address of the registry, over connections without `sendfile`.
    pub(crate) async fn serve_copying(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = self.registry.router(Arc::new(AllowAll));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        address
    }

    /// The directory of a server that owns it.
    pub(crate) fn root(&self) -> &Path {
        self.root.as_ref().unwrap().path()
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) async fn send(&self, method: Method, path: &str) -> Response {
        self.request(method, path).send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path).await
    }

    pub(crate) async fn head(&self, path: &str) -> Response {
        self.send(Method::HEAD, path).await
    }

    /// Starts an upload and returns its location.
    pub(crate) async fn begin(&self, repository: &str) -> String {
        let response = self.send(Method::POST, &format!("/v2/{repository}/blobs/uploads/")).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        header(&response, "location").to_owned()
    }

    pub(crate) async fn put_blob(&self, repository: &str, content: &[u8]) -> Response {
        let digest = sha256(content);
        self.request(Method::POST, &format!("/v2/{repository}/blobs/uploads/?digest={digest}"))
            .body(content.to_vec())
            .send()
            .await
            .unwrap()
    }

    pub(crate) async fn put_manifest(
        &self,
        repository: &str,
        reference: &str,
        kind: &str,
        document: &[u8],
    ) -> Response {
        self.request(Method::PUT, &format!("/v2/{repository}/manifests/{reference}"))
            .header("content-type", kind)
            .body(document.to_vec())
            .send()
            .await
            .unwrap()
    }

    /// Pushes a small image with its blobs and returns the bytes of its manifest.
    pub(crate) async fn push_image(&self, repository: &str, tag: &str, seed: &str) -> Vec<u8> {
        let config =
            format!("{{\"architecture\":\"amd64\",\"os\":\"linux\",\"seed\":\"{seed}\"}}").into_bytes();
        let layer = format!("layer of {seed}").into_bytes();
        for blob in [&config, &layer] {
            assert_eq!(self.put_blob(repository, blob).await.status(), StatusCode::CREATED);
        }
        let document = image(&config, &[&layer]);
        let response = self.put_manifest(repository, tag, IMAGE, &document).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        document
    }
}

/// Serves over connections with `sendfile`, as the embedding program does. They end when this future is dropped.
async fn accept(listener: tokio::net::TcpListener, router: axum::Router) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        let local = LocalAddress(stream.local_addr().unwrap());
        let wire = SendfileStream::new(stream);
        let (router, sender) = (router.clone(), wire.file_sender());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(local);
            if let Some(sender) = sender.clone() {
                request.extensions_mut().insert(sender);
            }
            router.clone().oneshot(request.map(axum::body::Body::new))
        });
        connections.spawn(
            http1::Builder::new().max_buf_size(READ_BUFFER).serve_connection(TokioIo::new(wire), service),
        );
        while connections.try_join_next().is_some() {}
    }
}

/// The user of the tests.
pub(crate) const USER: &str = "tester";
pub(crate) const PASSWORD: &str = "open: sesame";

/// Access control with the user of the tests in an htpasswd file, and these rules.
pub(crate) async fn access_control_with(rules: &[&str]) -> AccessControl {
    access_control_for(&[(USER, PASSWORD)], rules).await
}

/// Access control with these users in an htpasswd file, and these rules.
pub(crate) async fn access_control_for(known: &[(&str, &str)], rules: &[&str]) -> AccessControl {
    let users = tempfile::NamedTempFile::new().unwrap();
    let line = |(user, password): &(&str, &str)| format!("{user}:{}\n", bcrypt::hash(password, 4).unwrap());
    std::fs::write(users.path(), known.iter().map(line).collect::<String>()).unwrap();
    let options =
        HtpasswdOptions { reload_interval: Duration::from_secs(3600), ..HtpasswdOptions::default() };
    let users = Htpasswd::open(users.path(), options).await.unwrap();
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    AccessControl::new(Arc::new(users), Policy { rules, ..Policy::default() })
}

/// The `Authorization` header of the user of the tests.
pub(crate) fn basic() -> String {
    basic_of(USER, PASSWORD)
}

/// The `Authorization` header of a user.
pub(crate) fn basic_of(user: &str, password: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {encoded}")
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn config(root: &Path) -> Config {
    let mut config = Config::new(root);
    config.reserve = registry::Reserve::Bytes(0);
    config
}

/// A plain-http client with its own TLS configuration, since the platform's may be missing.
pub(crate) fn client() -> reqwest::Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap()
}

pub(crate) fn sha256(content: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, content)
}

pub(crate) fn sha512(content: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha512, content)
}

pub(crate) fn descriptor(kind: &str, content: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": sha256(content).to_string(), "size": content.len()})
}

/// The manifest of an image, with odd spacing so that a re-encoded copy would differ.
pub(crate) fn image(config: &[u8], layers: &[&[u8]]) -> Vec<u8> {
    let layers: Vec<Value> = layers.iter().map(|layer| descriptor(LAYER, layer)).collect();
    let document = json!({
        "schemaVersion": 2, "mediaType": IMAGE, "config": descriptor(CONFIG, config), "layers": layers,
        "com.example.unknown": [1, 2, 3],
    });
    format!("{}\n  ", serde_json::to_string_pretty(&document).unwrap()).into_bytes()
}

pub(crate) fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).unwrap_or_else(|| panic!("no {name} in {response:?}")).to_str().unwrap()
}

/// The codes of an error response, after a check of its form with the types of the specification.
pub(crate) async fn codes(response: Response) -> Vec<String> {
    assert_eq!(header(&response, "content-type"), "application/json");
    let specified = response.status().is_client_error();
    let document = response.bytes().await.unwrap();
    if specified {
        let parsed: oci_spec::distribution::ErrorResponse = serde_json::from_slice(&document).unwrap();
        assert!(
            parsed.errors().iter().all(|entry| entry.message().as_ref().is_some_and(|text| !text.is_empty()))
        );
    }
    let document: Value = serde_json::from_slice(&document).unwrap();
    let code = |entry: &Value| entry["code"].as_str().unwrap().to_owned();
    document["errors"].as_array().unwrap().iter().map(code).collect()
}

/// Status and codes, for tables of refusals.
pub(crate) async fn refusal(response: Response) -> (u16, Vec<String>) {
    let status = response.status().as_u16();
    (status, codes(response).await)
}

/// Bytes without repetition, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
