//! Import and export of images as directories and archives.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use registry::{Error, RepositoryName, Tag};
use serde_json::{Value, json};

use crate::support::{IMAGE, Server, descriptor, image, noise, sha256};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn name(text: &str) -> RepositoryName {
    text.parse().unwrap()
}

/// A registry with an image, an index that lists it, and content that is not exported.
async fn filled() -> Server {
    let server = Server::start().await;
    let document = server.push_image("a", "v1", "x").await;
    server.push_image("a", "other", "y").await;
    let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor(IMAGE, &document)]});
    server.put_manifest("a", "list", INDEX, list.to_string().as_bytes()).await;
    server
}

async fn export(server: &Server, repository: &str, only: Option<&[&str]>) -> Vec<u8> {
    let only = only.map(|tags| tags.iter().map(|tag| tag.parse().unwrap()).collect::<BTreeSet<Tag>>());
    server.registry.export(&name(repository), only, Vec::new()).await.unwrap()
}

fn files(archive: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(archive);
    archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().to_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn an_export_is_imported_and_exported_again_to_the_same_bytes() {
    let server = filled().await;
    let archive = export(&server, "a", Some(&["v1", "list"])).await;
    assert_eq!(files(&archive)[..2], ["oci-layout", "index.json"]);
    assert_eq!(files(&archive).len(), 2 + 4, "two manifests, a configuration and a layer");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("images.tar");
    fs::write(&path, &archive).unwrap();
    let imported = server.registry.import(&path, &name("from/tar")).await.unwrap();
    assert_eq!((imported.tags.len(), imported.manifests, imported.blobs), (2, 2, 2));
    assert_eq!(export(&server, "from/tar", None).await, archive);

    let layout = directory.path().join("layout");
    tar::Archive::new(archive.as_slice()).unpack(&layout).unwrap();
    server.registry.import(&layout, &name("from/directory")).await.unwrap();
    assert_eq!(export(&server, "from/directory", None).await, archive);
    // A second import finds everything.
    let again = server.registry.import(&layout, &name("from/directory")).await.unwrap();
    assert_eq!((again.blobs, again.bytes), (0, 0));
}

#[tokio::test]
async fn an_export_without_a_layer_fails_with_its_name_except_where_images_may_be_sparse() {
    let server = Server::start_with(|config| config.sparse_images = vec!["mirror/**".parse().unwrap()]).await;
    let mirrored = image(b"{}", &[b"layer"]);
    for repository in ["a", "mirror/a"] {
        server.push_image(repository, "v1", "x").await;
        server.push_image(repository, "whole", "y").await;
        server.put_blob(repository, b"{}").await;
        server.put_blob(repository, b"layer").await;
        server.put_manifest(repository, "v2", IMAGE, &mirrored).await;
        let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            descriptor(IMAGE, &mirrored), descriptor(IMAGE, b"of another platform"),
        ]});
        server.put_manifest(repository, "list", INDEX, list.to_string().as_bytes()).await;
    }
    let (all, complete) = (export(&server, "mirror/a", None).await, export(&server, "a", None).await);
    assert_eq!(all, complete);

    // The layer is gone, as after a move into quarantine.
    fs::remove_file(server.root().join("blobs/sha256").join(sha256(b"layer").hex())).unwrap();
    for tags in [vec!["v2"], vec!["list"], vec!["v1", "v2"]] {
        let only = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        let refused = server.registry.export(&name("a"), Some(only), Vec::new()).await.unwrap_err();
        let why = refused.to_string();
        assert!(matches!(refused, Error::Incomplete { .. }), "{why}");
        for part in ["a:", tags[tags.len() - 1], &sha256(b"layer").to_string()] {
            assert!(why.contains(part), "{why}");
        }
    }
    export(&server, "a", Some(&["v1", "whole"])).await;
    let sparse = files(&export(&server, "mirror/a", None).await);
    assert_eq!(sparse.len(), files(&all).len() - 1);
}

#[tokio::test]
async fn the_live_directory_of_a_repository_is_imported_like_any_layout() {
    let server = filled().await;
    server.registry.flush_layouts().await.unwrap();
    let target = Server::start().await;
    let root = server.root();
    target.registry.import(&root.join("repos/a"), &name("copy")).await.unwrap();
    assert_eq!(export(&target, "copy", None).await, export(&server, "a", None).await);
}

#[tokio::test]
async fn an_archive_of_docker_save_becomes_an_image() {
    let directory = tempfile::tempdir().unwrap();
    let config = br#"{"architecture":"amd64","os":"linux"}"#;
    let layer = noise(1, 2 << 20);
    let saved = json!([{"Config": "c0ffee.json", "RepoTags": ["example.com:5000/os/debian:12.5"], "Layers": ["ab/layer.tar"]}]);
    let mut archive = tar::Builder::new(Vec::new());
    let saved = saved.to_string().into_bytes();
    for (path, content) in
        [("ab/layer.tar", layer.as_slice()), ("c0ffee.json", config), ("manifest.json", &saved)]
    {
        let mut head = tar::Header::new_gnu();
        head.set_size(content.len() as u64);
        archive.append_data(&mut head, path, content).unwrap();
    }
    let path = directory.path().join("saved.tar");
    fs::write(&path, archive.into_inner().unwrap()).unwrap();
    let server = Server::start().await;
    let imported = server.registry.import(&path, &name("os/debian")).await.unwrap();
    assert_eq!((imported.manifests, imported.blobs), (1, 2));
    let response = server.get("/v2/os/debian/manifests/12.5").await;
    let manifest: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(manifest["layers"][0]["digest"], sha256(&layer).to_string());
    assert_eq!(manifest["layers"][0]["mediaType"], "application/vnd.docker.image.rootfs.diff.tar");
    let blob = server.get(&format!("/v2/os/debian/blobs/{}", sha256(&layer))).await;
    assert_eq!(blob.bytes().await.unwrap(), layer);
}

#[tokio::test]
async fn the_directory_of_a_docker_registry_is_imported_with_all_its_repositories() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("docker/registry/v2");
    let put = |path: String, content: &[u8]| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let document = image(b"{}", &[b"layer"]);
    for content in [document.as_slice(), b"{}", b"layer"] {
        let hex = sha256(content).hex().to_owned();
        put(format!("blobs/sha256/{}/{hex}/data", &hex[..2]), content);
    }
    for name in ["debian", "team/os"] {
        let link = sha256(&document).to_string();
        put(format!("repositories/{name}/_manifests/tags/v1/current/link"), link.as_bytes());
        put(format!("repositories/{name}/_uploads/x/data"), b"half");
    }
    let server = Server::start().await;
    let imported = server.registry.import_registry(directory.path()).await.unwrap();
    let names: Vec<&str> = imported.keys().map(RepositoryName::as_str).collect();
    assert_eq!(names, ["debian", "team/os"]);
    for name in names {
        let response = server.get(&format!("/v2/{name}/manifests/v1")).await;
        assert_eq!(response.bytes().await.unwrap(), document);
        let layer = server.get(&format!("/v2/{name}/blobs/{}", sha256(b"layer"))).await;
        assert_eq!(layer.bytes().await.unwrap(), b"layer".as_slice());
    }
    assert!(server.registry.import_registry(&root).await.is_err());
}

fn write_layout(root: &Path, entries: Value, blobs: &[(&str, &[u8])]) {
    fs::create_dir_all(root.join("blobs/sha256")).unwrap();
    fs::write(root.join("index.json"), json!({"schemaVersion": 2, "manifests": entries}).to_string())
        .unwrap();
    for (hex, content) in blobs {
        fs::write(root.join("blobs/sha256").join(hex), content).unwrap();
    }
}

#[tokio::test]
async fn an_invalid_or_inconsistent_source_is_refused_and_leaves_nothing() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let document = image(b"{}", &[b"layer"]);
    let hex = |content: &[u8]| sha256(content).hex().to_owned();
    let (manifest, config, layer) = (hex(&document), hex(b"{}"), hex(b"layer"));
    let entry = json!([descriptor(IMAGE, &document)]);
    type Blobs<'a> = Vec<(&'a str, &'a [u8])>;
    let cases: [(&str, Value, Blobs<'_>); 4] = [
        ("no manifest", entry.clone(), vec![]),
        ("another manifest", entry.clone(), vec![(&manifest, b"{}")]),
        ("no layer", entry.clone(), vec![(&manifest, &document), (&config, b"{}")]),
        ("another layer", entry, vec![(&manifest, &document), (&config, b"{}"), (&layer, b"evil!")]),
    ];
    for (what, entries, blobs) in cases {
        let root = directory.path().join(what);
        write_layout(&root, entries, &blobs);
        let refused = server.registry.import(&root, &name("a")).await;
        assert!(refused.is_err(), "{what}");
        assert_eq!(fs::read_dir(server.root().join("uploads")).unwrap().count(), 0, "{what}");
    }
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(directory.path().join("noise"), noise(3, 100_000)).unwrap();
    for path in [empty, directory.path().join("noise"), directory.path().join("absent")] {
        assert!(server.registry.import(&path, &name("a")).await.is_err());
    }
    let escaping = directory.path().join("escaping");
    fs::create_dir(&escaping).unwrap();
    let saved = json!([{"Config": "../noise", "RepoTags": null, "Layers": []}]);
    fs::write(escaping.join("manifest.json"), saved.to_string()).unwrap();
    let refused = server.registry.import(&escaping, &name("a")).await;
    assert!(matches!(refused, Err(Error::NotAnArchive(_))), "{refused:?}");
    assert!(server.registry.tags(&name("a")).await.unwrap().is_empty());
}

#[tokio::test]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_reads_an_export_and_its_output_is_imported() {
    let server = filled().await;
    let directory = tempfile::tempdir().unwrap();
    let exported = directory.path().join("exported.tar");
    fs::write(&exported, export(&server, "a", Some(&["v1"])).await).unwrap();
    let written = directory.path().join("written.tar");
    let output = tokio::process::Command::new("skopeo")
        .args(["--insecure-policy", "copy", "--preserve-digests"])
        .arg(format!("oci-archive:{}:v1", exported.display()))
        .arg(format!("oci-archive:{}:v9", written.display()))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let imported = server.registry.import(&written, &name("b")).await.unwrap();
    assert_eq!(imported.tags, BTreeSet::from(["v9".parse().unwrap()]));
    let both = [server.get("/v2/a/manifests/v1").await, server.get("/v2/b/manifests/v9").await];
    let [one, other] = both.map(|response| response.bytes());
    assert_eq!(one.await.unwrap(), other.await.unwrap());
}

#[tokio::test]
#[ignore = "needs skopeo, run by .ci/run"]
async fn a_docker_archive_of_skopeo_is_imported_with_its_layers_and_links() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let mut layer = tar::Builder::new(Vec::new());
    let mut head = tar::Header::new_ustar();
    head.set_size(5);
    layer.append_data(&mut head, "etc/x", b"12345".as_slice()).unwrap();
    let layer = layer.into_inner().unwrap();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [sha256(&layer).to_string()]},
    });
    let config = config.to_string().into_bytes();
    let document = image(&config, &[&layer]);
    let source = directory.path().join("layout");
    let mut entry = descriptor(IMAGE, &document);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": "v1"});
    let contents = [config.as_slice(), &layer, &document].map(|content| (sha256(content), content));
    let blobs: Vec<(&str, &[u8])> =
        contents.iter().map(|(digest, content)| (digest.hex(), *content)).collect();
    write_layout(&source, json!([entry]), &blobs);
    fs::write(source.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let saved = directory.path().join("saved.tar");
    let output = tokio::process::Command::new("skopeo")
        .args(["--insecure-policy", "copy"])
        .arg(format!("oci:{}:v1", source.display()))
        .arg(format!("docker-archive:{}:example.com/os:v2", saved.display()))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let imported = server.registry.import(&saved, &name("os")).await.unwrap();
    assert_eq!(imported.tags, BTreeSet::from(["v2".parse().unwrap()]));
    let blob = server.get(&format!("/v2/os/blobs/{}", sha256(&layer))).await;
    assert_eq!(blob.bytes().await.unwrap(), layer);
}
