//! Real registry clients against a registry on a real socket. Each test fails when its program is missing; none is part
//! of an ordinary test run.
//!
//! The pushed image is small but real: an OCI layout whose layer is a compressed tar archive, written by the test or by
//! umoci.

mod anonymous;
mod containers;
mod crane;
mod large;
mod login;
mod oras;
mod regctl;
mod skopeo;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use registry::{AllowAll, Digest, Registry, TokenAuthority, TokenOptions};
use serde_json::{Value, json};

use crate::support::{CONFIG, IMAGE, Server, access_control_with, config, noise, sha256};

/// Compressed, because some clients compress an uncompressed layer, and the digests would change.
const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image as an OCI layout directory.
struct Layout {
    directory: PathBuf,
    manifest: Vec<u8>,
    layer: Vec<u8>,
}

fn write_layout(directory: PathBuf, tag: &str) -> Layout {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in [("etc/hostname", b"example\n".to_vec()), ("data/noise", noise(9, 300_000))] {
        let mut head = tar::Header::new_ustar();
        head.set_size(content.len() as u64);
        head.set_mode(0o644);
        archive.append_data(&mut head, name, content.as_slice()).unwrap();
    }
    let archive = archive.into_inner().unwrap();
    let mut layer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    layer.write_all(&archive).unwrap();
    let layer = layer.finish().unwrap();
    let image_config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [sha256(&archive).to_string()]},
        "history": [{"created_by": "a test"}],
    });
    let image_config = image_config.to_string().into_bytes();
    let described = |kind: &str, content: &[u8]| json!({"mediaType": kind, "digest": sha256(content).to_string(), "size": content.len()});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": IMAGE,
        "config": described(CONFIG, &image_config), "layers": [described(LAYER_GZIP, &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = described(IMAGE, &manifest);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    let blobs = directory.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    for content in [&layer, &image_config, &manifest] {
        fs::write(blobs.join(sha256(content).hex()), content).unwrap();
    }
    fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(directory.join("index.json"), json!({"schemaVersion": 2, "manifests": [entry]}).to_string())
        .unwrap();
    Layout { directory, manifest, layer }
}

/// The digest of the one image in a layout directory, after a check that all its content is there and intact.
fn image_in(layout: &Path) -> Digest {
    let read = |digest: &str| {
        let content = fs::read(layout.join("blobs").join(digest.replace(':', "/"))).unwrap();
        assert_eq!(sha256(&content).to_string(), digest);
        content
    };
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let manifest: Value = serde_json::from_slice(&read(&digest)).unwrap();
    read(manifest["config"]["digest"].as_str().unwrap());
    for layer in manifest["layers"].as_array().unwrap() {
        read(layer["digest"].as_str().unwrap());
    }
    digest.parse().unwrap()
}

/// A registry in `scratch` that is open to all callers.
async fn served(scratch: &Path) -> Server {
    Server::open(config(&scratch.join("store")), Arc::new(AllowAll)).await
}

/// A registry that requires passwords.
async fn served_to_users(scratch: &Path) -> Server {
    let control = access_control_with(&["** user:tester all"]).await;
    Server::open(config(&scratch.join("store")), Arc::new(control)).await
}

/// A registry that requires tokens and issues them to one user. Anonymous callers may read `public`.
async fn served_for_tokens(scratch: &Path) -> Server {
    let control =
        access_control_with(&["** user:tester all", "public/** anonymous read", "public/** user:tester all"]);
    let authority = Arc::new(TokenAuthority::new(control.await, TokenOptions::default()));
    let registry = Registry::open(config(&scratch.join("store"))).await.unwrap();
    let router = registry.router(Arc::clone(&authority) as _).merge(authority.token_router());
    Server::serve(registry, router).await
}

/// Runs a program off the async threads.
async fn run(mut command: Command) -> Output {
    let program = command.get_program().to_owned();
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.unwrap().unwrap_or_else(|error| panic!("{program:?} is needed for this test: {error}"))
}

async fn succeed(command: Command) -> String {
    let shown = format!("{command:?}");
    let output = run(command).await;
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Changes one byte of a stored blob without changing its length.
fn corrupt(root: &Path, digest: &Digest) {
    let stored = root.join("blobs/sha256").join(digest.hex());
    let mut content = fs::read(&stored).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::remove_file(&stored).unwrap();
    fs::write(&stored, content).unwrap();
}
