//! The token flow from outside: which tokens are issued, what they allow, and what they never allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use registry::{AccessControl, AllowAll, Policy, Realm, Registry, TokenAuthority, TokenOptions};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use crate::support::{Server, access_control_for, basic_of, config, header, refusal, sha256};

const RULES: [&str; 5] = [
    "team/** user:ann all",
    "team/** user:bob read",
    "public/** anonymous read",
    "hidden/** user:ann read",
    "mine user:bob all",
];
const USERS: [(&str, &str); 2] = [("ann", "sesame"), ("bob", "barley")];

struct Served {
    server: Server,
    authority: Arc<TokenAuthority>,
    _root: tempfile::TempDir,
}

async fn served_with(change: impl FnOnce(&mut TokenOptions)) -> Served {
    let root = tempfile::tempdir().unwrap();
    {
        let open = Server::open(config(root.path()), Arc::new(AllowAll)).await;
        for (repository, tag) in
            [("team/app", "v1"), ("public/tool", "v1"), ("hidden/thing", "v1"), ("mine", "v1")]
        {
            open.push_image(repository, tag, repository).await;
        }
    }
    let mut options = TokenOptions { key: [5; 32], ..TokenOptions::default() };
    change(&mut options);
    let control: AccessControl = access_control_for(&USERS, &RULES).await;
    let authority = Arc::new(TokenAuthority::new(control, options));
    let registry = Registry::open(config(root.path())).await.unwrap();
    let router = registry.router(Arc::clone(&authority) as _).merge(authority.token_router());
    Served { server: Server::serve(registry, router).await, authority, _root: root }
}

async fn served() -> Served {
    served_with(|_| {}).await
}

fn ann() -> Option<String> {
    Some(basic_of("ann", "sesame"))
}

fn bob() -> Option<String> {
    Some(basic_of("bob", "barley"))
}

impl Served {
    async fn send(&self, method: Method, path: &str, authorization: Option<&str>) -> Response {
        let mut request = self.server.request(method, path);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request.send().await.unwrap()
    }

    async fn status(&self, method: Method, path: &str, authorization: &str) -> u16 {
        self.send(method, path, Some(authorization)).await.status().as_u16()
    }

    async fn asks(&self, query: &str, authorization: Option<String>) -> Response {
        self.send(Method::GET, &format!("/v2/token?{query}"), authorization.as_deref()).await
    }

    /// The `Authorization` header with a token for these scopes.
    async fn token(&self, scopes: &str, authorization: Option<String>) -> String {
        let answer = self.asks(&format!("service=shoal&scope={scopes}"), authorization).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let document: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        format!("Bearer {}", document["token"].as_str().unwrap())
    }
}

#[tokio::test]
async fn the_challenge_names_the_realm_and_the_scopes() {
    let served = served().await;
    let address = served.server.address;
    let digest = sha256(b"x");
    for (method, path, scope) in [
        (Method::GET, "/v2/".to_owned(), ""),
        (Method::GET, "/v2/team/app/tags/list".to_owned(), ",scope=\"repository:team/app:pull\""),
        (Method::DELETE, "/v2/team/app/manifests/v1".to_owned(), ",scope=\"repository:team/app:delete\""),
        (Method::GET, "/v2/_catalog".to_owned(), ",scope=\"registry:catalog:*\""),
        (
            Method::POST,
            format!("/v2/team/app/blobs/uploads/?mount={digest}&from=mine"),
            ",scope=\"repository:team/app:pull,push repository:mine:pull\"",
        ),
    ] {
        let answer = served.send(method, &path, None).await;
        let expected = format!("Bearer realm=\"http://{address}/v2/token\",service=\"shoal\"{scope}");
        assert_eq!(header(&answer, "www-authenticate"), expected, "{path}");
        assert_eq!(refusal(answer).await, (401, vec!["UNAUTHORIZED".to_owned()]));
    }
    let fixed =
        served_with(|options| options.realm = Realm::At("https://registry.example.org/".to_owned())).await;
    let answer = fixed.send(Method::GET, "/v2/", None).await;
    assert!(header(&answer, "www-authenticate").contains("\"https://registry.example.org/v2/token\""));
    let odd =
        served.server.request(Method::GET, "/v2/").header("host", "a\",scope=\"b").send().await.unwrap();
    assert!(header(&odd, "www-authenticate").contains("\"http://localhost/v2/token\""));
}

#[tokio::test]
async fn a_token_has_the_scopes_the_policy_allows_and_an_expiry() {
    let served = served().await;
    let asked = "service=shoal&scope=repository:team/app:pull,push,delete&scope=repository:mine:*";
    let answer = served.asks(asked, bob()).await;
    assert_eq!(header(&answer, "cache-control"), "no-store");
    let document: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(document["token"], document["access_token"]);
    assert_eq!(document["expires_in"], 300);
    assert!(document["issued_at"].as_str().unwrap().ends_with('Z'));
    let bearer = format!("Bearer {}", document["token"].as_str().unwrap());
    assert_eq!(served.status(Method::GET, "/v2/", &bearer).await, 200);
    assert_eq!(served.status(Method::GET, "/v2/team/app/manifests/v1", &bearer).await, 200);
    assert_eq!(served.status(Method::DELETE, "/v2/team/app/manifests/v1", &bearer).await, 403);
    assert_eq!(served.status(Method::POST, "/v2/team/app/blobs/uploads/", &bearer).await, 403);
    assert_eq!(served.status(Method::POST, "/v2/mine/blobs/uploads/", &bearer).await, 202);
    assert_eq!(served.status(Method::DELETE, "/v2/mine/manifests/v1", &bearer).await, 202);
}

#[tokio::test]
async fn a_token_is_valid_for_its_scopes_only() {
    let served = served().await;
    let pull = served.token("repository:team/app:pull", ann()).await;
    assert_eq!(served.status(Method::GET, "/v2/team/app/manifests/v1", &pull).await, 200);
    for (method, path) in [
        (Method::POST, "/v2/team/app/blobs/uploads/"),
        (Method::PUT, "/v2/team/app/manifests/v2"),
        (Method::DELETE, "/v2/team/app/manifests/v1"),
        (Method::GET, "/v2/team/application/tags/list"),
        (Method::GET, "/v2/team/tags/list"),
        (Method::GET, "/v2/hidden/thing/manifests/v1"),
        (Method::GET, "/v2/_catalog"),
    ] {
        let answer = served.send(method.clone(), path, Some(&pull)).await;
        let expected = if path.contains("/team/tags") { 403 } else { 401 };
        assert_eq!(answer.status().as_u16(), expected, "{method} {path}");
        if expected == 401 {
            assert!(header(&answer, "www-authenticate").ends_with(",error=\"insufficient_scope\""));
        }
    }
}

#[tokio::test]
async fn unusual_scope_requests_give_no_more_access() {
    let served = served().await;
    for scope in [
        "repository:hidden/thing:pull",
        "repository:hidden/thing:*",
        "repository:*:pull",
        "repository:**:*",
        "repository:mine/../hidden/thing:pull",
        "repository:mine:pull,repository:hidden/thing:pull",
        "repository:mine:pull+repository:hidden/thing:pull",
        "repository:mine:pull%20repository:hidden/thing:pull",
        "repository(class):hidden/thing:pull",
        "REPOSITORY:hidden/thing:pull",
        "registry:catalog:*",
        "",
    ] {
        let bearer = served.token(scope, bob()).await;
        assert_eq!(
            served.status(Method::GET, "/v2/hidden/thing/manifests/v1", &bearer).await,
            403,
            "{scope}"
        );
        let list = served.send(Method::GET, "/v2/_catalog", Some(&bearer)).await;
        if list.status() == StatusCode::OK {
            assert_eq!(scope, "registry:catalog:*");
            let shown = list.text().await.unwrap();
            assert_eq!(shown, r#"{"repositories":["mine","public/tool","team/app"]}"#);
        }
    }
}

#[tokio::test]
async fn wrong_credentials_and_other_services_get_no_token() {
    let served = served().await;
    for authorization in
        [Some(basic_of("ann", "wrong")), Some(basic_of("unknown", "x")), Some("Basic x".to_owned())]
    {
        let answer = served.asks("service=shoal&scope=repository:public/tool:pull", authorization).await;
        assert_eq!(header(&answer, "www-authenticate"), "Basic realm=\"shoal\"");
        assert_eq!(refusal(answer).await.0, 401);
    }
    assert_eq!(refusal(served.asks("service=other", ann()).await).await.0, 400);
    assert_eq!(served.asks("", ann()).await.status(), StatusCode::OK, "the service is optional");
    let other = served_with(|options| options.service = "other".to_owned()).await;
    let answer = other.asks("service=other&scope=repository:team/app:pull", ann()).await;
    let document: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    let foreign = format!("Bearer {}", document["token"].as_str().unwrap());
    assert_eq!(other.status(Method::GET, "/v2/team/app/tags/list", &foreign).await, 200);
    let answer = served.send(Method::GET, "/v2/team/app/tags/list", Some(&foreign)).await;
    assert!(header(&answer, "www-authenticate").ends_with(",error=\"invalid_token\""));
    assert_eq!(refusal(answer).await.0, 401);
}

static NOW: AtomicU64 = AtomicU64::new(1_800_000_000);

fn fixed_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_token_expires() {
    let served = served_with(|options| options.clock = fixed_clock).await;
    let bearer = served.token("repository:team/app:pull", ann()).await;
    let path = "/v2/team/app/tags/list";
    NOW.fetch_add(299, Ordering::SeqCst);
    assert_eq!(served.status(Method::GET, path, &bearer).await, 200);
    NOW.fetch_add(1, Ordering::SeqCst);
    assert_eq!(served.status(Method::GET, path, &bearer).await, 401);
}

#[tokio::test]
async fn a_removed_right_ends_before_the_token_expires() {
    let served = served().await;
    let bearer = served.token("repository:team/app:pull", ann()).await;
    assert_eq!(served.status(Method::GET, "/v2/team/app/tags/list", &bearer).await, 200);
    served.authority.control().set_policy(Policy::default());
    assert_eq!(served.status(Method::GET, "/v2/team/app/tags/list", &bearer).await, 403);
}

#[tokio::test]
async fn anonymous_callers_get_tokens_for_public_content_only() {
    let served = served().await;
    let bearer = served.token("repository:public/tool:pull,push", None).await;
    assert_eq!(served.status(Method::GET, "/v2/public/tool/manifests/v1", &bearer).await, 200);
    assert_eq!(served.status(Method::POST, "/v2/public/tool/blobs/uploads/", &bearer).await, 401);
    assert_eq!(served.status(Method::GET, "/v2/mine/manifests/v1", &bearer).await, 401);
    assert_eq!(served.asks("scope=repository:mine:pull", None).await.status(), StatusCode::UNAUTHORIZED);
    // Also without any token, for clients without the token flow.
    assert_eq!(served.send(Method::GET, "/v2/public/tool/manifests/v1", None).await.status(), StatusCode::OK);
    served.authority.control().set_policy(Policy::full_access_for_users());
    assert_eq!(served.asks("", None).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_anonymous_switches_apply_where_no_rule_matches() {
    let served = served().await;
    let push =
        async || served.send(Method::POST, "/v2/new/thing/blobs/uploads/", None).await.status().as_u16();
    let pull = async |name: &str| {
        served.send(Method::GET, &format!("/v2/{name}/tags/list"), None).await.status().as_u16()
    };
    assert_eq!((pull("new/thing").await, push().await), (401, 401));
    let mut policy = served.authority.control().policy().as_ref().clone();
    policy.anonymous_read = true;
    served.authority.control().set_policy(policy.clone());
    assert_eq!((pull("new/thing").await, push().await, pull("mine").await), (404, 401, 401));
    policy.anonymous_write = true;
    served.authority.control().set_policy(policy);
    assert_eq!((push().await, pull("mine").await), (202, 401));
}

#[tokio::test]
async fn a_refusal_does_not_reveal_what_exists() {
    let served = served().await;
    let blob = sha256(b"layer of hidden/thing");
    let bearer = served.token("repository:mine:pull,push", bob()).await;
    for authorization in [None, bob(), Some(bearer.clone())] {
        let mut seen = Vec::new();
        for (there, absent) in [
            ("/v2/hidden/thing/manifests/v1".to_owned(), "/v2/hidden/none/manifests/v1".to_owned()),
            ("/v2/hidden/thing/tags/list".to_owned(), "/v2/hidden/none/tags/list".to_owned()),
            (
                format!("/v2/hidden/thing/blobs/{blob}"),
                format!("/v2/hidden/thing/blobs/{}", sha256(b"absent")),
            ),
            (format!("/v2/hidden/thing/referrers/{blob}"), format!("/v2/hidden/none/referrers/{blob}")),
        ] {
            let there = refusal(served.send(Method::GET, &there, authorization.as_deref()).await).await;
            let absent = refusal(served.send(Method::GET, &absent, authorization.as_deref()).await).await;
            assert_eq!(there, absent);
            seen.push(there.0);
        }
        let expected = if authorization.is_none() { 401 } else { 403 };
        assert!(seen.iter().all(|status| *status == expected), "{seen:?}");
    }
    let granted = |scope: &'static str| served.token(scope, bob());
    let (there, absent) =
        (granted("repository:hidden/thing:pull").await, granted("repository:hidden/none:pull").await);
    assert_eq!(there.len(), absent.len(), "nor in a token");
}

#[tokio::test]
async fn a_mount_takes_only_from_repositories_its_user_may_read() {
    let served = served().await;
    let (hidden, shown) = (sha256(b"layer of hidden/thing"), sha256(b"layer of team/app"));
    for authorization in [served.token("repository:mine:pull,push", bob()).await, bob().unwrap()] {
        for (query, expected) in [
            (format!("mount={hidden}&from=hidden/thing"), 202),
            (format!("mount={hidden}"), 202),
            (format!("mount={shown}&from=hidden/thing"), 202),
            (format!("mount={shown}&from=team/app"), 201),
            (format!("mount={shown}"), 201),
        ] {
            let path = format!("/v2/mine/blobs/uploads/?{query}");
            assert_eq!(served.status(Method::POST, &path, &authorization).await, expected, "{query}");
        }
    }
}

#[tokio::test]
async fn basic_credentials_work_everywhere_without_a_token() {
    let served = served().await;
    let (ann, bob) = (ann().unwrap(), bob().unwrap());
    assert_eq!(served.status(Method::GET, "/v2/", &ann).await, 200);
    assert_eq!(served.status(Method::GET, "/v2/team/app/tags/list", &bob).await, 200);
    assert_eq!(served.status(Method::GET, "/v2/hidden/thing/tags/list", &bob).await, 403);
    assert_eq!(served.status(Method::GET, "/v2/public/tool/tags/list", &basic_of("ann", "wrong")).await, 401);
    let list = served.send(Method::GET, "/v2/_catalog", Some(&ann)).await.text().await.unwrap();
    assert_eq!(list, r#"{"repositories":["hidden/thing","public/tool","team/app"]}"#);
}

#[tokio::test]
async fn a_form_gets_the_same_token_as_a_query() {
    let served = served().await;
    let post = async |form: &str| {
        let request = served.server.request(Method::POST, "/v2/token");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(form.to_owned()).send().await.unwrap()
    };
    let good = "grant_type=password&client_id=test&service=shoal&username=bob&password=barley\
                &scope=repository%3Amine%3Apull%2Cpush+repository%3Ahidden%2Fthing%3Apull";
    let answer = post(good).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let document: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    let bearer = format!("Bearer {}", document["access_token"].as_str().unwrap());
    assert_eq!(served.status(Method::POST, "/v2/mine/blobs/uploads/", &bearer).await, 202);
    assert_eq!(served.status(Method::GET, "/v2/hidden/thing/tags/list", &bearer).await, 403);
    for (form, status) in [
        ("grant_type=password&username=bob&password=wrong", 401),
        ("grant_type=password&username=&password=", 401),
        ("grant_type=password", 401),
        ("grant_type=refresh_token&refresh_token=x", 400),
        ("", 400),
        (&"x".repeat(20_000), 400),
    ] {
        assert_eq!(refusal(post(form).await).await.0, status, "{:.60}", form);
    }
}

#[tokio::test]
async fn the_path_of_the_endpoint_belongs_to_no_repository() {
    let served = served().await;
    let wide = Policy::full_access_for_users();
    served.authority.control().set_policy(wide);
    let ann = ann().unwrap();
    assert_eq!(served.status(Method::POST, "/v2/token/blobs/uploads/", &ann).await, 202);
    let unknown = served.send(Method::GET, "/v2/token/manifests/token", Some(&ann)).await;
    assert_eq!(refusal(unknown).await, (404, vec!["MANIFEST_UNKNOWN".to_owned()]));
}

#[tokio::test]
async fn without_the_token_flow_the_version_check_carries_a_challenge() {
    let root = tempfile::tempdir().unwrap();
    let control = access_control_for(&USERS, &RULES).await;
    let server = Server::open(config(root.path()), Arc::new(control)).await;
    let answer = server.get("/v2/").await;
    assert_eq!(answer.status(), StatusCode::OK, "anonymous callers may read something");
    assert_eq!(header(&answer, "www-authenticate"), "Basic realm=\"shoal\"");
    let request = server.request(Method::GET, "/v2/").header("authorization", ann().unwrap());
    assert!(request.send().await.unwrap().headers().get("www-authenticate").is_none());
}
