//! Pushes of manifests: what is accepted, and the names that find it again.

use crate::support::{
    IMAGE, INDEX, Server, codes, config, descriptor, header, image, refusal, sha256, sha512,
};
use registry::AllowAll;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

fn named_tags(response: &Response) -> Vec<&str> {
    response.headers().get_all("oci-tag").iter().map(|value| value.to_str().unwrap()).collect()
}

async fn tags(server: &Server, repository: &str) -> Vec<String> {
    let listed = server.get(&format!("/v2/{repository}/tags/list")).await;
    let listed: Value = serde_json::from_slice(&listed.bytes().await.unwrap()).unwrap();
    listed["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_push_by_digest_sets_all_the_tags_it_names() {
    let server = Server::start().await;
    let document = server.push_image("a", "v0", "x").await;
    let digest = sha256(&document);
    let wanted: Vec<String> = (0..20).map(|number| format!("tag-{number:02}")).collect();
    let query: Vec<String> = wanted.iter().map(|tag| format!("tag={tag}")).collect();
    let put = server.put_manifest("a", &format!("{digest}?{}", query.join("&")), IMAGE, &document).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(named_tags(&put), wanted);
    for tag in &wanted {
        let head = server.head(&format!("/v2/a/manifests/{tag}")).await;
        assert_eq!(header(&head, "docker-content-digest"), digest.to_string());
    }
    assert_eq!(tags(&server, "a").await.len(), 21);

    let other = server.push_image("a", "other", "y").await;
    let put =
        server.put_manifest("a", &format!("{}?tag=tag-00&tag=tag-00", sha256(&other)), IMAGE, &other).await;
    assert_eq!(named_tags(&put), ["tag-00"], "a tag named twice is one tag, and it moves");
    assert_eq!(server.get("/v2/a/manifests/tag-00").await.bytes().await.unwrap(), other);
}

#[tokio::test]
async fn a_push_with_one_invalid_tag_sets_none() {
    let server = Server::start().await;
    let document = server.push_image("a", "v0", "x").await;
    let digest = sha256(&document);
    for (query, expected) in [
        ("tag=good&tag=-bad", (400, "MANIFEST_INVALID")),
        ("tag=good&tag=%zz", (400, "MANIFEST_INVALID")),
        ("tag=good&tag=", (400, "MANIFEST_INVALID")),
        ("tag=good&tag=..", (400, "MANIFEST_INVALID")),
        ("tag=good&tag=a%2Fb", (400, "MANIFEST_INVALID")),
    ] {
        let put = server.put_manifest("a", &format!("{digest}?{query}"), IMAGE, &document).await;
        assert_eq!(refusal(put).await, (expected.0, vec![expected.1.to_owned()]), "{query}");
    }
    let many: Vec<String> = (0..65).map(|number| format!("tag=t{number}")).collect();
    let put = server.put_manifest("a", &format!("{digest}?{}", many.join("&")), IMAGE, &document).await;
    assert_eq!(refusal(put).await, (414, vec!["UNSUPPORTED".into()]));
    let wrong = server.put_manifest("a", &format!("{}?tag=good", sha256(b"other")), IMAGE, &document).await;
    assert_eq!(refusal(wrong).await, (400, vec!["DIGEST_INVALID".into()]));
    assert_eq!(tags(&server, "a").await, ["v0"]);
}

#[tokio::test]
async fn a_push_that_could_not_set_every_tag_fails_and_a_retry_completes_it() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let document = server.push_image("a", "v0", "x").await;
    let in_the_way = root.path().join("repos/a/_tags/b");
    std::fs::create_dir(&in_the_way).unwrap();
    let push = format!("{}?tag=a&tag=b&tag=c", sha256(&document));
    let put = server.put_manifest("a", &push, IMAGE, &document).await;
    assert_eq!(refusal(put).await, (500, vec!["UNKNOWN".into()]));
    let drafts = || std::fs::read_dir(root.path().join("tmp")).unwrap().count();
    let mut left = drafts();
    for _ in 0..10 {
        if left > 0 {
            // A write of the layout may be under way. After this call it has ended, possibly with the expected failure.
            let _ = server.registry.flush_layouts().await;
            left = drafts();
        }
    }
    assert_eq!(left, 0, "no temporary file is left");
    for tag in ["a", "c"] {
        let head = server.head(&format!("/v2/a/manifests/{tag}")).await;
        assert!(matches!(head.status(), StatusCode::OK | StatusCode::NOT_FOUND), "whole or not at all");
    }
    std::fs::remove_dir(in_the_way).unwrap();
    let put = server.put_manifest("a", &push, IMAGE, &document).await;
    assert_eq!(named_tags(&put), ["a", "b", "c"]);
    assert_eq!(tags(&server, "a").await, ["a", "b", "c", "v0"]);
}

#[tokio::test]
async fn a_tag_keeps_the_algorithm_it_was_pushed_with() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let document = server.push_image("a", "short", "x").await;
    let digest = sha512(&document);
    let put = server.put_manifest("a", &format!("{digest}?tag=long"), IMAGE, &document).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(header(&put, "docker-content-digest"), digest.to_string());
    assert_eq!(header(&put, "location"), format!("/v2/a/manifests/{digest}"));
    drop(server);

    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    for (reference, expected) in [
        ("long".to_owned(), digest.to_string()),
        (digest.to_string(), digest.to_string()),
        ("short".to_owned(), sha256(&document).to_string()),
    ] {
        let get = server.get(&format!("/v2/a/manifests/{reference}")).await;
        assert_eq!(header(&get, "docker-content-digest"), expected);
        assert_eq!(header(&get, "etag"), format!("\"{expected}\""));
        assert_eq!(get.bytes().await.unwrap(), document);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        {"mediaType": IMAGE, "digest": digest.to_string(), "size": document.len()},
    ]});
    let put = server.put_manifest("a", "index", INDEX, index.to_string().as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let delete = server.send(Method::DELETE, &format!("/v2/a/manifests/{digest}")).await;
    assert_eq!(delete.status(), StatusCode::ACCEPTED);
    assert_eq!(tags(&server, "a").await, ["index", "short"]);
}

#[tokio::test]
async fn sparse_manifests_are_allowed_per_repository() {
    let server = Server::start_with(|config| {
        config.sparse_images = vec!["mirror/**".parse().unwrap()];
        config.sparse_indexes = vec!["mirror/**".parse().unwrap(), "partial".parse().unwrap()];
    })
    .await;
    let image = image(b"absent config", &[b"absent layer"]);
    let index = json!({"schemaVersion": 2, "manifests": [descriptor(IMAGE, &image)]}).to_string();
    for (repository, takes_image, takes_index) in
        [("mirror/os/debian", true, true), ("partial", false, true), ("strict", false, false)]
    {
        for (kind, document, takes) in
            [(INDEX, index.as_bytes(), takes_index), (IMAGE, image.as_slice(), takes_image)]
        {
            let put = server.put_manifest(repository, "v1", kind, document).await;
            if takes {
                assert_eq!(put.status(), StatusCode::CREATED, "{repository} {kind}");
                let get = server.get(&format!("/v2/{repository}/manifests/v1")).await;
                assert_eq!(get.bytes().await.unwrap(), document);
            } else {
                let codes = codes(put).await;
                assert!(codes.iter().all(|code| code == "MANIFEST_BLOB_UNKNOWN"), "{codes:?}");
            }
        }
    }
}

#[tokio::test]
async fn by_default_an_index_may_be_sparse_and_an_image_may_not() {
    let server = Server::start().await;
    let image = image(b"absent config", &[]);
    let index = json!({"schemaVersion": 2, "manifests": [descriptor(IMAGE, &image)]}).to_string();
    let put = server.put_manifest("a", "v1", INDEX, index.as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let put = server.put_manifest("a", "v2", IMAGE, &image).await;
    assert_eq!(refusal(put).await, (400, vec!["MANIFEST_BLOB_UNKNOWN".into()]));
}

#[tokio::test]
async fn layers_with_urls_need_not_exist() {
    let server = Server::start().await;
    server.put_blob("a", b"{}").await;
    let mut elsewhere = descriptor("application/vnd.oci.image.layer.v1.tar+gzip", b"elsewhere");
    elsewhere["urls"] = json!(["https://example.com/layer"]);
    let layers = json!([
        elsewhere,
        descriptor("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", b"1"),
        descriptor("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", b"2"),
    ]);
    for (kind, config_kind) in [
        (IMAGE, "application/vnd.oci.image.config.v1+json"),
        (DOCKER_MANIFEST, "application/vnd.docker.container.image.v1+json"),
    ] {
        let document = json!({
            "schemaVersion": 2, "mediaType": kind, "config": descriptor(config_kind, b"{}"), "layers": layers,
        });
        let put = server.put_manifest("a", "v1", kind, document.to_string().as_bytes()).await;
        assert_eq!(put.status(), StatusCode::CREATED, "{kind}");
    }
}

#[tokio::test]
async fn docker_media_types_are_served_unchanged_for_any_accept_header() {
    let server = Server::start().await;
    server.put_blob("a", b"{}").await;
    let document = json!({
        "schemaVersion": 2, "mediaType": DOCKER_MANIFEST,
        "config": descriptor("application/vnd.docker.container.image.v1+json", b"{}"), "layers": [],
    })
    .to_string();
    let put = server.put_manifest("a", "image", DOCKER_MANIFEST, document.as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let list = json!({
        "schemaVersion": 2, "mediaType": DOCKER_LIST, "manifests": [descriptor(DOCKER_MANIFEST, document.as_bytes())],
    })
    .to_string();
    let put = server.put_manifest("a", "list", DOCKER_LIST, list.as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    for (tag, kind, document) in [("image", DOCKER_MANIFEST, &document), ("list", DOCKER_LIST, &list)] {
        for accept in
            [DOCKER_MANIFEST, IMAGE, "text/html", "application/vnd.docker.distribution.manifest.v1+json"]
        {
            let path = format!("/v2/a/manifests/{tag}");
            let get = server.request(Method::GET, &path).header("accept", accept).send().await.unwrap();
            assert_eq!(get.status(), StatusCode::OK);
            assert_eq!(header(&get, "content-type"), kind);
            assert_eq!(get.text().await.unwrap(), *document);
        }
    }
}

#[tokio::test]
async fn content_the_client_already_has_is_not_sent_again() {
    let server = Server::start().await;
    let document = server.push_image("a", "v1", "x").await;
    server.put_blob("a", b"content").await;
    let (manifest, blob) = (sha256(&document), sha256(b"content"));
    for (path, digest) in
        [("/v2/a/manifests/v1".to_owned(), manifest), (format!("/v2/a/blobs/{blob}"), blob.clone())]
    {
        for method in [Method::GET, Method::HEAD] {
            let ask = async |known: &str| {
                let request = server.request(method.clone(), &path).header("if-none-match", known);
                request.header("range", "bytes=0-1").send().await.unwrap()
            };
            let same = ask(&format!("\"{digest}\"")).await;
            assert_eq!(same.status(), StatusCode::NOT_MODIFIED, "{path}");
            assert_eq!(header(&same, "etag"), format!("\"{digest}\""));
            assert_eq!(header(&same, "docker-content-digest"), digest.to_string());
            assert_eq!(same.bytes().await.unwrap().len(), 0);
            assert_eq!(ask("*").await.status(), StatusCode::NOT_MODIFIED);
            assert!(ask("\"other\"").await.status().is_success());
        }
    }
    let absent = server.request(Method::GET, &format!("/v2/a/blobs/{}", sha256(b"absent")));
    let response = absent.header("if-none-match", "*").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND, "missing content has no entity tag");
}

#[tokio::test]
async fn the_algorithm_of_a_session_is_set_at_its_start_or_at_its_end() {
    let server = Server::start().await;
    let content = b"content of some length".to_vec();
    for (begin, digest) in [
        ("?digest-algorithm=sha512", sha512(&content)),
        ("?digest-algorithm=sha512", sha256(&content)),
        ("?digest-algorithm=sha256", sha512(&content)),
        ("", sha512(&content)),
    ] {
        let begun = server.send(Method::POST, &format!("/v2/a/blobs/uploads/{begin}")).await;
        assert_eq!(begun.status(), StatusCode::ACCEPTED, "{begin}");
        let location = header(&begun, "location").to_owned();
        let patch =
            server.request(Method::PATCH, &location).body(content[..7].to_vec()).send().await.unwrap();
        assert_eq!(patch.status(), StatusCode::ACCEPTED);
        let close = server.request(Method::PUT, &format!("{location}?digest={digest}"));
        let close = close.body(content[7..].to_vec()).send().await.unwrap();
        assert_eq!(close.status(), StatusCode::CREATED, "{begin} {digest}");
        let get = server.get(&format!("/v2/a/blobs/{digest}")).await;
        assert_eq!(get.bytes().await.unwrap(), content);
    }
    for unknown in ["md5", "SHA256", "", "blake3"] {
        let begun =
            server.send(Method::POST, &format!("/v2/a/blobs/uploads/?digest-algorithm={unknown}")).await;
        assert_eq!(refusal(begun).await, (400, vec!["DIGEST_INVALID".into()]), "{unknown}");
    }
}

#[tokio::test]
async fn the_extensions_of_the_registry_are_listed() {
    let server = Server::start().await;
    for (path, names) in
        [("/v2/_oci/ext/discover", vec!["_oci", "_catalog"]), ("/v2/a/b/_oci/ext/discover", vec!["_oci"])]
    {
        let head = server.head(path).await;
        assert_eq!(head.status(), StatusCode::OK);
        let get = server.get(path).await;
        assert_eq!(header(&get, "content-type"), "application/json");
        assert_eq!(header(&head, "content-length"), header(&get, "content-length"));
        let found: Value = serde_json::from_slice(&get.bytes().await.unwrap()).unwrap();
        let found: Vec<&str> = found["extensions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, names);
    }
}

#[tokio::test]
async fn a_refused_manifest_creates_no_repository() {
    let server = Server::start_with(|config| {
        let limited = registry::Quota { repositories: "small/**".parse().unwrap(), bytes: 10 };
        config.quotas = vec![limited];
    })
    .await;
    let document = image(b"{}", &[b"missing"]);
    for (repository, kind, status) in [("a", IMAGE, 400), ("b", INDEX, 400), ("UPPER", IMAGE, 400)] {
        let put = server.put_manifest(repository, "v1", kind, &document).await;
        assert_eq!(put.status(), status, "{repository}");
    }
    let index = br#"{"schemaVersion":2,"manifests":[]}"#;
    assert_eq!(server.put_manifest("small/c", "v1", INDEX, index).await.status(), 403, "over the quota");
    assert_eq!(server.registry.repositories().await, []);
    assert_eq!(std::fs::read_dir(server.root().join("repos")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_descriptor_with_another_size_than_its_content_is_refused() {
    let server = Server::start_with(|config| config.sparse_images = vec!["sparse".parse().unwrap()]).await;
    for repository in ["a", "sparse"] {
        server.push_image(repository, "v1", "x").await;
        let child = image(b"{}", &[]);
        server.put_blob(repository, b"{}").await;
        let put = server.put_manifest(repository, &sha256(&child).to_string(), IMAGE, &child).await;
        assert_eq!(put.status(), 201);

        let document: Value = serde_json::from_slice(&child).unwrap();
        let mut config = document.clone();
        config["config"]["size"] = json!(3);
        let mut twice = document.clone();
        twice["layers"] = json!([document["config"], config["config"]]);
        let mut subject = document.clone();
        subject["subject"] = json!({"mediaType": IMAGE, "digest": sha256(&child).to_string(), "size": 1});
        let entry =
            json!({"mediaType": IMAGE, "digest": sha256(&child).to_string(), "size": child.len() + 1});
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
        for (kind, wrong) in [(IMAGE, config), (IMAGE, twice), (IMAGE, subject), (INDEX, index)] {
            let put = server.put_manifest(repository, "wrong", kind, wrong.to_string().as_bytes()).await;
            assert_eq!(refusal(put).await, (400, vec!["MANIFEST_INVALID".into()]), "{wrong}");
        }
        assert_eq!(server.get(&format!("/v2/{repository}/manifests/wrong")).await.status(), 404);
    }
}

#[tokio::test]
async fn a_manifest_whose_references_cannot_be_read_is_refused_and_its_repository_stays_usable() {
    let server = Server::start().await;
    let document = String::from_utf8(server.push_image("a", "v1", "x").await).unwrap();
    for fields in [r#""blobs":5"#, r#""blobs":[{"x":1}]"#, r#""blobs":[],"blobs":[]"#] {
        let wrong = format!("{},{fields}}}", document.trim_end().strip_suffix('}').unwrap());
        let put = server.put_manifest("a", "v2", IMAGE, wrong.as_bytes()).await;
        assert_eq!(refusal(put).await, (400, vec!["MANIFEST_INVALID".into()]), "{fields}");
    }
    let options = registry::GcOptions::at(std::time::SystemTime::now());
    assert_eq!(server.registry.collect(options).await.unwrap().corrupted, []);
    let gone = server.send(Method::DELETE, "/v2/a/manifests/v1").await;
    assert_eq!(gone.status(), StatusCode::ACCEPTED);
}
