//! Uploads are shared out among clients: idle and slow ones delay themselves, and an administrator can end them.

use std::sync::Arc;
use std::time::Duration;

use registry::{Config, Uploader};
use reqwest::{Method, Response, StatusCode};

use crate::limits::stalled_patch;
use crate::support::{Server, access_control_for, basic_of, config, header, refusal, sha256};

const USERS: [(&str, &str); 2] = [("slow", "first secret"), ("ci", "second secret")];

/// A registry for two users, with these settings, on a directory of the test.
async fn server(root: &std::path::Path, change: impl FnOnce(&mut Config)) -> Server {
    let mut config = config(root);
    change(&mut config);
    let control = access_control_for(&USERS, &["** authenticated read,create,update"]).await;
    Server::open(config, Arc::new(control)).await
}

async fn send(server: &Server, user: usize, method: Method, path: &str, body: &'static [u8]) -> Response {
    let (name, password) = USERS[user];
    let request = server.request(method, path).header("authorization", basic_of(name, password));
    request.body(body).send().await.unwrap()
}

/// Begins a session and returns its location, or the refusal.
async fn begin(server: &Server, user: usize, repository: &str) -> Result<String, String> {
    let response = send(server, user, Method::POST, &format!("/v2/{repository}/blobs/uploads/"), b"").await;
    if response.status() == StatusCode::ACCEPTED {
        return Ok(header(&response, "location").to_owned());
    }
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (429, "5"));
    Err(response.text().await.unwrap())
}

#[tokio::test]
async fn one_user_s_sessions_never_refuse_another_user_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let limits = |config: &mut Config| {
        config.max_upload_sessions = 5;
        config.max_upload_sessions_per_user = 3;
        config.max_upload_sessions_per_repository = 4;
    };
    let first = server(root.path(), limits).await;
    for _ in 0..3 {
        begin(&first, 0, "a").await.unwrap();
    }
    let server = {
        drop(first);
        server(root.path(), limits).await
    };
    assert!(
        begin(&server, 0, "b").await.unwrap_err().contains("the limit of 3 concurrent uploads of one user")
    );
    assert!(server.registry.uploads().await.unwrap().iter().all(|session| {
        session.uploader == Uploader::User("slow".to_owned()) && session.received == 0 && !session.active
    }));
    begin(&server, 1, "a").await.unwrap();
    assert!(begin(&server, 1, "a").await.unwrap_err().contains("4 concurrent uploads to one repository"));
    assert!(!server.registry.upload_load().exhausted);
    begin(&server, 1, "b").await.unwrap();
    assert!(server.registry.upload_load().exhausted);
    assert!(begin(&server, 1, "b").await.unwrap_err().contains("5 concurrent uploads of the registry"));
}

#[tokio::test]
async fn idle_empty_sessions_end_for_new_ones_and_sessions_with_bytes_stay() {
    let root = tempfile::tempdir().unwrap();
    let server = server(root.path(), |config| {
        (config.max_upload_sessions, config.upload_idle) = (3, Duration::ZERO);
    })
    .await;
    let used = begin(&server, 0, "a").await.unwrap();
    assert_eq!(send(&server, 0, Method::PATCH, &used, b"bytes").await.status(), StatusCode::ACCEPTED);
    let idle = [begin(&server, 0, "a").await.unwrap(), begin(&server, 0, "a").await.unwrap()];
    let new = [begin(&server, 1, "b").await.unwrap(), begin(&server, 1, "b").await.unwrap()];
    for (location, status) in [(&used, 204), (&idle[0], 404), (&idle[1], 404), (&new[0], 204), (&new[1], 204)]
    {
        assert_eq!(send(&server, 1, Method::GET, location, b"").await.status(), status, "{location}");
    }
    let close = format!("{used}?digest={}", sha256(b"bytes"));
    assert_eq!(send(&server, 0, Method::PUT, &close, b"").await.status(), StatusCode::CREATED);
    assert_eq!(std::fs::read_dir(root.path().join("uploads")).unwrap().count(), 2);
}

/// File systems round the time of a write, some of them to two seconds.
#[tokio::test]
async fn of_idle_sessions_written_at_the_same_time_the_oldest_ends_first() {
    const LIMIT: usize = 8;
    let root = tempfile::tempdir().unwrap();
    let server = server(root.path(), |config| {
        (config.max_upload_sessions, config.upload_idle) = (LIMIT, Duration::ZERO);
    })
    .await;
    let written = std::time::SystemTime::now();
    let mut begun = Vec::new();
    for _ in 0..2 * LIMIT {
        begun.push(begin(&server, 0, "a").await.unwrap());
        for entry in std::fs::read_dir(root.path().join("uploads")).unwrap() {
            std::fs::File::options()
                .write(true)
                .open(entry.unwrap().path())
                .unwrap()
                .set_modified(written)
                .unwrap();
        }
    }
    for (index, location) in begun.iter().enumerate() {
        let status = if index < LIMIT { StatusCode::NOT_FOUND } else { StatusCode::NO_CONTENT };
        assert_eq!(send(&server, 0, Method::GET, location, b"").await.status(), status, "session {index}");
    }
}

#[tokio::test]
async fn an_administrator_cancels_a_session_that_a_request_writes_to() {
    let server = Server::start().await;
    let location = server.begin("a").await;
    let (feed, patch) = stalled_patch(&server, &location).await;
    let listed = server.registry.uploads().await.unwrap();
    let [session] = listed.as_slice() else { panic!("{listed:?}") };
    assert!(session.active && location.ends_with(&session.id), "{session:?} {location}");
    assert_eq!(session.uploader, Uploader::Anonymous(Some("127.0.0.1".parse().unwrap())));
    assert!(server.registry.cancel_upload(&session.id).await.unwrap());
    let refused = patch.await.unwrap().unwrap();
    assert_eq!(refusal(refused).await, (404, vec!["BLOB_UPLOAD_UNKNOWN".into()]));
    drop(feed);
    assert_eq!(server.get(&location).await.status(), StatusCode::NOT_FOUND);
    for directory in ["uploads", "states"] {
        assert_eq!(std::fs::read_dir(server.root().join(directory)).unwrap().count(), 0, "{directory}");
    }
    for unknown in [session.id.as_str(), "no id"] {
        assert!(!server.registry.cancel_upload(unknown).await.unwrap(), "{unknown}");
    }
    assert_eq!(server.registry.uploads().await.unwrap(), []);
}
