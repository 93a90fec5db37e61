//! The distribution API over a real socket, in the order of the specification's endpoints.

use crate::support::{IMAGE, INDEX, Server, descriptor, header, image, noise, refusal, sha256, sha512};
use registry::{Algorithm, Digest};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

#[tokio::test]
async fn the_version_check_responds_as_docker_expects() {
    let server = Server::start().await;
    for path in ["/v2/", "/v2"] {
        let response = server.get(path).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(&response, "docker-distribution-api-version"), "registry/2.0");
        assert_eq!(response.text().await.unwrap(), "{}");
    }
    assert_eq!(server.head("/v2/").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_blob_pushed_in_one_request_is_pulled_byte_for_byte() {
    let server = Server::start().await;
    for content in [Vec::new(), b"{}".to_vec(), noise(1, 3 << 20)] {
        let digest = sha256(&content);
        let response = server.put_blob("os-images/debian", &content).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(header(&response, "docker-content-digest"), digest.to_string());
        let location = header(&response, "location").to_owned();
        assert_eq!(location, format!("/v2/os-images/debian/blobs/{digest}"));

        let head = server.head(&location).await;
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(header(&head, "content-length"), content.len().to_string());
        assert_eq!(header(&head, "docker-content-digest"), digest.to_string());
        assert_eq!(header(&head, "accept-ranges"), "bytes");

        let get = server.get(&location).await;
        assert_eq!(header(&get, "content-type"), "application/octet-stream");
        assert_eq!(header(&get, "content-length"), content.len().to_string());
        assert_eq!(get.bytes().await.unwrap(), content);
    }
}

#[tokio::test]
async fn a_single_post_with_the_wrong_digest_stores_nothing() {
    let server = Server::start().await;
    let announced = sha256(b"something else");
    let response = server
        .request(Method::POST, &format!("/v2/a/blobs/uploads/?digest={announced}"))
        .body("content")
        .send()
        .await
        .unwrap();
    assert_eq!(refusal(response).await, (400, vec!["DIGEST_INVALID".into()]));
    for digest in [announced, sha256(b"content")] {
        assert_eq!(server.head(&format!("/v2/a/blobs/{digest}")).await.status(), StatusCode::NOT_FOUND);
    }
    let malformed = server.send(Method::POST, "/v2/a/blobs/uploads/?digest=sha256:bad").await;
    assert_eq!(refusal(malformed).await, (400, vec!["DIGEST_INVALID".into()]));
}

#[tokio::test]
async fn a_post_with_a_digest_and_no_body_starts_an_upload() {
    let server = Server::start().await;
    let digest = sha512(b"content");
    let begun = server.send(Method::POST, &format!("/v2/a/blobs/uploads/?digest={digest}")).await;
    assert_eq!(begun.status(), StatusCode::ACCEPTED);
    let close = format!("{}?digest={digest}", header(&begun, "location"));
    let put = server.request(Method::PUT, &close).body("content").send().await.unwrap();
    assert_eq!(put.status(), StatusCode::CREATED);
    let nothing = server.send(Method::POST, &format!("/v2/a/blobs/uploads/?digest={}", sha256(b""))).await;
    assert_eq!(nothing.status(), StatusCode::CREATED, "empty content is complete without a body");
}

#[tokio::test]
async fn a_blob_pushed_by_post_and_put_includes_the_body_of_the_put() {
    let server = Server::start().await;
    let content = noise(2, 700_000);
    let location = server.begin("a/b").await;
    let digest = sha256(&content).to_string().replace(':', "%3A");
    let put = server
        .request(Method::PUT, &format!("{location}?digest={digest}"))
        .body(content.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(put.status(), StatusCode::CREATED);
    let blob = header(&put, "location").to_owned();
    assert_eq!(server.get(&blob).await.bytes().await.unwrap(), content);
    assert_eq!(server.get(&location).await.status(), StatusCode::NOT_FOUND, "the session has ended");
}

#[tokio::test]
async fn a_streamed_blob_needs_no_lengths() {
    let server = Server::start().await;
    let content = noise(3, 1_300_000);
    let location = server.begin("a").await;
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
        content.chunks(1000).map(|piece| Ok(piece.to_vec())).collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let patch = server.request(Method::PATCH, &location).body(body).send().await.unwrap();
    assert_eq!(patch.status(), StatusCode::ACCEPTED);
    assert_eq!(header(&patch, "range"), format!("0-{}", content.len() - 1));
    let next = header(&patch, "location").to_owned();
    let put = server.send(Method::PUT, &format!("{next}?digest={}", sha256(&content))).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let get = server.get(&format!("/v2/a/blobs/{}", sha256(&content))).await;
    assert_eq!(get.bytes().await.unwrap(), content);
}

#[tokio::test]
async fn chunks_must_be_in_order_and_a_refused_one_keeps_the_session() {
    let server = Server::start().await;
    let content = noise(4, 3000);
    let location = server.begin("a").await;
    let chunk = async |range: &str, bytes: &[u8]| {
        server
            .request(Method::PATCH, &location)
            .header("content-range", range)
            .body(bytes.to_vec())
            .send()
            .await
            .unwrap()
    };
    let fresh = server.get(&location).await;
    assert_eq!((fresh.status(), header(&fresh, "range")), (StatusCode::NO_CONTENT, "0-0"));

    assert_eq!(chunk("0-999", &content[..1000]).await.status(), StatusCode::ACCEPTED);
    for (range, bytes) in [
        ("0-999", &content[..1000]),
        ("2000-2999", &content[2000..]),
        ("bytes 1000-1999", &content[1000..2000]),
        ("1999-1000", &content[1000..2000]),
    ] {
        let refused = chunk(range, bytes).await;
        assert_eq!(header(&refused, "range"), "0-999");
        assert_eq!(header(&refused, "location"), location);
        assert_eq!(refusal(refused).await, (416, vec!["BLOB_UPLOAD_INVALID".into()]), "{range}");
    }
    let short = chunk("1000-1999", &content[1000..1500]).await;
    assert_eq!(refusal(short).await, (400, vec!["SIZE_INVALID".into()]));

    let status = server.get(&location).await;
    assert_eq!((status.status(), header(&status, "range")), (StatusCode::NO_CONTENT, "0-999"));
    let patch = chunk("1000-1999", &content[1000..2000]).await;
    assert_eq!((patch.status(), header(&patch, "range")), (StatusCode::ACCEPTED, "0-1999"));

    let close = async |range: &str| {
        server
            .request(Method::PUT, &format!("{location}?digest={}", sha256(&content)))
            .header("content-range", range)
            .body(content[2000..].to_vec())
            .send()
            .await
            .unwrap()
    };
    assert_eq!(close("1000-1999").await.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(close("2000-2999").await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_streamed_chunk_of_the_wrong_length_is_rolled_back() {
    let server = Server::start().await;
    let location = server.begin("a").await;
    for (announced, sent) in [("0-9", 8), ("0-9", 12)] {
        let pieces = [Ok::<_, std::io::Error>(vec![7u8; sent])];
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let patch = server
            .request(Method::PATCH, &location)
            .header("content-range", announced)
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(refusal(patch).await, (400, vec!["SIZE_INVALID".into()]), "{sent}");
    }
    let put = server
        .request(Method::PUT, &format!("{location}?digest={}", sha256(b"rest")))
        .body("rest")
        .send()
        .await
        .unwrap();
    assert_eq!(put.status(), StatusCode::CREATED, "nothing of the refused chunks is left");
}

#[tokio::test]
async fn finishing_with_a_wrong_or_missing_digest_is_refused() {
    let server = Server::start().await;
    let location = server.begin("a").await;
    assert_eq!(
        refusal(server.send(Method::PUT, &location).await).await,
        (400, vec!["DIGEST_INVALID".into()])
    );
    let wrong = server
        .request(Method::PUT, &format!("{location}?digest={}", sha256(b"other")))
        .body("content")
        .send()
        .await
        .unwrap();
    assert_eq!(refusal(wrong).await, (400, vec!["DIGEST_INVALID".into()]));
    assert_eq!(refusal(server.get(&location).await).await, (404, vec!["BLOB_UPLOAD_UNKNOWN".into()]));
}

#[tokio::test]
async fn a_cancelled_upload_is_gone() {
    let server = Server::start().await;
    let location = server.begin("a").await;
    assert_eq!(server.send(Method::DELETE, &location).await.status(), StatusCode::NO_CONTENT);
    for method in [Method::GET, Method::DELETE, Method::PATCH] {
        let response = server.send(method, &location).await;
        assert_eq!(refusal(response).await, (404, vec!["BLOB_UPLOAD_UNKNOWN".into()]));
    }
    let other = server.begin("a").await.replace("/v2/a/", "/v2/b/");
    assert_eq!(
        server.get(&other).await.status(),
        StatusCode::NOT_FOUND,
        "a session belongs to its repository"
    );
}

#[tokio::test]
async fn sha512_content_keeps_its_digest() {
    let server = Server::start().await;
    let content = noise(5, 100_000);
    let digest = Digest::of(Algorithm::Sha512, &content);
    let location = server.begin("a").await;
    let patch = server.request(Method::PATCH, &location).body(content.clone()).send().await.unwrap();
    assert_eq!(patch.status(), StatusCode::ACCEPTED);
    let put = server.send(Method::PUT, &format!("{location}?digest={digest}")).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(header(&put, "docker-content-digest"), digest.to_string());
    let get = server.get(&format!("/v2/a/blobs/{digest}")).await;
    assert_eq!(get.bytes().await.unwrap(), content);
}

#[tokio::test]
async fn a_mount_needs_a_source_that_has_the_blob() {
    let server = Server::start().await;
    let digest = sha256(b"shared");
    server.put_blob("source", b"shared").await;
    let path = format!("/v2/target/blobs/{digest}");
    assert_eq!(
        server.head(&path).await.status(),
        StatusCode::NOT_FOUND,
        "not visible through another repository"
    );

    let mount =
        async |query: String| server.send(Method::POST, &format!("/v2/target/blobs/uploads/?{query}")).await;
    for query in [
        format!("mount={digest}&from=elsewhere"),
        format!("mount={}&from=source", sha256(b"absent")),
        format!("mount={}", sha256(b"absent")),
        format!("mount={digest}&from=No!"),
        "mount=junk&from=source".to_owned(),
    ] {
        let response = mount(query).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert!(header(&response, "location").starts_with("/v2/target/blobs/uploads/"));
    }
    let mounted = mount(format!("mount={digest}&from=source")).await;
    assert_eq!(mounted.status(), StatusCode::CREATED);
    assert_eq!(header(&mounted, "location"), path);
    assert_eq!(server.get(&path).await.bytes().await.unwrap(), b"shared".as_slice());
}

#[tokio::test]
async fn ranges_of_a_blob_are_exact() {
    let server = Server::start().await;
    let content = noise(6, 2048);
    server.put_blob("a", &content).await;
    let path = format!("/v2/a/blobs/{}", sha256(&content));
    let ranged =
        async |range: &str| server.request(Method::GET, &path).header("range", range).send().await.unwrap();
    for (range, slice) in [
        ("bytes=500-1499", 500..1500),
        ("bytes=500-", 500..2048),
        ("bytes=-500", 1548..2048),
        ("bytes=2000-5000", 2000..2048),
    ] {
        let part = ranged(range).await;
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT, "{range}");
        assert_eq!(header(&part, "content-range"), format!("bytes {}-{}/2048", slice.start, slice.end - 1));
        assert_eq!(header(&part, "content-length"), slice.len().to_string());
        assert_eq!(part.bytes().await.unwrap(), content[slice]);
    }
    for range in ["bytes=500-0", "bytes=5000-10000"] {
        let refused = ranged(range).await;
        assert_eq!(header(&refused, "content-range"), "bytes */2048");
        assert_eq!(refused.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    }
    let head = server.request(Method::HEAD, &path).header("range", "bytes=5000-").send().await.unwrap();
    assert_eq!((head.status(), header(&head, "content-length")), (StatusCode::OK, "2048"));
    let several = ranged("bytes=0-1,5-6").await;
    assert_eq!(several.status(), StatusCode::OK);
    let stale = server.request(Method::GET, &path).header("range", "bytes=0-1").header("if-range", "\"old\"");
    assert_eq!(stale.send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_manifest_is_served_byte_for_byte_under_its_tag_and_its_digest() {
    let server = Server::start().await;
    let document = server.push_image("team/image", "v1", "one").await;
    let digest = sha256(&document);
    for reference in ["v1".to_owned(), digest.to_string()] {
        let path = format!("/v2/team/image/manifests/{reference}");
        let head = server.head(&path).await;
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(header(&head, "content-length"), document.len().to_string());
        let get = server.get(&path).await;
        assert_eq!(header(&get, "content-type"), IMAGE);
        assert_eq!(header(&get, "docker-content-digest"), digest.to_string());
        assert_eq!(get.bytes().await.unwrap(), document);
    }
    let put = server.put_manifest("team/image", &digest.to_string(), IMAGE, &document).await;
    assert_eq!(header(&put, "location"), format!("/v2/team/image/manifests/{digest}"));
    assert_eq!(header(&put, "docker-content-digest"), digest.to_string());
    let moved = server.push_image("team/image", "v1", "two").await;
    let get = server.get("/v2/team/image/manifests/v1").await;
    assert_eq!(get.bytes().await.unwrap(), moved, "the last push of a tag wins");
}

#[tokio::test]
async fn a_manifest_keeps_its_media_type() {
    let server = Server::start().await;
    let docker = "application/vnd.docker.distribution.manifest.v2+json";
    server.put_blob("a", b"{}").await;
    let document = json!({
        "schemaVersion": 2, "mediaType": docker,
        "config": descriptor("application/vnd.docker.container.image.v1+json", b"{}"), "layers": [],
    });
    let put = server.put_manifest("a", "docker", docker, document.to_string().as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(header(&server.get("/v2/a/manifests/docker").await, "content-type"), docker);

    let child = server.push_image("a", "child", "c").await;
    let index = json!({"schemaVersion": 2, "manifests": [descriptor(IMAGE, &child)]}).to_string();
    let with_parameter = format!("{INDEX}; charset=utf-8");
    let put = server.put_manifest("a", "index", &with_parameter, index.as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(header(&server.get("/v2/a/manifests/index").await, "content-type"), INDEX);
}

#[tokio::test]
async fn a_manifest_whose_blobs_are_missing_names_each_of_them() {
    let server = Server::start().await;
    server.put_blob("a", b"config").await;
    server.put_blob("elsewhere", b"layer one").await;
    let document = image(b"config", &[b"layer one", b"layer two"]);
    let refused = server.put_manifest("a", "v1", IMAGE, &document).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let body: Value = serde_json::from_slice(&refused.bytes().await.unwrap()).unwrap();
    let mut named: Vec<&str> = body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["detail"]["digest"].as_str().unwrap())
        .collect();
    named.sort_unstable();
    let mut missing = [sha256(b"layer one").to_string(), sha256(b"layer two").to_string()];
    missing.sort_unstable();
    assert_eq!(named, missing);
    assert!(body["errors"].as_array().unwrap().iter().all(|error| error["code"] == "MANIFEST_BLOB_UNKNOWN"));
    assert_eq!(server.get("/v2/a/manifests/v1").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn invalid_manifests_are_refused() {
    let server = Server::start_with(|config| config.max_manifest_size = 10_000).await;
    let document = server.push_image("a", "v1", "x").await;
    let digest = sha256(b"another document");
    for (reference, kind, body, expected) in [
        ("v2", IMAGE, b"{".to_vec(), (400, "MANIFEST_INVALID")),
        ("v2", "text/plain", document.clone(), (400, "MANIFEST_INVALID")),
        ("v2", INDEX, document.clone(), (400, "MANIFEST_INVALID")),
        (
            "v2",
            "application/vnd.docker.distribution.manifest.v1+json",
            document.clone(),
            (400, "MANIFEST_INVALID"),
        ),
        (&digest.to_string(), IMAGE, document.clone(), (400, "DIGEST_INVALID")),
        ("sha256:bad", IMAGE, document.clone(), (400, "DIGEST_INVALID")),
        ("-bad", IMAGE, document.clone(), (400, "MANIFEST_INVALID")),
        ("v2", IMAGE, vec![b' '; 10_001], (413, "SIZE_INVALID")),
    ] {
        let response = server.put_manifest("a", reference, kind, &body).await;
        assert_eq!(refusal(response).await, (expected.0, vec![expected.1.to_owned()]), "{reference} {kind}");
    }
    let mut largest = document.clone();
    largest.resize(10_000, b' ');
    assert_eq!(server.put_manifest("a", "big", IMAGE, &largest).await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn tags_are_listed_in_pages() {
    let server = Server::start().await;
    let tags = ["Zulu", "alpha", "beta", "latest", "v1.0", "v1.1"];
    for tag in tags.iter().rev() {
        server.push_image("a", tag, "same").await;
    }
    let list = async |path: &str| {
        let response = server.get(path).await;
        let next = response.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(body["name"], "a");
        let tags = body["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap().to_owned());
        (tags.collect::<Vec<_>>(), next)
    };
    assert_eq!(list("/v2/a/tags/list").await, (tags.map(String::from).to_vec(), None));
    for size in 1..=7 {
        let mut path = format!("/v2/a/tags/list?n={size}");
        for (number, wanted) in tags.chunks(size).enumerate() {
            let (page, next) = list(&path).await;
            assert_eq!(page, wanted);
            let more = (number + 1) * size < tags.len();
            assert_eq!(next.is_some(), more, "a link when more follows, and only then");
            let next = next.unwrap_or_default();
            path = next.trim_start_matches('<').trim_end_matches(">; rel=\"next\"").to_owned();
        }
    }
    assert_eq!(list("/v2/a/tags/list?n=0").await, (Vec::new(), None));
    assert_eq!(list("/v2/a/tags/list?last=bogus&n=1").await.0, ["latest"]);
    assert_eq!(list("/v2/a/tags/list?last=v1.1").await, (Vec::new(), None));
    assert_eq!(server.get("/v2/a/tags/list?n=x").await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(refusal(server.get("/v2/nowhere/tags/list").await).await, (404, vec!["NAME_UNKNOWN".into()]));
}

#[tokio::test]
async fn deleting_a_manifest_by_digest_deletes_its_tags() {
    let server = Server::start().await;
    let document = server.push_image("a", "v1", "x").await;
    server.push_image("a", "same", "x").await;
    server.push_image("a", "other", "y").await;
    let digest = sha256(&document);

    let delete =
        async |reference: &str| server.send(Method::DELETE, &format!("/v2/a/manifests/{reference}")).await;
    assert_eq!(delete("v1").await.status(), StatusCode::ACCEPTED);
    assert_eq!(server.head("/v2/a/manifests/v1").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(server.head("/v2/a/manifests/same").await.status(), StatusCode::OK, "a tag is deleted alone");

    assert_eq!(delete(&digest.to_string()).await.status(), StatusCode::ACCEPTED);
    for reference in [digest.to_string(), "same".to_owned()] {
        assert_eq!(
            refusal(server.get(&format!("/v2/a/manifests/{reference}")).await).await.1,
            ["MANIFEST_UNKNOWN"]
        );
    }
    assert_eq!(refusal(delete(&digest.to_string()).await).await, (404, vec!["MANIFEST_UNKNOWN".into()]));
    assert_eq!(refusal(delete("v1").await).await, (404, vec!["MANIFEST_UNKNOWN".into()]));
    assert_eq!(server.head("/v2/a/manifests/other").await.status(), StatusCode::OK);
    server.push_image("a", "v1", "x").await;
    assert_eq!(
        server.get("/v2/a/manifests/v1").await.bytes().await.unwrap(),
        document,
        "it can be pushed again"
    );
}

#[tokio::test]
async fn a_deleted_blob_is_gone_from_its_repository_only() {
    let server = Server::start().await;
    for repository in ["a", "b"] {
        server.put_blob(repository, b"shared").await;
    }
    let digest = sha256(b"shared");
    let path = format!("/v2/a/blobs/{digest}");
    assert_eq!(server.send(Method::DELETE, &path).await.status(), StatusCode::ACCEPTED);
    assert_eq!(server.head(&path).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(refusal(server.send(Method::DELETE, &path).await).await, (404, vec!["BLOB_UNKNOWN".into()]));
    assert_eq!(server.head(&format!("/v2/b/blobs/{digest}")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn names_with_words_of_the_layout_do_not_collide() {
    let server = Server::start().await;
    let hex = sha256(b"x").hex().to_owned();
    let names =
        ["a", "a/b", "a/index.json", "a/oci-layout", &format!("a/blobs/sha256/{hex}"), "foo/manifests/bar"];
    let mut documents = Vec::new();
    for name in names {
        documents.push(server.push_image(name, "latest", name).await);
    }
    for (name, document) in names.iter().zip(&documents) {
        let get = server.get(&format!("/v2/{name}/manifests/latest")).await;
        assert_eq!(get.bytes().await.unwrap(), document);
    }
    let mut listed: Vec<String> =
        server.registry.repositories().await.iter().map(|name| name.as_str().to_owned()).collect();
    listed.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn wrong_methods_and_wrong_paths_have_different_errors() {
    let server = Server::start().await;
    let digest = sha256(b"x");
    for (method, path, allow) in [
        (Method::POST, "/v2/".to_owned(), "GET, HEAD"),
        (Method::PUT, format!("/v2/a/blobs/{digest}"), "GET, HEAD, DELETE"),
        (Method::GET, "/v2/a/blobs/uploads/".to_owned(), "POST"),
        (Method::POST, format!("/v2/a/blobs/uploads/{}", uuid()), "GET, HEAD, PATCH, PUT, DELETE"),
        (Method::POST, "/v2/a/manifests/x".to_owned(), "GET, HEAD, PUT, DELETE"),
        (Method::DELETE, "/v2/a/tags/list".to_owned(), "GET, HEAD"),
    ] {
        let response = server.send(method, &path).await;
        assert_eq!(header(&response, "allow"), allow, "{path}");
        assert_eq!(refusal(response).await, (405, vec!["UNSUPPORTED".into()]));
    }
    for (path, expected) in [
        ("/v2/_catalog/", (404, "UNSUPPORTED")),
        ("/v2/a/referrers/x", (400, "DIGEST_INVALID")),
        ("/v2/UPPER/manifests/x", (400, "NAME_INVALID")),
        ("/v2/a..b/tags/list", (400, "NAME_INVALID")),
        ("/v2/a/..%2f..%2fetc/manifests/x", (400, "NAME_INVALID")),
        ("/v2/a/blobs/sha256:UPPER", (400, "DIGEST_INVALID")),
        ("/v2/a/blobs/uploads/not-a-session", (404, "BLOB_UPLOAD_UNKNOWN")),
        ("/v2/nowhere/manifests/latest", (404, "MANIFEST_UNKNOWN")),
    ] {
        let response = server.get(path).await;
        assert_eq!(refusal(response).await, (expected.0, vec![expected.1.to_owned()]), "{path}");
    }
    let absent = server.get(&format!("/v2/nowhere/blobs/{digest}")).await;
    assert_eq!(refusal(absent).await, (404, vec!["BLOB_UNKNOWN".into()]));
}

fn uuid() -> String {
    "01234567-89ab-4cde-8f01-23456789abcd".to_owned()
}
