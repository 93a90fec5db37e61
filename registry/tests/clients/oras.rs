//! The oras program: artifacts in and out, attached to each other, copied, indexed, deleted; logging in.
//!
//! Built from its own source, pinned in `tests/oras/go.mod` and checked against `go.sum` there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{run, served, succeed};
use crate::support::{INDEX, noise};

const KIND: &str = "application/vnd.example.os-image";
const NOTE: &str = "application/vnd.example.note";

pub(super) async fn build(scratch: &Path) -> PathBuf {
    let program = scratch.join("oras");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg("oras.land/oras/cmd/oras");
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oras"));
    succeed(build).await;
    program
}

/// The program in `scratch`, with its credentials stored there as well.
pub(super) fn oras(scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(scratch.join("oras"));
    command
        .current_dir(scratch)
        .env("HOME", scratch)
        .env("DOCKER_CONFIG", scratch.join("docker"))
        .args(arguments);
    command
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs go and its module proxy, run by .ci/run"]
async fn oras_pushes_attaches_discovers_copies_and_deletes() {
    let scratch = tempfile::tempdir().unwrap();
    build(scratch.path()).await;
    let server = served(scratch.path()).await;
    let oras = |arguments: &[&str]| oras(scratch.path(), arguments);
    let rootfs = noise(21, 3_000_000);
    fs::write(scratch.path().join("rootfs.tar.gz"), &rootfs).unwrap();
    fs::write(scratch.path().join("note.txt"), "a note").unwrap();
    let (image, repository) =
        (format!("{}/os-images/rootfs:v1", server.address), format!("{}/os-images/rootfs", server.address));

    let file = "rootfs.tar.gz:application/vnd.example.rootfs.tar.gz";
    succeed(oras(&[
        "push",
        "--plain-http",
        "--artifact-type",
        KIND,
        &format!("{image},latest,stable"),
        file,
    ]))
    .await;
    assert_eq!(succeed(oras(&["repo", "tags", "--plain-http", &repository])).await, "latest\nstable\nv1\n");
    assert_eq!(
        succeed(oras(&["repo", "ls", "--plain-http", &server.address.to_string()])).await,
        "os-images/rootfs\n"
    );
    succeed(oras(&["pull", "--plain-http", "-o", "out", &image])).await;
    assert_eq!(fs::read(scratch.path().join("out/rootfs.tar.gz")).unwrap(), rootfs);

    succeed(oras(&[
        "attach",
        "--plain-http",
        "--artifact-type",
        NOTE,
        "--annotation",
        "k=v",
        &image,
        "note.txt:text/plain",
    ]))
    .await;
    for filter in [&[][..], &["--artifact-type", NOTE]] {
        let arguments =
            [&["discover", "--plain-http", "--format", "json"], filter, &[image.as_str()]].concat();
        let found: Value = serde_json::from_str(&succeed(oras(&arguments)).await).unwrap();
        let listed = found.get("referrers").or(found.get("manifests")).unwrap();
        assert_eq!(listed[0]["artifactType"], json!(NOTE), "{found}");
        assert_eq!(listed[0]["annotations"]["k"], json!("v"), "{found}");
    }
    let digest = succeed(oras(&["resolve", "--plain-http", &image])).await.trim().to_owned();
    let fallback = digest.replace(':', "-");
    let tag = server.head(&format!("/v2/os-images/rootfs/manifests/{fallback}")).await;
    assert_eq!(
        tag.status(),
        StatusCode::NOT_FOUND,
        "the list comes from the referrers API, so no tag exists"
    );

    let copy = format!("{}/copies/rootfs:v1", server.address);
    succeed(oras(&["cp", "-r", "--from-plain-http", "--to-plain-http", &image, &copy])).await;
    let found = succeed(oras(&["discover", "--plain-http", "--format", "json", &copy])).await;
    assert!(found.contains(NOTE), "{found}");

    let many = ["manifest", "index", "create", "--plain-http", "--artifact-type", KIND];
    succeed(oras(&[&many[..], &[&format!("{repository}:many"), "v1"]].concat())).await;
    let stored = server.get("/v2/os-images/rootfs/manifests/many").await;
    assert_eq!(stored.headers()["content-type"], INDEX);
    succeed(oras(&["manifest", "fetch", "--plain-http", &format!("{repository}:many")])).await;
    succeed(oras(&["tag", "--plain-http", &image, "again"])).await;

    succeed(oras(&["backup", "--plain-http", "--include-referrers", "-o", "saved.tar", &image])).await;
    let restored = format!("{}/restored/rootfs:v1", server.address);
    succeed(oras(&["restore", "--plain-http", "--input", "saved.tar", &restored])).await;
    assert_eq!(succeed(oras(&["resolve", "--plain-http", &restored])).await.trim(), digest);

    succeed(oras(&["manifest", "delete", "--plain-http", "--force", &format!("{repository}@{digest}")]))
        .await;
    assert!(!run(oras(&["pull", "--plain-http", "-o", "gone", &image])).await.status.success());
    assert_eq!(succeed(oras(&["repo", "tags", "--plain-http", &repository])).await, "many\n");
    let (blob, size) = (crate::support::sha256(&rootfs), rootfs.len().to_string());
    let described =
        succeed(oras(&["blob", "fetch", "--plain-http", "--descriptor", &format!("{repository}@{blob}")]))
            .await;
    assert!(described.contains(&size), "{described}");
    succeed(oras(&["blob", "delete", "--plain-http", "--force", &format!("{repository}@{blob}")])).await;
    let head = server.head(&format!("/v2/os-images/rootfs/blobs/{blob}")).await;
    assert_eq!(head.status(), StatusCode::NOT_FOUND);
}
