//! skopeo: copying in and out, listing, deleting, Docker's older format, logging in; with images made by umoci.

use std::fs;
use std::process::Command;

use registry::RepositoryName;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{corrupt, image_in, run, served, succeed, write_layout};
use crate::support::sha256;

pub(super) fn skopeo(arguments: &[&str]) -> Command {
    let mut command = Command::new("skopeo");
    command.arg("--insecure-policy").args(arguments);
    command
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_copies_an_image_in_and_out_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    let remote = format!("docker://{}/os-images/test:v1", server.address);
    let source = format!("oci:{}:v1", layout.directory.display());
    let push = ["copy", "-q", "--preserve-digests", "--dest-tls-verify=false", &source, &remote];
    succeed(skopeo(&push)).await;
    // A second push finds every blob.
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
async fn skopeo_detects_a_blob_that_is_corrupted_in_the_store() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
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
    corrupt(&scratch.path().join("store"), &sha256(&layout.layer));
    assert!(!pull("spoiled").await, "the pull of a corrupted blob must fail");
    // A push repairs the blob after the client received 404 for it.
    let name: RepositoryName = "a".parse().unwrap();
    let blob = format!("/v2/{name}/blobs/{}", sha256(&layout.layer));
    assert_eq!(server.send(reqwest::Method::DELETE, &blob).await.status(), StatusCode::ACCEPTED);
    succeed(skopeo(&push)).await;
    assert!(pull("after").await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs umoci and skopeo, run by .ci/run"]
async fn an_image_made_by_umoci_is_pushed_pulled_and_unpacked() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
    let place = |name: &str| scratch.path().join(name).display().to_string();
    let umoci = |arguments: &[&str]| {
        let mut command = Command::new("umoci");
        command.args(arguments);
        command
    };
    let image = format!("{}:v1", place("made"));
    succeed(umoci(&["init", "--layout", &place("made")])).await;
    succeed(umoci(&["new", "--image", &image])).await;
    succeed(umoci(&["unpack", "--rootless", "--image", &image, &place("bundle")])).await;
    fs::write(scratch.path().join("bundle/rootfs/hello"), "from a machine image").unwrap();
    succeed(umoci(&["repack", "--image", &image, &place("bundle")])).await;

    let remote = format!("docker://{}/os-images/umoci:v1", server.address);
    let push = ["copy", "-q", "--dest-tls-verify=false", &format!("oci:{image}"), &remote];
    succeed(skopeo(&push)).await;
    let back = format!("{}:v1", place("back"));
    succeed(skopeo(&["copy", "-q", "--src-tls-verify=false", &remote, &format!("oci:{back}")])).await;
    succeed(umoci(&["unpack", "--rootless", "--image", &back, &place("out")])).await;
    let hello = fs::read_to_string(scratch.path().join("out/rootfs/hello")).unwrap();
    assert_eq!(hello, "from a machine image");
}
