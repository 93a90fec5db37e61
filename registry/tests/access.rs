//! Every endpoint asks the authorizer for the right access, once, before it does anything.

use std::sync::{Arc, Mutex};

use crate::support::{IMAGE, Server, config, header, refusal, sha256};
use async_trait::async_trait;
use registry::{Access, Action, Authorizer, Caller, Denied};
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No access without credentials; `reader` pulls; `writer` has full access, except to `secret`.
#[derive(Default)]
struct TableAuthorizer {
    asked: Mutex<Vec<(Option<String>, Action)>>,
}

#[async_trait]
impl Authorizer for TableAuthorizer {
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
        assert!(caller.peer.unwrap().ip().is_loopback());
        assert!(!format!("{caller:?}").contains("writer"), "credentials are never printed");
        let repository = access.repository.map(ToString::to_string);
        self.asked.lock().unwrap().push((repository.clone(), access.action));
        match caller.authorization {
            None => Err(Denied::Unauthorized),
            Some(_) if repository.as_deref() == Some("secret") => Err(Denied::Forbidden),
            Some("reader") if !matches!(access.action, Action::Pull | Action::Exists | Action::List) => {
                Err(Denied::Forbidden)
            }
            Some(_) => Ok(()),
        }
    }
}

#[tokio::test]
async fn every_endpoint_authorizes_its_action_before_it_does_anything() {
    let root = tempfile::tempdir().unwrap();
    let table = Arc::new(TableAuthorizer::default());
    let server = Server::open(config(root.path()), Arc::clone(&table) as Arc<dyn Authorizer>).await;
    let digest = sha256(b"content");
    let session = "01234567-89ab-4cde-8f01-23456789abcd";
    for (method, path, repository, action) in [
        (Method::GET, "/v2/".to_owned(), None, Action::Pull),
        (Method::GET, format!("/v2/a/blobs/{digest}"), Some("a"), Action::Pull),
        (Method::HEAD, format!("/v2/a/blobs/{digest}"), Some("a"), Action::Exists),
        (Method::DELETE, format!("/v2/a/blobs/{digest}"), Some("a"), Action::Delete),
        (Method::POST, "/v2/a/b/blobs/uploads/".to_owned(), Some("a/b"), Action::Push),
        (Method::POST, format!("/v2/a/blobs/uploads/?digest={digest}"), Some("a"), Action::Push),
        (Method::GET, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::PATCH, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::PUT, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::DELETE, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::GET, "/v2/a/manifests/x".to_owned(), Some("a"), Action::Pull),
        (Method::HEAD, "/v2/a/manifests/x".to_owned(), Some("a"), Action::Exists),
        (Method::PUT, "/v2/a/manifests/x".to_owned(), Some("a"), Action::Push),
        (Method::DELETE, "/v2/a/manifests/x".to_owned(), Some("a"), Action::Delete),
        (Method::GET, "/v2/a/tags/list".to_owned(), Some("a"), Action::Pull),
        (Method::GET, format!("/v2/a/referrers/{digest}"), Some("a"), Action::Pull),
        (Method::GET, "/v2/_catalog".to_owned(), None, Action::List),
        (Method::GET, "/v2/_oci/ext/discover".to_owned(), None, Action::Pull),
        (Method::GET, "/v2/a/b/_oci/ext/discover".to_owned(), Some("a/b"), Action::Pull),
    ] {
        let response = server.request(method.clone(), &path).body("content").send().await.unwrap();
        assert_eq!(header(&response, "www-authenticate"), "Basic realm=\"shoal\"");
        match method {
            Method::HEAD => assert_eq!(response.status(), StatusCode::UNAUTHORIZED),
            _ => assert_eq!(refusal(response).await, (401, vec!["UNAUTHORIZED".into()]), "{method} {path}"),
        }
        let asked = std::mem::take(&mut *table.asked.lock().unwrap());
        assert_eq!(asked, [(repository.map(str::to_owned), action)], "{method} {path}");
    }
    assert!(server.registry.repositories().await.is_empty());
    assert_eq!(std::fs::read_dir(root.path().join("uploads")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_reader_may_not_push_or_delete() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(TableAuthorizer::default())).await;
    let send = async |user: &str, method: Method, path: &str| {
        server
            .request(method, path)
            .header("authorization", user)
            .header("content-type", IMAGE)
            .send()
            .await
            .unwrap()
    };
    let denied = (403, vec!["DENIED".to_owned()]);
    assert_eq!(send("reader", Method::GET, "/v2/").await.status(), StatusCode::OK);
    assert_eq!(refusal(send("reader", Method::POST, "/v2/a/blobs/uploads/").await).await, denied);
    assert_eq!(refusal(send("reader", Method::DELETE, "/v2/a/manifests/x").await).await, denied);
    assert_eq!(send("writer", Method::POST, "/v2/a/blobs/uploads/").await.status(), StatusCode::ACCEPTED);
    assert_eq!(refusal(send("writer", Method::GET, "/v2/secret/tags/list").await).await, denied);
}

#[tokio::test]
async fn a_mount_from_an_unreadable_repository_reveals_nothing() {
    let root = tempfile::tempdir().unwrap();
    {
        let open = Server::open(config(root.path()), Arc::new(registry::AllowAll)).await;
        open.put_blob("secret", b"content").await;
        open.put_blob("public", b"content").await;
    }
    let server = Server::open(config(root.path()), Arc::new(TableAuthorizer::default())).await;
    let digest = sha256(b"content");
    for (source, expected) in [("secret", StatusCode::ACCEPTED), ("public", StatusCode::CREATED)] {
        let path = format!("/v2/mine/blobs/uploads/?mount={digest}&from={source}");
        let response =
            server.request(Method::POST, &path).header("authorization", "writer").send().await.unwrap();
        assert_eq!(response.status(), expected, "{source}");
    }
}

#[tokio::test]
async fn a_mount_without_a_source_finds_only_what_the_caller_may_read() {
    let root = tempfile::tempdir().unwrap();
    {
        let open = Server::open(config(root.path()), Arc::new(registry::AllowAll)).await;
        open.put_blob("secret", b"hidden").await;
        open.put_blob("secret", b"shared").await;
        open.put_blob("zoo", b"shared").await;
    }
    let server = Server::open(config(root.path()), Arc::new(TableAuthorizer::default())).await;
    for (content, expected) in [
        (b"hidden".as_slice(), StatusCode::ACCEPTED),
        (b"shared", StatusCode::CREATED),
        (b"nowhere", StatusCode::ACCEPTED),
    ] {
        let digest = sha256(content);
        let path = format!("/v2/mine/blobs/uploads/?mount={digest}");
        let response =
            server.request(Method::POST, &path).header("authorization", "writer").send().await.unwrap();
        assert_eq!(response.status(), expected, "{digest}");
        let seen = server
            .request(Method::HEAD, &format!("/v2/mine/blobs/{digest}"))
            .header("authorization", "writer")
            .send()
            .await
            .unwrap();
        assert_eq!(seen.status() == StatusCode::OK, expected == StatusCode::CREATED);
    }
}

#[tokio::test]
async fn the_catalog_shows_only_what_the_caller_may_pull() {
    let root = tempfile::tempdir().unwrap();
    {
        let open = Server::open(config(root.path()), Arc::new(registry::AllowAll)).await;
        for name in ["b", "secret", "a/b", "z"] {
            open.put_blob(name, b"content").await;
        }
    }
    let server = Server::open(config(root.path()), Arc::new(TableAuthorizer::default())).await;
    let list = async |path: &str| {
        let response =
            server.request(Method::GET, path).header("authorization", "reader").send().await.unwrap();
        let link = response.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
        (response.text().await.unwrap(), link)
    };
    assert_eq!(list("/v2/_catalog").await, (r#"{"repositories":["a/b","b","z"]}"#.to_owned(), None));
    let (first, next) = list("/v2/_catalog?n=2").await;
    assert_eq!(first, r#"{"repositories":["a/b","b"]}"#);
    assert_eq!(next.as_deref(), Some("</v2/_catalog?n=2&last=b>; rel=\"next\""));
    assert_eq!(list("/v2/_catalog?n=2&last=b").await, (r#"{"repositories":["z"]}"#.to_owned(), None));
    let hidden_follows = list("/v2/_catalog?n=1&last=b").await;
    assert_eq!(hidden_follows, (r#"{"repositories":["z"]}"#.to_owned(), None));
    let before_hidden = list("/v2/_catalog?n=1&last=a/b").await;
    assert_eq!(before_hidden.0, r#"{"repositories":["b"]}"#);
    assert_eq!(list("/v2/_catalog?n=0").await, (r#"{"repositories":[]}"#.to_owned(), None));
    assert_eq!(refusal(server.get("/v2/_catalog").await).await.0, 401);
}

#[tokio::test]
async fn an_unreadable_namespace_is_ignored() {
    let root = tempfile::tempdir().unwrap();
    {
        let open = Server::open(config(root.path()), Arc::new(registry::AllowAll)).await;
        open.push_image("image", "v1", "plain").await;
        open.push_image("example.org/image", "v1", "mirrored").await;
        open.push_image("secret/image", "v1", "secret").await;
    }
    struct Hidden;
    #[async_trait]
    impl Authorizer for Hidden {
        async fn authorize(&self, _: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
            let hidden = access.repository.is_some_and(|name| name.as_str().starts_with("secret"));
            if hidden { Err(Denied::Forbidden) } else { Ok(()) }
        }
    }
    let server = Server::open(config(root.path()), Arc::new(Hidden)).await;
    let mut responses = Vec::new();
    for query in ["", "?ns=example.org", "?ns=secret", "?ns=other.org", "?ns=UPPER", "?ns="] {
        let response = server.get(&format!("/v2/image/manifests/v1{query}")).await;
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        let namespace =
            response.headers().get("oci-namespace").map(|value| value.to_str().unwrap().to_owned());
        responses.push((namespace, response.bytes().await.unwrap()));
    }
    assert_eq!(responses[1].0.as_deref(), Some("example.org"));
    assert_ne!(responses[1].1, responses[0].1);
    for plain in [0, 2, 3, 4, 5] {
        assert_eq!(responses[plain], (None, responses[0].1.clone()));
    }
}

/// The head of a response.
async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_whole_manifest_without_credentials_gets_a_401_and_keeps_the_connection() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(TableAuthorizer::default())).await;
    let document = vec![b' '; 3_900_000];
    let announced = format!("content-length: {}\r\n\r\n", document.len()).into_bytes();
    let streamed = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", document.len()).into_bytes();
    for (start, end) in [(announced, ""), (streamed, "\r\n0\r\n\r\n")] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"PUT /v2/a/manifests/large HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        for part in [start.as_slice(), &document, end.as_bytes()] {
            stream.write_all(part).await.unwrap();
        }
        let refused = head_of(&mut stream).await;
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(!refused.contains("connection: close"), "{refused}");
        let length = refused.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        stream.read_exact(&mut vec![0; length.parse().unwrap()]).await.unwrap();
        let again = "HEAD /v2/a/manifests/large HTTP/1.1\r\nhost: x\r\nauthorization: reader\r\n\r\n";
        stream.write_all(again.as_bytes()).await.unwrap();
        assert!(head_of(&mut stream).await.starts_with("HTTP/1.1 404 "));
    }
}
