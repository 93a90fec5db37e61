//! podman and buildah: pulling, tagging, pushing, building, lists of platforms, logging in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use registry::{Reference, RepositoryName};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Layout, served, succeed, write_layout};
use crate::support::{IMAGE, INDEX, Server, sha256};

/// A container storage with a policy that accepts unsigned images.
pub(super) struct Storage {
    policy: PathBuf,
    config: PathBuf,
    home: PathBuf,
}

impl Storage {
    pub(super) fn new(scratch: &Path) -> Self {
        let place = |name: &str| scratch.join(name);
        let storage =
            Storage { policy: place("policy.json"), config: place("storage.conf"), home: place("home") };
        fs::create_dir(&storage.home).unwrap();
        fs::write(storage.home.join("auth.json"), "{}").unwrap();
        fs::write(&storage.policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
        let (run, graph) = (place("run").display().to_string(), place("graph").display().to_string());
        let config = format!("[storage]\ndriver = \"vfs\"\nrunroot = \"{run}\"\ngraphroot = \"{graph}\"\n");
        fs::write(&storage.config, config).unwrap();
        storage
    }

    pub(super) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .env("STORAGE_DRIVER", "vfs")
            .env("CONTAINERS_STORAGE_CONF", &self.config)
            .env("HOME", &self.home);
        command.env("REGISTRY_AUTH_FILE", self.home.join("auth.json")).args(arguments);
        command
    }

    /// A command that accesses a registry: pulls and pushes have flags in common.
    pub(super) fn remote(&self, program: &str, verb: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(program, &[verb, "-q", "--tls-verify=false", "--signature-policy"]);
        command.arg(&self.policy).args(arguments);
        command
    }
}

async fn push(server: &Server, repository: &str, layout: &Layout) {
    for content in fs::read_dir(layout.directory.join("blobs/sha256")).unwrap() {
        let content = fs::read(content.unwrap().path()).unwrap();
        assert_eq!(server.put_blob(repository, &content).await.status(), StatusCode::CREATED);
    }
    let put = server.put_manifest(repository, "v1", IMAGE, &layout.manifest).await;
    assert_eq!(put.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman, run by .ci/run"]
async fn podman_pulls_and_pushes() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    push(&server, "os-images/test", &layout).await;
    let storage = Storage::new(scratch.path());
    let by_digest = format!("{}/os-images/test@{}", server.address, sha256(&layout.manifest));
    succeed(storage.remote("podman", "pull", &[&by_digest])).await;
    let by_tag = format!("{}/os-images/test:v1", server.address);
    let id = succeed(storage.remote("podman", "pull", &[&by_tag])).await;

    let copy = format!("{}/podman/copy:v2", server.address);
    succeed(storage.command("podman", &["tag", &by_tag, &copy])).await;
    succeed(storage.remote("podman", "push", &[&copy])).await;
    succeed(storage.command("podman", &["rmi", "--force", id.trim()])).await;
    assert_eq!(succeed(storage.remote("podman", "pull", &[&copy])).await, id, "the same image comes back");
    let name: RepositoryName = "podman/copy".parse().unwrap();
    let pushed = server.registry.resolve(&name, &Reference::Tag("v2".parse().unwrap())).await.unwrap();
    assert_eq!(pushed.media_type, IMAGE);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman, run by .ci/run"]
async fn podman_pushes_a_list_of_platforms() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    push(&server, "os-images/test", &layout).await;
    let storage = Storage::new(scratch.path());
    let image = format!("docker://{}/os-images/test:v1", server.address);
    let list = format!("docker://{}/os-images/many:v1", server.address);
    succeed(storage.command("podman", &["manifest", "create", "many"])).await;
    succeed(storage.command("podman", &["manifest", "add", "--tls-verify=false", "many", &image])).await;
    // This verb takes no policy option; the policy of its package accepts unsigned images as well.
    let push =
        storage.command("podman", &["manifest", "push", "-q", "--all", "--tls-verify=false", "many", &list]);
    succeed(push).await;
    let stored = server.get("/v2/os-images/many/manifests/v1").await;
    assert_eq!(stored.headers()["content-type"], INDEX);
    let stored: Value = serde_json::from_slice(&stored.bytes().await.unwrap()).unwrap();
    assert_eq!(stored["manifests"][0]["digest"], json!(sha256(&layout.manifest).to_string()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs buildah, run by .ci/run"]
async fn buildah_builds_on_a_pulled_image_and_pushes_the_result() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    push(&server, "os-images/test", &layout).await;
    let storage = Storage::new(scratch.path());
    let base = format!("docker://{}/os-images/test:v1", server.address);
    let container = succeed(storage.remote("buildah", "from", &[&base])).await;
    fs::write(scratch.path().join("added"), "one more file").unwrap();
    let added = scratch.path().join("added").display().to_string();
    succeed(storage.command("buildah", &["copy", "-q", container.trim(), &added, "/added"])).await;
    let built = format!("docker://{}/built:v1", server.address);
    succeed(storage.remote("buildah", "commit", &[container.trim(), &built])).await;

    let stored = server.get("/v2/built/manifests/v1").await.bytes().await.unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let layers = stored["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    for layer in layers {
        let blob = format!("/v2/built/blobs/{}", layer["digest"].as_str().unwrap());
        assert_eq!(server.head(&blob).await.status(), StatusCode::OK);
    }
    succeed(storage.remote("podman", "pull", &[&built])).await;
}
