//! The authorizer is asked the right question, once, before anything happens.

use std::sync::{Arc, Mutex};

use crate::support::{IMAGE, Server, config, header, refusal, sha256};
use async_trait::async_trait;
use registry::{Access, Action, Authorizer, Caller, Denied};
use reqwest::{Method, StatusCode};

/// Nobody without credentials; `reader` pulls; `writer` does everything, but nothing in `secret`.
#[derive(Default)]
struct Table {
    asked: Mutex<Vec<(Option<String>, Action)>>,
}

#[async_trait]
impl Authorizer for Table {
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
        assert!(caller.peer.unwrap().ip().is_loopback());
        assert!(!format!("{caller:?}").contains("writer"), "credentials never show");
        let repository = access.repository.map(ToString::to_string);
        self.asked.lock().unwrap().push((repository.clone(), access.action));
        match caller.authorization {
            None => Err(Denied::Unauthorized),
            Some(_) if repository.as_deref() == Some("secret") => Err(Denied::Forbidden),
            Some("reader") if access.action != Action::Pull => Err(Denied::Forbidden),
            Some(_) => Ok(()),
        }
    }
}

#[tokio::test]
async fn every_endpoint_asks_for_its_action_before_it_does_anything() {
    let root = tempfile::tempdir().unwrap();
    let table = Arc::new(Table::default());
    let server = Server::open(config(root.path()), Arc::clone(&table) as Arc<dyn Authorizer>).await;
    let digest = sha256(b"content");
    let session = "01234567-89ab-4cde-8f01-23456789abcd";
    for (method, path, repository, action) in [
        (Method::GET, "/v2/".to_owned(), None, Action::Pull),
        (Method::GET, format!("/v2/a/blobs/{digest}"), Some("a"), Action::Pull),
        (Method::DELETE, format!("/v2/a/blobs/{digest}"), Some("a"), Action::Delete),
        (Method::POST, "/v2/a/b/blobs/uploads/".to_owned(), Some("a/b"), Action::Push),
        (Method::POST, format!("/v2/a/blobs/uploads/?digest={digest}"), Some("a"), Action::Push),
        (Method::GET, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::PATCH, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::PUT, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::DELETE, format!("/v2/a/blobs/uploads/{session}"), Some("a"), Action::Push),
        (Method::GET, "/v2/a/manifests/x".to_owned(), Some("a"), Action::Pull),
        (Method::PUT, "/v2/a/manifests/x".to_owned(), Some("a"), Action::Push),
        (Method::DELETE, "/v2/a/manifests/x".to_owned(), Some("a"), Action::Delete),
        (Method::GET, "/v2/a/tags/list".to_owned(), Some("a"), Action::Pull),
    ] {
        let answer = server.request(method.clone(), &path).body("content").send().await.unwrap();
        assert_eq!(header(&answer, "www-authenticate"), "Basic realm=\"shoal\"");
        assert_eq!(refusal(answer).await, (401, vec!["UNAUTHORIZED".into()]), "{method} {path}");
        let asked = std::mem::take(&mut *table.asked.lock().unwrap());
        assert_eq!(asked, [(repository.map(str::to_owned), action)], "{method} {path}");
    }
    assert!(server.registry.repositories().await.is_empty());
    assert_eq!(std::fs::read_dir(root.path().join("uploads")).unwrap().count(), 0);
}

#[tokio::test]
async fn who_may_pull_may_not_push_or_delete() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(Table::default())).await;
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
async fn a_mount_from_a_repository_one_may_not_read_tells_nothing() {
    let root = tempfile::tempdir().unwrap();
    {
        let open = Server::open(config(root.path()), Arc::new(registry::AllowAll)).await;
        open.put_blob("secret", b"content").await;
        open.put_blob("public", b"content").await;
    }
    let server = Server::open(config(root.path()), Arc::new(Table::default())).await;
    let digest = sha256(b"content");
    for (source, expected) in [("secret", StatusCode::ACCEPTED), ("public", StatusCode::CREATED)] {
        let path = format!("/v2/mine/blobs/uploads/?mount={digest}&from={source}");
        let answer =
            server.request(Method::POST, &path).header("authorization", "writer").send().await.unwrap();
        assert_eq!(answer.status(), expected, "{source}");
    }
}
