//! Users of the embedding program behind the token flow: authenticated for a token, and again at each use of it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use registry::{
    AccessControl, AllowAll, Audit, AuditEvent, Caller, Credentials, Denied, Policy, PolicySubject, Registry,
    TokenAuthority, TokenOptions, UserAuthenticator,
};
use reqwest::Method;
use serde_json::Value;

use crate::support::{Server, basic_of, config};

/// A user that may pull from `team/app` while it exists.
#[derive(Default)]
struct JobUsers {
    gone: AtomicBool,
    asked: AtomicUsize,
}

#[async_trait]
impl UserAuthenticator for JobUsers {
    async fn authenticate(
        &self,
        credentials: &Credentials,
        _caller: Caller<'_>,
    ) -> Result<PolicySubject, Denied> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match credentials {
            Credentials::Basic { user, password } if password.expose() == "sesame" => {
                Ok(PolicySubject::Puller { name: user.clone(), repository: "team/app".parse().unwrap() })
            }
            _ => Err(Denied::Unauthorized),
        }
    }

    async fn refresh(&self, subject: PolicySubject) -> Result<PolicySubject, Denied> {
        if self.gone.load(Ordering::SeqCst) { Err(Denied::Unauthorized) } else { Ok(subject) }
    }
}

#[derive(Default)]
struct RecordedEvents(Mutex<Vec<AuditEvent>>);

impl Audit for RecordedEvents {
    fn record(&self, event: &AuditEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

struct Served {
    server: Server,
    users: Arc<JobUsers>,
    recorded: Arc<RecordedEvents>,
    _root: tempfile::TempDir,
}

static NOW: AtomicU64 = AtomicU64::new(1_800_000_000);

fn fixed_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW.load(Ordering::SeqCst))
}

async fn served() -> Served {
    served_at(SystemTime::now).await
}

async fn served_at(clock: fn() -> SystemTime) -> Served {
    let root = tempfile::tempdir().unwrap();
    {
        let open = Server::open(config(root.path()), Arc::new(AllowAll)).await;
        open.push_image("team/app", "v1", "app").await;
        open.push_image("public/tool", "v1", "tool").await;
    }
    let (users, recorded) = (Arc::new(JobUsers::default()), Arc::new(RecordedEvents::default()));
    let rules = vec!["** authenticated all".parse().unwrap(), "public/** anonymous all".parse().unwrap()];
    let control = AccessControl::new(Arc::clone(&users) as _, Policy { rules, ..Policy::default() });
    let options = TokenOptions { clock, ..TokenOptions::default() };
    let authority = Arc::new(TokenAuthority::new(control, options));
    let registry = Registry::open(config(root.path())).await.unwrap();
    let router = registry
        .router(Arc::clone(&authority) as _)
        .merge(authority.audited_token_router(Arc::clone(&recorded) as _));
    Served { server: Server::serve(registry, router).await, users, recorded, _root: root }
}

impl Served {
    async fn status(&self, method: Method, path: &str, authorization: &str) -> u16 {
        let request = self.server.request(method, path).header("authorization", authorization);
        request.send().await.unwrap().status().as_u16()
    }

    async fn token(&self, scope: &str) -> String {
        let path = format!("/v2/token?service=shoal&scope={scope}");
        let request = self.server.request(Method::GET, &path);
        let response = request.header("authorization", basic_of("job", "sesame")).send().await.unwrap();
        let document: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        format!("Bearer {}", document["token"].as_str().unwrap())
    }
}

const OWN: &str = "/v2/team/app/manifests/v1";

#[tokio::test]
async fn a_puller_has_the_same_rights_with_a_token_as_with_its_password() {
    let served = served().await;
    let token = served.token("repository:team/app:*%20repository:public/tool:*%20repository:else:*").await;
    for shown in [token, basic_of("job", "sesame")] {
        assert_eq!(served.status(Method::GET, "/v2/", &shown).await, 200);
        assert_eq!(served.status(Method::GET, OWN, &shown).await, 200);
        for (method, path) in [
            (Method::DELETE, OWN),
            (Method::POST, "/v2/team/app/blobs/uploads/"),
            (Method::PUT, "/v2/team/app/manifests/v2"),
            (Method::GET, "/v2/public/tool/manifests/v1"),
            (Method::POST, "/v2/else/blobs/uploads/"),
        ] {
            assert_eq!(served.status(method.clone(), path, &shown).await, 403, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_token_ends_with_its_user_and_an_expired_one_is_no_guess() {
    let served = served_at(fixed_clock).await;
    let token = served.token("repository:team/app:pull").await;
    assert_eq!(served.status(Method::GET, OWN, &token).await, 200);
    let asked = served.users.asked.load(Ordering::SeqCst);
    served.users.gone.store(true, Ordering::SeqCst);
    assert_eq!(served.status(Method::GET, OWN, &token).await, 401);
    served.users.gone.store(false, Ordering::SeqCst);
    NOW.fetch_add(300, Ordering::SeqCst);
    assert_eq!(served.status(Method::GET, OWN, &token).await, 401, "the token has expired");
    assert_eq!(
        served.users.asked.load(Ordering::SeqCst),
        asked,
        "an expired token is no attempt at authentication"
    );
    assert_eq!(served.status(Method::GET, OWN, &token[..token.len() - 2]).await, 401);
    assert_eq!(served.users.asked.load(Ordering::SeqCst), asked + 1, "a forged token is an attempt");
}

#[tokio::test]
async fn refused_credentials_are_recorded_and_missing_ones_are_not() {
    let served = served().await;
    let path = "/v2/token?service=shoal";
    for request in [
        served.server.request(Method::GET, path).header("authorization", basic_of("job", "canary-wrong")),
        served
            .server
            .request(Method::POST, path)
            .body("grant_type=password&username=job&password=canary-wrong"),
        served.server.request(Method::GET, path),
    ] {
        let status = request.send().await.unwrap().status().as_u16();
        assert!(status == 401 || status == 200, "{status}");
    }
    let recorded = served.recorded.0.lock().unwrap();
    assert_eq!(recorded.len(), 2, "{recorded:?}");
    assert!(recorded.iter().all(|event| event.what.name() == "denied" && event.time <= SystemTime::now()));
    assert!(!format!("{recorded:?}").contains("canary"));
}
