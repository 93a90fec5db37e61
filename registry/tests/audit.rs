//! Every change and every refusal is recorded once, with subject and target, and never with credentials.

use std::sync::{Arc, Mutex};

use registry::{AccessControl, Audit, AuditCounters, AuditEvent, Audited, ImmutableTags, Policy, Registry};
use reqwest::{Method, StatusCode};

use crate::support::{
    IMAGE, PASSWORD, Server, USER, access_control_with, basic, config, image, refusal, sha256,
};

#[derive(Default)]
struct RecordedEvents(Mutex<Vec<AuditEvent>>);

impl Audit for RecordedEvents {
    fn record(&self, event: &AuditEvent) {
        assert!(event.peer.unwrap().ip().is_loopback());
        self.0.lock().unwrap().push(event.clone());
    }
}

impl RecordedEvents {
    /// The events since the last call: kind, subject, repository and content.
    fn take(&self) -> Vec<String> {
        let events = std::mem::take(&mut *self.0.lock().unwrap());
        let shown = format!("{events:?}");
        assert!(!shown.contains(PASSWORD) && !shown.contains(&basic()[6..]), "{shown}");
        let line = |event: &AuditEvent| {
            let subject = event.subject.as_deref().unwrap_or("-");
            let repository = event.repository.as_ref().map_or("-", |name| name.as_str());
            let reference = event.reference.as_ref().map_or("-".to_owned(), ToString::to_string);
            let digest = event.digest.as_ref().map_or("-".to_owned(), |digest| digest.hex()[..4].to_owned());
            let what = match event.what {
                Audited::Denied(action, why) => format!("denied {action:?} {why:?}"),
                what => what.to_string(),
            };
            let size = event.size.map_or("-".to_owned(), |size| size.to_string());
            format!("{what} {subject} {repository} {reference} {digest} {size}")
        };
        events.iter().map(line).collect()
    }
}

async fn served(
    control: AccessControl,
) -> (tempfile::TempDir, Server, Arc<RecordedEvents>, Arc<AuditCounters>) {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::open(config(root.path())).await.unwrap();
    let (recorded, counters) = (Arc::new(RecordedEvents::default()), Arc::new(AuditCounters::default()));
    let audit = Arc::new((Arc::clone(&recorded), Arc::clone(&counters)));
    let router = registry.audited_router(Arc::new(control), audit);
    (root, Server::serve(registry, router).await, recorded, counters)
}

#[tokio::test]
async fn each_push_mount_and_delete_is_recorded_once() {
    let control = access_control_with(&["** user:tester all"]).await;
    let (_root, server, recorded, counters) = served(control).await;
    let send = async |method: Method, path: String, body: &[u8]| {
        let request = server.request(method, &path).header("authorization", basic());
        let response = request.header("content-type", IMAGE).body(body.to_vec()).send().await.unwrap();
        assert!(response.status().is_success(), "{path} {}", response.status());
    };
    let (content, document) = (b"content".as_slice(), image(b"content", &[b"content"]));
    let (digest, manifest) = (sha256(content), sha256(&document));
    let (blob, document_hex) = (&digest.hex()[..4], &manifest.hex()[..4]);

    send(Method::POST, format!("/v2/a/blobs/uploads/?digest={digest}"), content).await;
    assert_eq!(recorded.take(), [format!("push_blob {USER} a - {blob} 7")]);
    send(Method::POST, format!("/v2/b/blobs/uploads/?mount={digest}&from=a"), b"").await;
    assert_eq!(recorded.take(), [format!("mount_blob {USER} b - {blob} -")]);
    send(Method::PUT, format!("/v2/a/manifests/{manifest}?tag=v1&tag=v2"), &document).await;
    let length = document.len();
    assert_eq!(
        recorded.take(),
        [
            format!("push_manifest {USER} a {manifest} {document_hex} {length}"),
            format!("push_tag {USER} a v1 {document_hex} -"),
            format!("push_tag {USER} a v2 {document_hex} -"),
        ]
    );
    send(Method::DELETE, "/v2/a/manifests/v1".to_owned(), b"").await;
    send(Method::DELETE, format!("/v2/a/manifests/{manifest}"), b"").await;
    send(Method::DELETE, format!("/v2/a/blobs/{digest}"), b"").await;
    assert_eq!(
        recorded.take(),
        [
            format!("delete_tag {USER} a v1 - -"),
            format!("delete_manifest {USER} a {manifest} {document_hex} -"),
            format!("delete_blob {USER} a - {blob} -"),
        ]
    );
    send(Method::GET, "/v2/".to_owned(), b"").await;
    send(Method::GET, "/v2/_catalog".to_owned(), b"").await;
    assert!(recorded.take().is_empty(), "reads are not recorded");
    assert_eq!(counters.pushed_bytes(), 7 + length as u64);
    let counts: Vec<u64> = counters.counts().map(|(_, count)| count).collect();
    assert_eq!(counts, [1, 1, 1, 2, 1, 1, 1, 0]);
}

#[tokio::test]
async fn each_refusal_is_recorded_and_a_request_for_the_challenge_is_not() {
    let (_root, server, recorded, counters) =
        served(access_control_with(&["open anonymous read"]).await).await;
    server.get("/v2/").await;
    assert!(recorded.take().is_empty());
    for (path, authorization, status, expected) in [
        ("/v2/secret/tags/list", None, 401, "denied Pull Unauthorized - secret - - -"),
        ("/v2/secret/tags/list", Some(basic()), 403, &format!("denied Pull Forbidden {USER} secret - - -")),
        ("/v2/", Some(crate::support::basic_of(USER, "wrong")), 401, "denied Pull Unauthorized - - - - -"),
        ("/v2/open/tags/list", Some("Nonsense".to_owned()), 401, "denied Pull Unauthorized - open - - -"),
    ] {
        let mut request = server.request(Method::GET, path);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        assert_eq!(request.send().await.unwrap().status(), status);
        assert_eq!(recorded.take(), [expected]);
    }
    assert_eq!(counters.counts().last(), Some(("denied", 4)));
}

#[tokio::test]
async fn an_immutable_tag_is_created_once_and_neither_moved_nor_deleted() {
    let control = access_control_with(&["** user:tester all"]).await;
    let policy = Policy {
        immutable: vec![ImmutableTags {
            repositories: "os/**".parse().unwrap(),
            tags: "v*".parse().unwrap(),
        }],
        ..control.policy().as_ref().clone()
    };
    control.set_policy(policy);
    let (_root, server, recorded, _) = served(control).await;
    let put = async |path: &str, document: &[u8]| {
        let request = server.request(Method::PUT, path).header("authorization", basic());
        request.header("content-type", IMAGE).body(document.to_vec()).send().await.unwrap()
    };
    let delete = async |path: &str| {
        server.request(Method::DELETE, path).header("authorization", basic()).send().await.unwrap()
    };
    let upload = async |repository: &str, content: &[u8]| {
        let path = format!("/v2/{repository}/blobs/uploads/?digest={}", sha256(content));
        let request = server.request(Method::POST, &path).header("authorization", basic());
        assert_eq!(request.body(content.to_vec()).send().await.unwrap().status(), StatusCode::CREATED);
    };
    for repository in ["os/debian", "misc"] {
        upload(repository, b"one").await;
        upload(repository, b"two").await;
    }
    let (one, two) = (image(b"one", &[]), image(b"two", &[]));
    let (first, second) = (sha256(&one), sha256(&two));
    let denied = (403, vec!["DENIED".to_owned()]);
    let names = async |tag: &str| {
        let path = format!("/v2/os/debian/manifests/{tag}");
        let request = server.request(Method::HEAD, &path).header("authorization", basic());
        let response = request.send().await.unwrap();
        response.headers().get("docker-content-digest").map(|digest| digest.to_str().unwrap().to_owned())
    };

    assert_eq!(put("/v2/os/debian/manifests/v1", &one).await.status(), StatusCode::CREATED);
    assert_eq!(
        put("/v2/os/debian/manifests/v1", &one).await.status(),
        StatusCode::CREATED,
        "it does not move"
    );
    recorded.take();
    assert_eq!(refusal(put("/v2/os/debian/manifests/v1", &two).await).await, denied);
    assert_eq!(recorded.take(), [format!("denied Move Forbidden {USER} os/debian v1 - -")]);
    let many = format!("/v2/os/debian/manifests/{second}?tag=v2&tag=v1&tag=latest");
    assert_eq!(refusal(put(&many, &two).await).await, denied);
    assert_eq!(
        (names("v2").await, names("latest").await),
        (None, None),
        "none of the tags of a refused push"
    );
    assert_eq!(refusal(delete("/v2/os/debian/manifests/v1").await).await, denied);
    recorded.take();
    assert_eq!(refusal(delete(&format!("/v2/os/debian/manifests/{first}")).await).await, denied);
    assert_eq!(recorded.take().len(), 1);
    let blob = sha256(b"one");
    assert_eq!(refusal(delete(&format!("/v2/os/debian/blobs/{blob}")).await).await, denied);
    assert_eq!(
        recorded.take(),
        [format!("denied Delete Forbidden {USER} os/debian - {} -", &blob.hex()[..4])]
    );
    assert_eq!(names("v1").await, Some(first.to_string()));
    assert_eq!(delete("/v2/os/debian/manifests/v9").await.status(), StatusCode::NOT_FOUND);

    assert_eq!(put("/v2/os/debian/manifests/latest", &one).await.status(), StatusCode::CREATED);
    assert_eq!(put("/v2/os/debian/manifests/latest", &two).await.status(), StatusCode::CREATED);
    assert_eq!(delete("/v2/os/debian/manifests/latest").await.status(), StatusCode::ACCEPTED);
    assert_eq!(put("/v2/misc/manifests/v1", &one).await.status(), StatusCode::CREATED);
    assert_eq!(put("/v2/misc/manifests/v1", &two).await.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_many_concurrent_pushes_of_an_immutable_tag_wins() {
    let control = access_control_with(&["** user:tester all"]).await;
    let immutable = ImmutableTags { repositories: "**".parse().unwrap(), tags: "*".parse().unwrap() };
    control.set_policy(Policy { immutable: vec![immutable], ..control.policy().as_ref().clone() });
    let (_root, server, recorded, _) = served(control).await;
    let send = async |method: Method, path: String, body: Vec<u8>| {
        let request = server.request(method, &path).header("authorization", basic());
        request.header("content-type", IMAGE).body(body).send().await.unwrap().status().as_u16()
    };
    for number in 0..8u8 {
        let path = format!("/v2/a/blobs/uploads/?digest={}", sha256(&[number]));
        assert_eq!(send(Method::POST, path, vec![number]).await, 201);
    }
    for round in 0..10 {
        let pushes = (0..8u8)
            .map(|number| send(Method::PUT, format!("/v2/a/manifests/v{round}"), image(&[number], &[])));
        let mut responses = futures_util::future::join_all(pushes).await;
        responses.sort_unstable();
        assert_eq!(responses, [201, 403, 403, 403, 403, 403, 403, 403]);
    }
    let denials = recorded.take().iter().filter(|line| line.starts_with("denied")).count();
    assert_eq!(denials, 70);
}

#[tokio::test]
async fn the_right_to_create_without_update_allows_new_tags_only() {
    let control = access_control_with(&["** user:tester read,create", "open anonymous create"]).await;
    let (_root, server, recorded, _) = served(control).await;
    let put = async |path: &str, authorization: Option<String>, seed: &[u8]| {
        let repository = path.split('/').nth(2).unwrap();
        let upload = format!("/v2/{repository}/blobs/uploads/?digest={}", sha256(seed));
        for (method, path, body) in
            [(Method::POST, upload.as_str(), seed.to_vec()), (Method::PUT, path, image(seed, &[]))]
        {
            let mut request = server.request(method.clone(), path).header("content-type", IMAGE);
            if let Some(authorization) = &authorization {
                request = request.header("authorization", authorization);
            }
            let response = request.body(body).send().await.unwrap();
            if method == Method::PUT {
                return response.status().as_u16();
            }
            assert_eq!(response.status(), StatusCode::CREATED);
        }
        unreachable!()
    };
    assert_eq!(put("/v2/a/manifests/v1", Some(basic()), b"one").await, 201);
    assert_eq!(put("/v2/a/manifests/v1", Some(basic()), b"one").await, 201);
    assert_eq!(put("/v2/a/manifests/v1", Some(basic()), b"two").await, 403);
    assert_eq!(put("/v2/a/manifests/v2", Some(basic()), b"two").await, 201);
    assert_eq!(put("/v2/open/manifests/v1", None, b"one").await, 201);
    recorded.take();
    assert_eq!(put("/v2/open/manifests/v1", None, b"two").await, 401, "an anonymous caller may log in");
    assert!(recorded.take().contains(&"denied Move Unauthorized - open - - -".to_owned()));
}
