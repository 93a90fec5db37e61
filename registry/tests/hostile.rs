//! Clients that violate the protocol, on real sockets: refused with an error that gives the reason, in little time,
//! without a trace on disk and without effect on other clients.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use registry::AllowAll;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{
    CONFIG, IMAGE, INDEX, LAYER, Server, config, descriptor, header, image, noise, refusal, sha256,
};

/// Sends bytes unchanged and returns the response until the registry closes or has responded.
async fn raw(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // A registry that has read enough may close while the client still sends.
    let _ = stream.write_all(request).await;
    let _ = stream.shutdown().await;
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).into_owned()
}

fn status_of(response: &str) -> u16 {
    response
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{response:?}"))
}

fn left_in(root: &Path, directory: &str) -> usize {
    std::fs::read_dir(root.join(directory)).unwrap().count()
}

#[tokio::test]
async fn an_incomplete_body_leaves_nothing_or_a_session_to_continue() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let digest = sha256(b"0123456789");
    let head = |method: &str, path: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\ncontent-type: {IMAGE}\r\n\r\n01234"
        )
    };
    raw(&server, head("POST", &format!("/v2/a/blobs/uploads/?digest={digest}")).as_bytes()).await;
    raw(&server, head("PUT", "/v2/a/manifests/v1").as_bytes()).await;
    assert_eq!(server.head(&format!("/v2/a/blobs/{digest}")).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(server.head("/v2/a/manifests/v1").await.status(), StatusCode::NOT_FOUND);

    let location = server.begin("a").await;
    raw(&server, head("PATCH", &location).as_bytes()).await;
    // The broken request still holds the session for a moment; a status does not wait for it, a chunk does.
    let patch = server.request(Method::PATCH, &location).body("56789").send().await.unwrap();
    assert_eq!((patch.status(), header(&patch, "range")), (StatusCode::ACCEPTED, "0-9"));
    let put = server.send(Method::PUT, &format!("{location}?digest={digest}")).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(left_in(root.path(), "uploads"), 0);
}

#[tokio::test]
async fn paths_with_parent_directories_are_refused_by_the_parser() {
    let root = tempfile::tempdir().unwrap();
    let secret = root.path().join("secret");
    std::fs::write(&secret, "outside").unwrap();
    let server = Server::open(config(&root.path().join("store")), Arc::new(AllowAll)).await;
    for path in [
        "/v2/../../secret",
        "/v2/a/blobs/../../../secret",
        "/v2/a/manifests/../../../../secret",
        "/v2/..%2f..%2fsecret/manifests/latest",
        "/v2/%2e%2e/%2e%2e/secret/tags/list",
        "/v2/a/manifests/%2e%2e",
        "/v2/a/manifests/..%2f..%2fsecret",
        "/v2/a/blobs/sha256:..%2f..%2fsecret",
        "/v2/a/blobs/uploads/..%2f..%2fsecret",
        "/v2/a/referrers/sha256:..%2fsecret",
        "/v2/a%00b/manifests/latest",
        "/v2/a/manifests/latest%00",
        "/v2/a/manifests/a%0d%0aset-cookie:x",
        "/v2//a/manifests/latest",
        "/v2/a//manifests/latest",
        "/v2/a\\..\\b/manifests/latest",
        "/v2/%C3%A4/manifests/latest",
        "/v2/a=b/manifests/latest",
        "/v2/_layers/manifests/latest",
        "/v2/a/_tags/manifests/latest",
        "/v2/.tmp/manifests/latest",
        "/V2/",
    ] {
        for method in ["GET", "PUT", "DELETE", "POST"] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1\r\n\r\n{{"
            );
            let response = raw(&server, request.as_bytes()).await;
            assert!(matches!(status_of(&response), 400 | 404 | 405), "{method} {path}: {response}");
            assert!(!response.contains("set-cookie") && !response.contains("outside"), "{path}: {response}");
        }
    }
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "outside");
    assert!(server.registry.repositories().await.is_empty());
    assert_eq!(left_in(root.path(), "."), 2);
}

#[tokio::test]
async fn oversized_requests_are_refused_and_the_next_is_served() {
    let server = Server::start().await;
    let long = "x".repeat(1 << 20);
    let many: String = (0..5000).map(|number| format!("x-{number}: y\r\n")).collect();
    for request in [
        format!("GET /v2/ HTTP/1.1\r\nhost: x\r\nx-long: {long}\r\n\r\n"),
        format!("GET /v2/ HTTP/1.1\r\nhost: x\r\n{many}\r\n"),
        format!("GET /v2/{long}/tags/list HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
        "GET /v2/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_owned(),
        "GET /v2/ HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "\0\0\0\0\r\n\r\n".to_owned(),
    ] {
        let response = raw(&server, request.as_bytes()).await;
        // A registry may also close the connection of such a client.
        assert!(response.is_empty() || (400..500).contains(&status_of(&response)), "{response}");
    }
    assert_eq!(server.get("/v2/").await.status(), StatusCode::OK);
    let many: String = (0..400).map(|number| format!("{number}-{number},")).collect();
    server.put_blob("a", b"content").await;
    let path = format!("/v2/a/blobs/{}", sha256(b"content"));
    let several = server.request(Method::GET, &path).header("range", format!("bytes={many}0-0"));
    assert_eq!(several.send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_manifest_sent_byte_by_byte_runs_into_the_time_limit() {
    let server = Server::start_with(|config| {
        config.upload_read_timeout = Duration::from_secs(5);
        config.upload_timeout = Duration::from_millis(60);
    })
    .await;
    let dripping =
        futures_util::stream::unfold(tokio::time::interval(Duration::from_millis(1)), async |mut drip| {
            drip.tick().await;
            Some((Ok::<_, std::io::Error>(vec![b' ']), drip))
        });
    let put = server.request(Method::PUT, "/v2/a/manifests/v1").header("content-type", IMAGE);
    let response = put.body(reqwest::Body::wrap_stream(dripping)).send().await.unwrap();
    assert_eq!(refusal(response).await, (408, vec!["BLOB_UPLOAD_INVALID".into()]));
    server.push_image("a", "v1", "x").await;
}

#[tokio::test]
async fn chunks_with_a_wrong_offset_are_refused_unread() {
    let server = Server::start().await;
    let location = server.begin("a").await;
    let send = async |range: &str| {
        let patch = server.request(Method::PATCH, &location).header("content-range", range);
        patch.body("0123456789").send().await.unwrap()
    };
    assert_eq!(send("0-9").await.status(), StatusCode::ACCEPTED);
    for range in [
        "0-9",
        "9-18",
        "11-20",
        "5-14",
        "10-9",
        "18446744073709551606-18446744073709551615",
        "-1-8",
        "10-",
        "-10",
        "bytes 10-19/20",
        "10-19/20",
        "ten-nineteen",
        "",
        "10-19,20-29",
        "0x0a-0x13",
    ] {
        let refused = send(range).await;
        assert_eq!(header(&refused, "range"), "0-9");
        assert_eq!(refusal(refused).await, (416, vec!["BLOB_UPLOAD_INVALID".into()]), "{range:?}");
    }
    for range in ["10-18", "10-20"] {
        assert_eq!(refusal(send(range).await).await, (400, vec!["SIZE_INVALID".into()]), "{range}");
    }
    let close = format!("{location}?digest={}", sha256(b"01234567890123456789"));
    let wrong = server.request(Method::PUT, &close).header("content-range", "0-9").send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::RANGE_NOT_SATISFIABLE, "a range without a body is wrong as well");
    assert_eq!(send("10-19").await.status(), StatusCode::ACCEPTED);
    assert_eq!(server.send(Method::PUT, &close).await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn malformed_manifests_are_refused() {
    let server = Server::start().await;
    server.put_blob("a", b"{}").await;
    let good = json!({
        "schemaVersion": 2, "mediaType": IMAGE, "config": descriptor(CONFIG, b"{}"), "layers": [],
    });
    let put = server.put_manifest("a", "good", IMAGE, good.to_string().as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let with = |field: &str, value: Value| {
        let mut document = good.clone();
        document[field] = value;
        document.to_string().into_bytes()
    };
    let layer = |change: Value| {
        let mut layer = descriptor(LAYER, b"{}");
        for (field, value) in change.as_object().unwrap() {
            layer[field] = value.clone();
        }
        with("layers", json!([layer]))
    };
    let text = good.to_string();
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let deep = |depth: usize| {
        format!("{},\"x\":{}{}}}", &text[..text.len() - 1], "[".repeat(depth), "]".repeat(depth))
    };
    for document in [
        with("schemaVersion", json!(1)),
        with("schemaVersion", json!("2")),
        with("schemaVersion", json!(2.0)),
        with("mediaType", json!(INDEX)),
        with("mediaType", json!(7)),
        with("config", Value::Null),
        with("config", json!([])),
        with("layers", json!({})),
        with("layers", json!([1])),
        with("manifests", json!([])),
        with("annotations", json!({"a": 1})),
        with("subject", json!("sha256:0")),
        layer(json!({"size": -1})),
        layer(json!({"size": "3"})),
        layer(json!({"size": 1e40})),
        layer(json!({"digest": 1})),
        layer(json!({"digest": "sha256:short"})),
        layer(json!({"digest": format!("sha256:{}", sha256(b"{}").hex().to_uppercase())})),
        layer(json!({"digest": "../../etc/passwd"})),
        layer(json!({"digest": ""})),
        format!("{text}{text}").into_bytes(),
        format!("\u{feff}{text}").into_bytes(),
        format!("{},\"config\":{{}}}}", &text[..text.len() - 1]).into_bytes(),
        text.replace('"', "'").into_bytes(),
        utf16,
        deep(100_000).into_bytes(),
        b"null".to_vec(),
        b"\xff\xfe".to_vec(),
        Vec::new(),
    ] {
        let put = server.put_manifest("a", "bad", IMAGE, &document).await;
        let shown = String::from_utf8_lossy(&document[document.len().saturating_sub(200)..]).into_owned();
        assert_eq!(put.status(), StatusCode::BAD_REQUEST, "{shown}");
        let (status, codes) = refusal(put).await;
        assert_eq!(status, 400, "{shown}");
        assert!(
            ["MANIFEST_INVALID", "MANIFEST_BLOB_UNKNOWN"].contains(&codes[0].as_str()),
            "{shown}: {codes:?}"
        );
    }
    let put = server.put_manifest("a", "nested", IMAGE, deep(90).as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED, "unknown fields are kept");
    assert_eq!(server.head("/v2/a/manifests/bad").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_manifest_of_five_mebibytes_is_accepted_and_one_byte_more_is_not() {
    let server = Server::start().await;
    let mut document = server.push_image("a", "v1", "x").await;
    document.resize(5 << 20, b' ');
    let put = server.put_manifest("a", "largest", IMAGE, &document).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(server.get("/v2/a/manifests/largest").await.bytes().await.unwrap(), document);
    document.push(b' ');
    let put = server.put_manifest("a", "larger", IMAGE, &document).await;
    assert_eq!(refusal(put).await, (413, vec!["SIZE_INVALID".into()]));
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
        document.chunks(1 << 16).map(|piece| Ok(piece.to_vec())).collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let put = server.request(Method::PUT, "/v2/a/manifests/larger").header("content-type", IMAGE).body(body);
    assert_eq!(refusal(put.send().await.unwrap()).await, (413, vec!["SIZE_INVALID".into()]));
}

#[tokio::test]
async fn indexes_may_be_nested_to_any_depth() {
    let server = Server::start().await;
    let mut child = (IMAGE, server.push_image("a", "v1", "x").await);
    for _ in 0..100 {
        let index = json!({"schemaVersion": 2, "manifests": [descriptor(child.0, &child.1)]});
        child = (INDEX, index.to_string().into_bytes());
        let put = server.put_manifest("a", "top", INDEX, &child.1).await;
        assert_eq!(put.status(), StatusCode::CREATED);
    }
    assert_eq!(server.get("/v2/a/manifests/top").await.bytes().await.unwrap(), child.1);
    // An index cannot contain itself: its digest would have to be known before it exists.
    let delete = server.send(Method::DELETE, &format!("/v2/a/manifests/{}", sha256(&child.1))).await;
    assert_eq!(delete.status(), StatusCode::ACCEPTED);
    assert_eq!(server.head("/v2/a/manifests/v1").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_digest_has_one_valid_form() {
    let server = Server::start().await;
    server.put_blob("a", b"content").await;
    let hex = sha256(b"content").hex().to_owned();
    let spellings = [
        format!("sha256:{}", hex.to_uppercase()),
        format!("SHA256:{hex}"),
        format!("Sha256:{hex}"),
        format!("sha256:{hex}0"),
        format!("sha256:{}", &hex[1..]),
        format!("sha256: {hex}"),
        format!("sha256::{hex}"),
        format!("sha512:{hex}"),
        hex.clone(),
    ];
    let invalid = (400, vec!["DIGEST_INVALID".to_owned()]);
    for digest in &spellings {
        let encoded = digest.replace(' ', "%20");
        assert_eq!(refusal(server.get(&format!("/v2/a/blobs/{encoded}")).await).await, invalid, "{digest}");
        assert_eq!(
            refusal(server.get(&format!("/v2/a/referrers/{encoded}")).await).await,
            invalid,
            "{digest}"
        );
        let post =
            server.request(Method::POST, &format!("/v2/a/blobs/uploads/?digest={encoded}")).body("content");
        assert_eq!(refusal(post.send().await.unwrap()).await, invalid, "{digest}");
        let location = server.begin("a").await;
        let put = server.request(Method::PUT, &format!("{location}?digest={encoded}")).body("content");
        assert_eq!(refusal(put.send().await.unwrap()).await, invalid, "{digest}");
        let mount = server.send(Method::POST, &format!("/v2/b/blobs/uploads/?mount={encoded}&from=a")).await;
        assert_eq!(mount.status(), StatusCode::ACCEPTED, "{digest}");
    }
}

#[tokio::test]
async fn names_at_their_limits_work_in_every_endpoint_and_longer_ones_in_none() {
    let server = Server::start().await;
    let longest_tag = "t".repeat(128);
    for name in [
        "n".repeat(200),
        format!("{}a", "a/".repeat(99)),
        format!("{}/{}", "a".repeat(99), "b-".repeat(49) + "bb"),
    ] {
        assert!(name.len() >= 199);
        let document = server.push_image(&name, &longest_tag, "x").await;
        let get = server.get(&format!("/v2/{name}/manifests/{longest_tag}")).await;
        assert_eq!(get.bytes().await.unwrap(), document);
        let location = server.begin(&name).await;
        assert_eq!(server.send(Method::DELETE, &location).await.status(), StatusCode::NO_CONTENT);
        let put = server.put_manifest(&name, &"t".repeat(129), IMAGE, &document).await;
        assert_eq!(refusal(put).await, (400, vec!["MANIFEST_INVALID".into()]));
    }
    for name in ["n".repeat(201), "a/".repeat(100) + "ab"] {
        let response = server.send(Method::POST, &format!("/v2/{name}/blobs/uploads/")).await;
        assert_eq!(refusal(response).await, (400, vec!["NAME_INVALID".into()]));
    }
    assert_eq!(server.registry.repositories().await.len(), 3);
}

#[tokio::test]
async fn names_of_the_store_s_files_are_valid_repository_names() {
    let server = Server::start().await;
    let hex = sha256(b"x").hex().to_owned();
    let names = [
        "a/index.json".to_owned(),
        format!("a/blobs/sha256/{hex}"),
        "foo/manifests/bar".to_owned(),
        "foo/manifests/latest".to_owned(),
        "foo/blobs/uploads".to_owned(),
        "foo/tags/list".to_owned(),
        "foo/referrers/bar".to_owned(),
        "blobs".to_owned(),
        "uploads".to_owned(),
        "tmp".to_owned(),
        "repos/a".to_owned(),
        "v2".to_owned(),
        "oci-layout".to_owned(),
    ];
    let mut documents = Vec::new();
    for name in &names {
        documents.push(server.push_image(name, "latest", name).await);
    }
    for (name, document) in names.iter().zip(&documents) {
        for reference in ["latest".to_owned(), sha256(document).to_string()] {
            let get = server.get(&format!("/v2/{name}/manifests/{reference}")).await;
            assert_eq!(get.bytes().await.unwrap(), *document, "{name}");
        }
        assert_eq!(server.get(&format!("/v2/{name}/tags/list")).await.status(), StatusCode::OK);
        let referrers = server.get(&format!("/v2/{name}/referrers/{}", sha256(document))).await;
        assert_eq!(referrers.status(), StatusCode::OK, "{name}");
    }
    let listed: Value =
        serde_json::from_slice(&server.get("/v2/_catalog").await.bytes().await.unwrap()).unwrap();
    assert_eq!(listed["repositories"].as_array().unwrap().len(), names.len());
}

#[tokio::test]
async fn no_text_of_a_query_reaches_a_header() {
    let server = Server::start().await;
    let document = server.push_image("a", "v1", "x").await;
    server.push_image("b", "v1", "x").await;
    let evil = "%0d%0aset-cookie:%20x=1%3E;%20rel=%22next%22";
    let digest = sha256(&document);
    for path in [
        format!("/v2/a/tags/list?last={evil}"),
        format!("/v2/_catalog?n=1&last={evil}"),
        format!("/v2/a/referrers/{digest}?artifactType={evil}&last={evil}"),
        format!("/v2/a/manifests/v1?ns={evil}"),
        format!("/v2/a/tags/list?n=1&last={}", "%F0%9F%90%9F".repeat(500)),
    ] {
        let response = server.get(&path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert!(response.headers().get("set-cookie").is_none());
        let shown = format!("{:?}", response.headers());
        assert!(!shown.contains("x=1"), "{shown}");
    }
    for query in ["digest=%ff", "digest=&digest=x", "digest-algorithm=%00"] {
        let response = server.send(Method::POST, &format!("/v2/a/blobs/uploads/?{query}")).await;
        assert!(response.status().is_client_error() || response.status() == StatusCode::ACCEPTED, "{query}");
    }
}

#[tokio::test]
async fn an_inconsistent_store_is_an_error_without_a_path() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let document = server.push_image("a", "v1", "x").await;
    let tags = root.path().join("repos/a/_tags");
    std::fs::remove_dir_all(&tags).unwrap();
    std::fs::write(&tags, "a file where a directory should be").unwrap();
    std::fs::remove_dir_all(root.path().join("uploads")).unwrap();
    let shown = root.path().display().to_string();
    let put = server.put_manifest("a", "v2", IMAGE, &document).await;
    let list = server.get("/v2/a/tags/list").await;
    let begin = server.send(Method::POST, "/v2/a/blobs/uploads/").await;
    for response in [put, list, begin] {
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(header(&response, "content-type"), "application/json");
        let body = response.text().await.unwrap();
        assert!(body.contains("\"UNKNOWN\"") && !body.contains(&shown) && !body.contains("repos"), "{body}");
    }
    let get = server.get(&format!("/v2/a/manifests/{}", sha256(&document))).await;
    assert_eq!(get.status(), StatusCode::OK, "intact content is served");
}

#[tokio::test]
async fn an_upload_with_a_wrong_digest_cannot_be_finished_again_nor_by_another_repository() {
    let server = Server::start().await;
    let content = noise(1, 1000);
    let (location, digest) = (server.begin("a").await, sha256(&content));
    let elsewhere = location.replace("/v2/a/", "/v2/b/");
    for (method, path) in [
        (Method::PATCH, elsewhere.clone()),
        (Method::PUT, format!("{elsewhere}?digest={digest}")),
        (Method::DELETE, elsewhere),
    ] {
        let response = server.request(method, &path).body("x").send().await.unwrap();
        assert_eq!(refusal(response).await, (404, vec!["BLOB_UPLOAD_UNKNOWN".into()]), "{path}");
    }
    let close = format!("{location}?digest={digest}");
    let put = async || server.request(Method::PUT, &close).body(content.clone()).send().await.unwrap();
    assert_eq!(put().await.status(), StatusCode::CREATED);
    assert_eq!(refusal(put().await).await, (404, vec!["BLOB_UPLOAD_UNKNOWN".into()]));
    let twice = image(b"absent", &[]);
    assert_eq!(server.put_manifest("b", "v1", IMAGE, &twice).await.status(), StatusCode::BAD_REQUEST);
}
