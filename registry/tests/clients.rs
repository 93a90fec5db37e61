//! Registry clients people really use, against a registry on a real socket. Each test fails when its program is
//! missing; none is part of an ordinary test run.
//!
//! What is pushed is a small but real image: an OCI layout whose layer is a compressed tar archive, written by the test.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use registry::{AllowAll, Digest, Reference, RepositoryName};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{CONFIG, IMAGE, Server, config, noise, sha256};

/// Compressed, because some clients compress what is not, and the digests would change.
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

/// The digest of the one image in a layout directory, after checking that all it refers to is there and intact.
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

/// Runs a program away from the async threads.
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

fn skopeo(arguments: &[&str]) -> Command {
    let mut command = Command::new("skopeo");
    command.arg("--insecure-policy").args(arguments);
    command
}

/// Spoils one byte of a stored blob without changing its length.
fn corrupt(root: &Path, digest: &Digest) {
    let stored = root.join("blobs/sha256").join(digest.hex());
    let mut content = fs::read(&stored).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::remove_file(&stored).unwrap();
    fs::write(&stored, content).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_copies_an_image_in_and_out_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("store");
    let server = Server::open(config(&root), Arc::new(AllowAll)).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    let remote = format!("docker://{}/os-images/test:v1", server.address);
    let source = format!("oci:{}:v1", layout.directory.display());
    let push = ["copy", "-q", "--preserve-digests", "--dest-tls-verify=false", &source, &remote];
    succeed(skopeo(&push)).await;
    // A second push finds every blob there already.
    succeed(skopeo(&push)).await;

    let stored = server.get("/v2/os-images/test/manifests/v1").await.bytes().await.unwrap();
    assert_eq!(stored, layout.manifest);
    assert_eq!(
        succeed(skopeo(&["inspect", "--raw", "--tls-verify=false", &remote])).await.into_bytes(),
        layout.manifest
    );

    let out = scratch.path().join("out");
    let target = format!("oci:{}:v1", out.display());
    succeed(skopeo(&["copy", "-q", "--src-tls-verify=false", &remote, &target])).await;
    assert_eq!(image_in(&out), sha256(&layout.manifest));

    // Across repositories, where skopeo mounts instead of uploading.
    let other = format!("docker://{}/other/place:v2", server.address);
    succeed(skopeo(&["copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false", &remote, &other]))
        .await;
    let listed: Value = serde_json::from_str(
        &succeed(skopeo(&["list-tags", "--tls-verify=false", &other.replace(":v2", "")])).await,
    )
    .unwrap();
    assert_eq!(listed["Tags"], json!(["v2"]));

    // Docker's older format, and deleting.
    let docker = format!("docker://{}/docker/format:v1", server.address);
    succeed(skopeo(&["copy", "-q", "--format", "v2s2", "--dest-tls-verify=false", &source, &docker])).await;
    succeed(skopeo(&["delete", "--tls-verify=false", &remote])).await;
    assert_eq!(server.head("/v2/os-images/test/manifests/v1").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_notices_a_blob_that_rotted_in_the_store() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("store");
    let server = Server::open(config(&root), Arc::new(AllowAll)).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    let remote = format!("docker://{}/a:v1", server.address);
    let source = format!("oci:{}:v1", layout.directory.display());
    let push = ["copy", "-q", "--preserve-digests", "--dest-tls-verify=false", &source, &remote];
    succeed(skopeo(&push)).await;

    let pull = async |into: &str| {
        let target = format!("oci:{}:v1", scratch.path().join(into).display());
        run(skopeo(&["copy", "-q", "--src-tls-verify=false", &remote, &target])).await.status.success()
    };
    assert!(pull("before").await);
    corrupt(&root, &sha256(&layout.layer));
    assert!(!pull("spoiled").await, "the pull of a damaged blob must fail");
    // A push heals, once the client is told that the blob is not there.
    let name: RepositoryName = "a".parse().unwrap();
    let blob = format!("/v2/{name}/blobs/{}", sha256(&layout.layer));
    assert_eq!(server.send(reqwest::Method::DELETE, &blob).await.status(), StatusCode::ACCEPTED);
    succeed(skopeo(&push)).await;
    assert!(pull("after").await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman, run by .ci/run"]
async fn podman_pulls_and_pushes() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("store");
    let server = Server::open(config(&root), Arc::new(AllowAll)).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    for content in fs::read_dir(layout.directory.join("blobs/sha256")).unwrap() {
        let content = fs::read(content.unwrap().path()).unwrap();
        assert_eq!(server.put_blob("os-images/test", &content).await.status(), StatusCode::CREATED);
    }
    let put = server.put_manifest("os-images/test", "v1", IMAGE, &layout.manifest).await;
    assert_eq!(put.status(), StatusCode::CREATED);

    let policy = scratch.path().join("policy.json");
    fs::write(&policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
    let storage = scratch.path().join("storage.conf");
    let place = |name: &str| scratch.path().join(name).display().to_string();
    let (run_root, graph_root) = (place("run"), place("graph"));
    fs::write(
        &storage,
        format!("[storage]\ndriver = \"vfs\"\nrunroot = \"{run_root}\"\ngraphroot = \"{graph_root}\"\n"),
    )
    .unwrap();
    let podman = |verb: &str, arguments: &[&str]| {
        let mut command = Command::new("podman");
        command.env("STORAGE_DRIVER", "vfs").env("CONTAINERS_STORAGE_CONF", &storage).arg(verb);
        if verb != "tag" && verb != "rmi" {
            command.args(["-q", "--tls-verify=false", "--signature-policy"]).arg(&policy);
        }
        command.args(arguments);
        command
    };
    let by_digest = format!("{}/os-images/test@{}", server.address, sha256(&layout.manifest));
    succeed(podman("pull", &[&by_digest])).await;
    let by_tag = format!("{}/os-images/test:v1", server.address);
    let id = succeed(podman("pull", &[&by_tag])).await;

    let copy = format!("{}/podman/copy:v2", server.address);
    succeed(podman("tag", &[&by_tag, &copy])).await;
    succeed(podman("push", &[&copy])).await;
    succeed(podman("rmi", &["--force", id.trim()])).await;
    assert_eq!(succeed(podman("pull", &[&copy])).await, id, "the same image comes back");
    let name: RepositoryName = "podman/copy".parse().unwrap();
    let pushed = server.registry.resolve(&name, &Reference::Tag("v2".parse().unwrap())).await.unwrap();
    assert_eq!(pushed.media_type, IMAGE);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs crane, run by .ci/run"]
async fn crane_copies_validates_and_deletes() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("store");
    let server = Server::open(config(&root), Arc::new(AllowAll)).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    let crane = |arguments: &[&str]| {
        let mut command = Command::new("crane");
        command.args(arguments).arg("--insecure");
        command
    };
    let remote = format!("{}/os-images/test:v1", server.address);
    succeed(crane(&["push", &layout.directory.display().to_string(), &remote])).await;
    let digest = sha256(&layout.manifest).to_string();
    assert_eq!(succeed(crane(&["digest", &remote])).await.trim(), digest);
    succeed(crane(&["validate", "--remote", &remote])).await;

    let out = scratch.path().join("out");
    succeed(crane(&["pull", "--format", "oci", &remote, &out.display().to_string()])).await;
    assert_eq!(image_in(&out), sha256(&layout.manifest));

    let copy = format!("{}/other:v2", server.address);
    succeed(crane(&["copy", &remote, &copy])).await;
    assert_eq!(succeed(crane(&["ls", &copy.replace(":v2", "")])).await, "v2\n");
    succeed(crane(&["delete", &format!("{}/other@{digest}", server.address)])).await;
    assert_eq!(succeed(crane(&["ls", &copy.replace(":v2", "")])).await, "");

    corrupt(&root, &sha256(&layout.layer));
    let spoiled = run(crane(&["validate", "--remote", &remote])).await;
    assert!(!spoiled.status.success(), "a damaged blob must not validate");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs go and its module proxy, run by .ci/run"]
async fn oras_pushes_attaches_discovers_and_pulls() {
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("oras-roundtrip");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".");
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oras"));
    succeed(build).await;

    let root = scratch.path().join("store");
    let server = Server::open(config(&root), Arc::new(AllowAll)).await;
    let out = scratch.path().join("out");
    let mut roundtrip = Command::new(program);
    roundtrip.arg(format!("{}/os-images/rootfs", server.address)).arg(&out);
    let printed = succeed(roundtrip).await;
    assert_eq!(image_in(&out).to_string(), printed.trim());
}
