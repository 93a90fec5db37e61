//! regctl: copying with referrers, artifacts, indexes, chunked blobs, sha512, deleting tags one by one.

use std::io::Write;
use std::process::{Command, Stdio};

use reqwest::StatusCode;

use super::{image_in, served, succeed, write_layout};
use crate::support::{noise, sha256};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs regctl, run by .ci/run"]
async fn regctl_copies_refers_and_deletes() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    let regctl = |arguments: &[&str]| {
        let mut command = Command::new("regctl");
        command.env("REGCTL_CONFIG", scratch.path().join("regctl.json")).args(arguments);
        command
    };
    let address = server.address.to_string();
    let small_chunks = ["--tls", "disabled", "--blob-chunk", "100000", "--blob-max", "200000"];
    succeed(regctl(&[&["registry", "set", &address, "--skip-check"], &small_chunks[..]].concat())).await;
    let (source, remote) =
        (format!("ocidir://{}:v1", layout.directory.display()), format!("{address}/os-images/test:v1"));
    succeed(regctl(&["image", "copy", &source, &remote])).await;
    let digest = sha256(&layout.manifest).to_string();
    assert_eq!(succeed(regctl(&["image", "digest", &remote])).await.trim(), digest);

    let note = scratch.path().join("note.txt");
    std::fs::write(&note, "a note about an image").unwrap();
    let note = note.display().to_string();
    succeed(regctl(&[
        "artifact",
        "put",
        "--artifact-type",
        "application/vnd.example.note",
        "--subject",
        &remote,
        "-f",
        &note,
    ]))
    .await;
    assert!(succeed(regctl(&["artifact", "list", &remote])).await.contains("application/vnd.example.note"));
    let copy = format!("{address}/copies/test:v1");
    succeed(regctl(&["image", "copy", "--referrers", &remote, &copy])).await;
    assert!(succeed(regctl(&["artifact", "tree", &copy])).await.contains("application/vnd.example.note"));
    let out = scratch.path().join("out");
    succeed(regctl(&["image", "copy", &copy, &format!("ocidir://{}:v1", out.display())])).await;
    assert_eq!(image_in(&out), sha256(&layout.manifest));

    let many = format!("{address}/os-images/test:many");
    succeed(regctl(&["index", "create", &many, "--ref", &remote])).await;
    assert_eq!(succeed(regctl(&["tag", "ls", &format!("{address}/os-images/test")])).await, "many\nv1\n");
    assert!(succeed(regctl(&["repo", "ls", &address])).await.contains("copies/test"));
    // Only the tag is deleted: the registry deletes tags alone, so no dummy manifest is pushed for it.
    succeed(regctl(&["tag", "delete", &many])).await;
    assert_eq!(succeed(regctl(&["tag", "ls", &format!("{address}/os-images/test")])).await, "v1\n");

    let content = noise(11, 500_000);
    let mut put = regctl(&["blob", "put", &format!("{address}/blobs")]);
    let sent = content.clone();
    let put = tokio::task::spawn_blocking(move || {
        let mut child = put.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&sent).unwrap();
        child.wait_with_output().unwrap()
    });
    assert!(put.await.unwrap().status.success());
    let blob = server.get(&format!("/v2/blobs/blobs/{}", sha256(&content))).await;
    assert_eq!(blob.bytes().await.unwrap(), content);
    succeed(regctl(&["manifest", "delete", "--force-tag-dereference", &remote])).await;
    assert_eq!(server.head("/v2/os-images/test/manifests/v1").await.status(), StatusCode::NOT_FOUND);
}
