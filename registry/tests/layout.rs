//! The directory of a repository is an OCI image layout, live.

use std::path::Path;
use std::sync::Arc;

use registry::{AllowAll, RepositoryName};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{IMAGE, Server, config, descriptor, image, sha256};

async fn open(root: &Path) -> Server {
    Server::open(config(root), Arc::new(AllowAll)).await
}

fn index(root: &Path, directory: &str) -> Value {
    serde_json::from_slice(&std::fs::read(root.join("repos").join(directory).join("index.json")).unwrap())
        .unwrap()
}

fn entry(document: &[u8], tag: Option<&str>) -> Value {
    let mut entry = descriptor(IMAGE, document);
    if let Some(tag) = tag {
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    }
    entry
}

#[tokio::test]
async fn the_layout_lists_tags_in_order_and_follows_every_change() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let one = server.push_image("a/index.json", "v2", "one").await;
    assert_eq!(server.put_manifest("a/index.json", "v1", IMAGE, &one).await.status(), StatusCode::CREATED);
    let two = server.push_image("a/index.json", "untagged", "two").await;
    server.registry.flush_layouts().await.unwrap();
    let expected = [entry(&two, Some("untagged")), entry(&one, Some("v1")), entry(&one, Some("v2"))];
    assert_eq!(index(root.path(), "a=index.json")["manifests"], json!(expected));

    server.send(Method::DELETE, "/v2/a/index.json/manifests/untagged").await;
    server.send(Method::DELETE, "/v2/a/index.json/manifests/v2").await;
    server.registry.flush_layouts().await.unwrap();
    let expected = [entry(&one, Some("v1")), entry(&two, None)];
    assert_eq!(index(root.path(), "a=index.json")["manifests"], json!(expected));
    let directory = root.path().join("repos/a=index.json");
    let layout = std::fs::read(directory.join("oci-layout")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&layout).unwrap(), json!({"imageLayoutVersion": "1.0.0"}));
    let through_link = directory.join("blobs/sha256").join(sha256(&one).hex());
    assert_eq!(std::fs::read(through_link).unwrap(), one);
}

#[tokio::test]
async fn a_lost_or_outdated_layout_is_derived_again_to_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let document = server.push_image("a", "v1", "x").await;
    let mut artifact: Value = serde_json::from_slice(&image(b"{}", &[])).unwrap();
    server.put_blob("a", b"{}").await;
    artifact["subject"] = descriptor(IMAGE, &document);
    let artifact = artifact.to_string().into_bytes();
    assert_eq!(server.put_manifest("a", "sig", IMAGE, &artifact).await.status(), StatusCode::CREATED);
    server.registry.flush_layouts().await.unwrap();
    let path = root.path().join("repos/a/index.json");
    let before = std::fs::read(&path).unwrap();
    drop(server);

    std::fs::write(&path, b"torn").unwrap();
    std::fs::remove_file(root.path().join("repos/a/oci-layout")).unwrap();
    let referrers = root.path().join("repos/a/_referrers/sha256").join(sha256(&document).hex());
    std::fs::remove_dir_all(&referrers).unwrap();
    let server = open(root.path()).await;
    let rebuilt = server.registry.rebuild().await.unwrap();
    assert_eq!((rebuilt.repositories, rebuilt.manifests, rebuilt.corrupted), (1, 2, 0));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(root.path().join("repos/a/oci-layout").exists());
    assert_eq!(std::fs::read_dir(referrers).unwrap().count(), 1);
}

#[tokio::test]
async fn names_that_look_like_parts_of_a_layout_do_not_collide() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let hex = sha256(b"x").hex().to_owned();
    let names =
        ["a", "a/b", "a/index.json", "a/oci-layout", &format!("a/blobs/sha256/{hex}"), "foo/manifests/bar"];
    for name in names {
        server.push_image(name, "v1", name).await;
    }
    server.registry.flush_layouts().await.unwrap();
    for name in names {
        let parsed: RepositoryName = name.parse().unwrap();
        assert_eq!(server.registry.tags(&parsed).await.unwrap().len(), 1);
        assert_eq!(index(root.path(), &name.replace('/', "="))["manifests"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_change_updates_the_layout_automatically() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let document = server.push_image("a", "v1", "x").await;
    let path = root.path().join("repos/a/index.json");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains(sha256(&document).hex())) {
        assert!(std::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
}

async fn run(program: &str, arguments: &[&str]) -> String {
    let output = tokio::process::Command::new(program).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_copies_out_of_the_live_directory() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let document = server.push_image("os/debian", "12.5", "x").await;
    server.registry.flush_layouts().await.unwrap();
    let source = format!("oci:{}:12.5", root.path().join("repos/os=debian").display());
    let raw = run("skopeo", &["inspect", "--raw", &source]).await;
    assert_eq!(raw.as_bytes(), document);
    let copy = tempfile::tempdir().unwrap();
    let target = format!("dir:{}", copy.path().display());
    run("skopeo", &["--insecure-policy", "copy", "--preserve-digests", &source, &target]).await;
    assert_eq!(std::fs::read(copy.path().join("manifest.json")).unwrap(), document);
}

#[tokio::test]
#[ignore = "needs umoci, run by .ci/run"]
async fn umoci_lists_the_live_directory() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    server.push_image("a", "v2", "x").await;
    server.push_image("a", "v1", "y").await;
    server.registry.flush_layouts().await.unwrap();
    let layout = root.path().join("repos/a");
    let listed = run("umoci", &["ls", "--layout", layout.to_str().unwrap()]).await;
    assert_eq!(listed.split_whitespace().collect::<Vec<&str>>(), ["v1", "v2"]);
}
