//! What an immutable tag leads to stays, whatever a client, retention or an import asks for.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use registry::{AllowAll, Error, GcOptions, RepositoryName, RetentionRule};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::{
    CONFIG, IMAGE, INDEX, LAYER, Server, config, descriptor, header, noise, refusal, sha256,
};

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// A registry in which tags `v*` of `os/**` are immutable, on a directory of the test.
async fn server(root: &std::path::Path) -> Server {
    let mut config = config(root);
    config.immutable_tags = vec!["os/**:v*".parse().unwrap()];
    config.touch_interval = Duration::ZERO;
    Server::open(config, Arc::new(AllowAll)).await
}

/// Pushes an index of one image under a tag; returns the image and the blobs of the image.
async fn push_index(server: &Server, repository: &str, tag: &str) -> (Vec<u8>, [Vec<u8>; 2]) {
    let blobs = [noise(1, 100), noise(2, 100)];
    for blob in &blobs {
        assert_eq!(server.put_blob(repository, blob).await.status(), StatusCode::CREATED);
    }
    // Without `mediaType`, so that the media type is the one of the request.
    let layers = [descriptor(LAYER, &blobs[1])];
    let child = json!({"schemaVersion": 2, "config": descriptor(CONFIG, &blobs[0]), "layers": layers});
    let child = child.to_string().into_bytes();
    let put = server.put_manifest(repository, &sha256(&child).to_string(), IMAGE, &child).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor(IMAGE, &child)]});
    let put = server.put_manifest(repository, tag, INDEX, index.to_string().as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    (child, blobs)
}

#[tokio::test]
async fn nothing_below_an_immutable_tag_is_deleted_or_changed() {
    let root = tempfile::tempdir().unwrap();
    let server = server(root.path()).await;
    let denied = (403, vec!["DENIED".to_owned()]);
    let (child, blobs) = push_index(&server, "os/debian", "v1").await;
    let name = sha256(&child);
    let mut below = vec![format!("manifests/{name}")];
    below.extend(blobs.iter().map(|blob| format!("blobs/{}", sha256(blob))));
    for path in &below {
        let path = format!("/v2/os/debian/{path}");
        assert_eq!(refusal(server.send(Method::DELETE, &path).await).await, denied, "{path}");
        assert_eq!(server.head(&path).await.status(), StatusCode::OK, "{path}");
    }
    let other_type = server.put_manifest("os/debian", &name.to_string(), DOCKER_MANIFEST, &child).await;
    assert_eq!(refusal(other_type).await, denied);
    let served = server.get(&format!("/v2/os/debian/manifests/{name}")).await;
    assert_eq!(header(&served, "content-type"), IMAGE);
    assert_eq!(
        server.put_manifest("os/debian", &name.to_string(), IMAGE, &child).await.status(),
        StatusCode::CREATED,
        "the same again"
    );

    // Where the tag is not immutable all of this is allowed.
    push_index(&server, "misc", "v1").await;
    let put = server.put_manifest("misc", &name.to_string(), DOCKER_MANIFEST, &child).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    for path in &below {
        let path = format!("/v2/misc/{path}");
        assert_eq!(server.send(Method::DELETE, &path).await.status(), StatusCode::ACCEPTED, "{path}");
    }
}

#[tokio::test]
async fn retention_and_collection_keep_what_an_immutable_tag_leads_to() {
    let root = tempfile::tempdir().unwrap();
    let server = server(root.path()).await;
    let (child, blobs) = push_index(&server, "os/debian", "v1").await;
    // The image of the index has a tag of its own, which retention removes.
    server.put_manifest("os/debian", "nightly", IMAGE, &child).await;
    let later = SystemTime::now() + Duration::from_secs(40 * 24 * 3600);
    let nothing_stays = RetentionRule {
        repositories: "**".parse().unwrap(),
        tags: "*".parse().unwrap(),
        newest: 0,
        younger_than: Duration::ZERO,
    };
    let expired = server.registry.retain(vec![nothing_stays], later, false).await.unwrap();
    assert_eq!(expired.iter().map(|expired| expired.tag.as_str()).collect::<Vec<_>>(), ["nightly"]);
    let options = GcOptions { untagged: true, ..GcOptions::at(later) };
    assert_eq!(server.registry.collect(options).await.unwrap().blobs, 0);
    for blob in &blobs {
        let path = format!("/v2/os/debian/blobs/{}", sha256(blob));
        assert_eq!(server.head(&path).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn an_import_does_not_move_an_immutable_tag() {
    let root = tempfile::tempdir().unwrap();
    let server = server(root.path()).await;
    server.push_image("source", "v1", "another image").await;
    let exported = server.registry.export(&"source".parse().unwrap(), None, Vec::new()).await.unwrap();
    let archive = root.path().join("archive.tar");
    std::fs::write(&archive, exported).unwrap();
    let target: RepositoryName = "os/debian".parse().unwrap();
    let document = server.push_image("os/debian", "v1", "the image").await;
    let refused = server.registry.import(&archive, &target).await;
    assert!(matches!(refused, Err(Error::TagKept(tag)) if tag.as_str() == "v1"));
    let served = server.get("/v2/os/debian/manifests/v1").await;
    assert_eq!(served.bytes().await.unwrap(), document);
}
