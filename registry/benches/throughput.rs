//! The throughput of the registry without a network: durable pushes of small blobs by growing numbers of clients, and
//! the most frequent reads. Prints, without a verdict. `.ci/bench-registry` measures it beside other servers.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use registry::{AllowAll, Config, Registry};
use sha2::{Digest, Sha256};
use tower::ServiceExt;

const BLOB: usize = 4096;
const PUSHES: usize = 480;
const READS: usize = 20_000;
const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";

#[tokio::main]
async fn main() {
    // The build directory is on a real disk; in memory an fsync costs nothing.
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let registry = Registry::open(Config::new(root.path())).await.unwrap();
    let router = registry.router(Arc::new(AllowAll));

    for clients in [1, 4, 16, 32] {
        let began = Instant::now();
        let pushing: Vec<_> =
            (0..clients).map(|client| tokio::spawn(push(router.clone(), clients, client))).collect();
        for push in pushing {
            push.await.unwrap();
        }
        let rate = PUSHES as f64 / began.elapsed().as_secs_f64();
        println!("{clients:>3} clients push blobs of {BLOB} bytes: {rate:>10.0} durable blobs/s");
    }

    let (document, config) = image();
    let put = format!("/v2/a/blobs/uploads/?digest={}", digest(&config));
    assert_eq!(ask(&router, Method::POST, &put, config.clone()).await, StatusCode::CREATED);
    assert_eq!(ask(&router, Method::PUT, "/v2/a/manifests/v1", document).await, StatusCode::CREATED);
    let blob = format!("/v2/a/blobs/{}", digest(&config));
    for (method, path) in [
        (Method::GET, "/v2/"),
        (Method::GET, "/v2/a/manifests/v1"),
        (Method::HEAD, "/v2/a/manifests/v1"),
        (Method::HEAD, &blob),
        (Method::GET, &blob),
    ] {
        let began = Instant::now();
        for _ in 0..READS {
            assert_eq!(ask(&router, method.clone(), path, Vec::new()).await, StatusCode::OK);
        }
        let each = began.elapsed().as_secs_f64() / READS as f64 * 1e6;
        println!("{method:<5}{:<20}{each:>8.1} us", path.get(..20).unwrap_or(path));
    }
}

async fn push(router: Router, clients: usize, client: usize) {
    for number in 0..PUSHES / clients {
        let mut content = format!("{clients} {client} {number}").into_bytes();
        content.resize(BLOB, b'.');
        let path = format!("/v2/pushed/blobs/uploads/?digest={}", digest(&content));
        assert_eq!(ask(&router, Method::POST, &path, content).await, StatusCode::CREATED);
    }
}

async fn ask(router: &Router, method: Method, path: &str, body: Vec<u8>) -> StatusCode {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, IMAGE)
        .body(Body::from(body));
    let response = router.clone().oneshot(request.unwrap()).await.unwrap();
    let status = response.status();
    response.into_body().collect().await.unwrap();
    status
}

/// A manifest with 200 layers, all of them its configuration.
fn image() -> (Vec<u8>, Vec<u8>) {
    let config = vec![b'{'; BLOB];
    let entry = serde_json::json!({"mediaType": IMAGE, "digest": digest(&config), "size": BLOB});
    let document = serde_json::json!({
        "schemaVersion": 2, "mediaType": IMAGE, "config": entry, "layers": vec![entry.clone(); 200],
    });
    (document.to_string().into_bytes(), config)
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}
