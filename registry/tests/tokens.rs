//! The token flow from outside: which tokens are issued, what they allow, and what they never allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use registry::{
    AccessControl, AllowAll, Policy, Realm, Registry, SubjectPattern, TokenAuthority, TokenOptions,
};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use crate::support::{IMAGE, Server, access_control_for, basic_of, config, header, image, refusal, sha256};

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
    let mut options =
        TokenOptions { keys: std::sync::Arc::new(|_now| vec![[5; 32]]), ..TokenOptions::default() };
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
        let response = self.asks(&format!("service=shoal&scope={scopes}"), authorization).await;
        assert_eq!(response.status(), StatusCode::OK);
        let document: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
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
        let response = served.send(method, &path, None).await;
        let expected = format!("Bearer realm=\"http://{address}/v2/token\",service=\"shoal\"{scope}");
        assert_eq!(header(&response, "www-authenticate"), expected, "{path}");
        assert_eq!(refusal(response).await, (401, vec!["UNAUTHORIZED".to_owned()]));
    }
    let fixed =
        served_with(|options| options.realm = Realm::At("https://registry.example.org/".to_owned())).await;
    let response = fixed.send(Method::GET, "/v2/", None).await;
    assert!(header(&response, "www-authenticate").contains("\"https://registry.example.org/v2/token\""));
    let odd =
        served.server.request(Method::GET, "/v2/").header("host", "a\",scope=\"b").send().await.unwrap();
    assert!(header(&odd, "www-authenticate").contains("\"http://localhost/v2/token\""));
}

#[tokio::test]
async fn a_token_has_the_scopes_the_policy_allows_and_an_expiry() {
    let served = served().await;
    let asked = "service=shoal&scope=repository:team/app:pull,push,delete&scope=repository:mine:*";
    let response = served.asks(asked, bob()).await;
    assert_eq!(header(&response, "cache-control"), "no-store");
    let document: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
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
        let response = served.send(method.clone(), path, Some(&pull)).await;
        let expected = if path.contains("/team/tags") { 403 } else { 401 };
        assert_eq!(response.status().as_u16(), expected, "{method} {path}");
        if expected == 401 {
            assert!(header(&response, "www-authenticate").ends_with(",error=\"insufficient_scope\""));
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
        let response = served.asks("service=shoal&scope=repository:public/tool:pull", authorization).await;
        assert_eq!(header(&response, "www-authenticate"), "Basic realm=\"shoal\"");
        assert_eq!(refusal(response).await.0, 401);
    }
    assert_eq!(refusal(served.asks("service=other", ann()).await).await.0, 400);
    assert_eq!(served.asks("", ann()).await.status(), StatusCode::OK, "the service is optional");
    let other = served_with(|options| options.service = "other".to_owned()).await;
    let response = other.asks("service=other&scope=repository:team/app:pull", ann()).await;
    let document: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    let foreign = format!("Bearer {}", document["token"].as_str().unwrap());
    assert_eq!(other.status(Method::GET, "/v2/team/app/tags/list", &foreign).await, 200);
    let response = served.send(Method::GET, "/v2/team/app/tags/list", Some(&foreign)).await;
    assert!(header(&response, "www-authenticate").ends_with(",error=\"invalid_token\""));
    assert_eq!(refusal(response).await.0, 401);
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
    // A client that asks for more than it may have gets a token too: without one it would not send its request.
    let other = served.token("repository:mine:pull", None).await;
    assert_eq!(served.status(Method::GET, "/v2/mine/manifests/v1", &other).await, 401);
    assert_eq!(served.status(Method::GET, "/v2/public/tool/manifests/v1", &other).await, 200);
    // Also without any token, for clients without the token flow.
    assert_eq!(served.send(Method::GET, "/v2/public/tool/manifests/v1", None).await.status(), StatusCode::OK);
    served.authority.control().set_policy(Policy::full_access_for_users());
    assert_eq!(served.asks("", None).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        served.asks("scope=repository:public/tool:pull", None).await.status(),
        StatusCode::UNAUTHORIZED
    );
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
    let scopes = "repository:mine:pull,push%20repository:*:pull%20repository:hidden/thing:pull";
    for authorization in [served.token(scopes, bob()).await, bob().unwrap()] {
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
async fn a_token_for_one_repository_does_not_mount_from_another() {
    let served = served().await;
    let (shown, public) = (sha256(b"layer of team/app"), sha256(b"layer of public/tool"));
    let hidden = sha256(b"layer of hidden/thing");
    let narrow = served.token("repository:mine:pull,push", bob()).await;
    let any = "repository:mine:pull,push repository:*:pull";
    for (query, expected, scope) in [
        (format!("mount={shown}&from=team/app"), 401, "repository:mine:pull,push repository:team/app:pull"),
        (format!("mount={shown}"), 401, any),
        // Nothing is revealed that the user may not read.
        (format!("mount={hidden}&from=hidden/thing"), 202, ""),
        (format!("mount={hidden}"), 202, ""),
        (format!("mount={shown}&from=hidden/thing"), 202, ""),
        (format!("mount={}", sha256(b"nowhere")), 202, ""),
        // What every caller may read needs no scope.
        (format!("mount={public}&from=public/tool"), 201, ""),
        (format!("mount={public}"), 201, ""),
    ] {
        let path = format!("/v2/mine/blobs/uploads/?{query}");
        let response = served.send(Method::POST, &path, Some(&narrow)).await;
        assert_eq!(response.status().as_u16(), expected, "{query}");
        if expected != 401 {
            continue;
        }
        let challenge = header(&response, "www-authenticate");
        assert!(
            challenge.ends_with(&format!("scope=\"{scope}\",error=\"insufficient_scope\"")),
            "{challenge}"
        );
        let wide = served.token(&scope.replace(' ', "%20"), bob()).await;
        assert_eq!(served.status(Method::POST, &path, &wide).await, 201, "{query}");
        assert_eq!(served.status(Method::GET, "/v2/hidden/thing/tags/list", &wide).await, 403);
        assert_eq!(served.status(Method::POST, "/v2/team/app/blobs/uploads/", &wide).await, 403);
        let mounted = format!("/v2/mine/blobs/{shown}");
        assert_eq!(served.status(Method::DELETE, &mounted, &bob().unwrap()).await, 202);
    }
}

/// A repository `<registry>/<name>` whose content differs from that of `<name>`, for `ann` alone.
async fn served_as_mirror() -> Served {
    let served = served().await;
    let rules = ["docker.io/** user:ann all", "library/** authenticated read", "public/** anonymous read"];
    let rules = rules.map(|rule| rule.parse().unwrap()).to_vec();
    served.authority.control().set_policy(Policy { rules, ..Policy::default() });
    let ann = ann().unwrap();
    let upload = format!("/v2/docker.io/library/x/blobs/uploads/?digest={}", sha256(b"{}"));
    let push = served.server.request(Method::POST, &upload).header("authorization", &ann).body("{}");
    assert_eq!(push.send().await.unwrap().status(), StatusCode::CREATED);
    let put = served.server.request(Method::PUT, "/v2/docker.io/library/x/manifests/v1");
    let put = put.header("authorization", &ann).header("content-type", IMAGE).body(image(b"{}", &[]));
    assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    served
}

/// Follows the challenge of a response as containerd does: the scope of the name in the path and all of the challenge.
async fn follow(served: &Served, refused: Response, name: &str, authorization: Option<String>) -> String {
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let challenge = header(&refused, "www-authenticate");
    let (_, scope) = challenge.split_once("scope=\"").unwrap();
    let scopes = format!("repository:{name}:pull {}", scope.split('"').next().unwrap()).replace(' ', "%20");
    served.token(&scopes, authorization).await
}

#[tokio::test]
async fn a_mirror_client_gets_a_token_for_the_repository_of_its_namespace() {
    let served = served_as_mirror().await;
    let path = "/v2/library/x/manifests/v1?ns=docker.io";
    for method in [Method::HEAD, Method::GET] {
        let refused = served.send(method.clone(), path, None).await;
        let challenge = header(&refused, "www-authenticate").to_owned();
        let both = "scope=\"repository:library/x:pull repository:docker.io/library/x:pull\"";
        assert!(challenge.ends_with(both), "{challenge}");
        let token = follow(&served, refused, "library/x", ann()).await;
        let found = served.send(method, path, Some(&token)).await;
        assert_eq!((found.status(), header(&found, "oci-namespace")), (StatusCode::OK, "docker.io"));
        // A client with a token for the name in the path alone is asked for another one.
        let narrow = served.token("repository:library/x:pull", ann()).await;
        let refused = served.send(Method::GET, path, Some(&narrow)).await;
        assert!(
            header(&refused, "www-authenticate").ends_with(&format!("{both},error=\"insufficient_scope\""))
        );
        let token = follow(&served, refused, "library/x", ann()).await;
        assert_eq!(served.status(Method::GET, path, &token).await, 200);
    }
}

#[tokio::test]
async fn a_namespace_reveals_nothing_to_a_caller_who_may_not_read_it() {
    let served = served_as_mirror().await;
    let there = "/v2/library/x/tags/list?ns=docker.io";
    let absent = "/v2/library/y/tags/list?ns=docker.io";
    let bob_token = served.token("repository:library/x:pull%20repository:library/y:pull", bob()).await;
    for (authorization, expected) in [(None, 401), (bob(), 404), (Some(bob_token), 404)] {
        for path in [there, absent] {
            let response = served.send(Method::GET, path, authorization.as_deref()).await;
            assert_eq!(response.status().as_u16(), expected, "{path}");
            assert!(response.headers().get("oci-namespace").is_none());
        }
    }
    // A name without such a repository is read as before, with a token for it alone.
    let narrow = served.token("repository:public/tool:pull", ann()).await;
    assert_eq!(served.status(Method::GET, "/v2/public/tool/tags/list?ns=docker.io", &narrow).await, 200);
}

#[tokio::test]
async fn who_may_push_may_ask_what_exists_and_reads_nothing() {
    let served = served().await;
    let rules = vec!["drop/** anonymous create".parse().unwrap(), "mine user:bob create".parse().unwrap()];
    served.authority.control().set_policy(Policy { rules, ..Policy::default() });
    let layer = sha256(b"layer of mine");
    let blobs = [format!("/v2/drop/box/blobs/{layer}"), format!("/v2/mine/blobs/{layer}")];
    assert_eq!(served.send(Method::HEAD, &blobs[0], None).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(served.send(Method::GET, &blobs[0], None).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(served.send(Method::HEAD, &blobs[1], None).await.status(), StatusCode::UNAUTHORIZED);
    let pulls = served.token("repository:mine:pull", bob()).await;
    let pushes = served.token("repository:mine:pull,push", bob()).await;
    for authorization in [bob().unwrap(), pulls, pushes] {
        for path in [&blobs[1], "/v2/mine/manifests/v1"] {
            assert_eq!(served.status(Method::HEAD, path, &authorization).await, 200, "{path}");
            assert_eq!(served.status(Method::GET, path, &authorization).await, 403, "{path}");
        }
        assert_eq!(served.status(Method::HEAD, "/v2/mine/tags/list", &authorization).await, 403);
    }
}

/// What clients do, one request after the other, before, during and after a push without credentials.
#[tokio::test]
async fn anonymous_write_alone_lets_clients_push_with_and_without_the_token_flow() {
    let root = tempfile::tempdir().unwrap();
    for tokens in [true, false] {
        let control = access_control_for(&USERS, &[]).await;
        control.set_policy(Policy { anonymous_write: true, ..Policy::default() });
        let registry = Registry::open(config(&root.path().join(tokens.to_string()))).await.unwrap();
        let router = if tokens {
            let authority = Arc::new(TokenAuthority::new(control, TokenOptions::default()));
            registry.router(Arc::clone(&authority) as _).merge(authority.token_router())
        } else {
            registry.router(Arc::new(control))
        };
        let served = Server::serve(registry, router).await;
        // oras sends nothing, skopeo a token or empty credentials, whatever the challenge says.
        let mut known = vec![None, Some("Basic Og==".to_owned())];
        if tokens {
            let place = "/v2/token?service=shoal&scope=repository:a:pull,push";
            let document: Value =
                serde_json::from_slice(&served.get(place).await.bytes().await.unwrap()).unwrap();
            known.push(Some(format!("Bearer {}", document["token"].as_str().unwrap())));
        }
        for (number, authorization) in known.iter().enumerate() {
            let send = async |method: Method, path: &str, body: Vec<u8>| {
                let mut request = served.request(method, path).header("content-type", IMAGE).body(body);
                if let Some(authorization) = authorization {
                    request = request.header("authorization", authorization);
                }
                request.send().await.unwrap().status().as_u16()
            };
            let content = format!("layer {number}").into_bytes();
            let (blob, digest) = (format!("/v2/a/blobs/{}", sha256(&content)), sha256(&content));
            assert_eq!(send(Method::HEAD, &blob, vec![]).await, 404, "{authorization:?}");
            let upload = format!("/v2/a/blobs/uploads/?digest={digest}");
            assert_eq!(send(Method::POST, &upload, content.clone()).await, 201);
            assert_eq!(send(Method::HEAD, &blob, vec![]).await, 200);
            let document = image(&content, &[]);
            let manifest = format!("/v2/a/manifests/{}", sha256(&document));
            assert_eq!(send(Method::HEAD, &manifest, vec![]).await, 404);
            assert_eq!(
                send(Method::PUT, "/v2/a/manifests/v1", document).await,
                201,
                "a tag that exists may move"
            );
            assert_eq!(send(Method::HEAD, &manifest, vec![]).await, 200);
            assert_eq!(send(Method::GET, &manifest, vec![]).await, 401, "writing is not reading");
        }
    }
}

#[tokio::test]
async fn empty_credentials_are_anonymous_everywhere() {
    let served = served().await;
    for empty in ["Basic Og==", "Basic ", "Bearer "] {
        assert_eq!(served.status(Method::GET, "/v2/public/tool/manifests/v1", empty).await, 200, "{empty}");
        assert_eq!(served.status(Method::GET, "/v2/mine/manifests/v1", empty).await, 401, "{empty}");
        let path = "/v2/token?scope=repository:public/tool:pull";
        assert_eq!(served.status(Method::GET, path, empty).await, 200, "{empty}");
    }
}

#[tokio::test]
async fn the_challenge_never_names_a_token_endpoint_of_an_unknown_scheme() {
    let plain = Some("registry.example.org:8080".to_owned());
    let served = served_with(|options| options.realm = Realm::AsReached { plain }).await;
    let challenge = async |headers: &[(&str, &str)]| {
        let mut request = served.server.request(Method::GET, "/v2/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        header(&request.send().await.unwrap(), "www-authenticate").to_owned()
    };
    let bearer = |realm: &str| format!("Bearer realm=\"{realm}/v2/token\",service=\"shoal\"");
    assert_eq!(challenge(&[]).await, bearer(&format!("http://{}", served.server.address)), "on this machine");
    for headers in [
        &[("host", "registry.example.org")][..],
        &[("host", "registry.example.org:8443")],
        &[("host", "127.0.0.1:1")],
        &[("host", "registry.example.org"), ("x-forwarded-for", "192.0.2.1")],
        &[("host", "registry.example.org:8080"), ("x-forwarded-proto", "http")],
        &[("via", "1.1 proxy")],
        &[("x-forwarded-proto", "http")],
    ] {
        assert_eq!(challenge(headers).await, "Basic realm=\"shoal\"", "{headers:?}");
    }
    let by_tls = [("host", "registry.example.org"), ("x-forwarded-proto", "https")];
    assert_eq!(challenge(&by_tls).await, bearer("https://registry.example.org"));
    // The operator says that clients reach this host without TLS.
    let by_name = [("host", "registry.example.org:8080")];
    assert_eq!(challenge(&by_name).await, bearer("http://registry.example.org:8080"));
}

#[tokio::test]
async fn too_many_wrong_passwords_are_429_and_concern_one_user() {
    let served = served().await;
    let statuses = async |path: &'static str| {
        let mut seen = Vec::new();
        for number in 0..25 {
            let wrong = basic_of("ann", &format!("guess {number} for {path}"));
            let response = served.send(Method::GET, path, Some(&wrong)).await;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                assert_eq!(header(&response, "retry-after"), "6");
            }
            seen.push(refusal(response).await);
        }
        seen
    };
    let (unauthorized, limited) =
        ((401, vec!["UNAUTHORIZED".to_owned()]), (429, vec!["TOOMANYREQUESTS".to_owned()]));
    let seen = statuses("/v2/mine/tags/list").await;
    assert_eq!((&seen[0], &seen[24]), (&unauthorized, &limited));
    assert!(seen.iter().all(|response| *response == unauthorized || *response == limited), "{seen:?}");
    assert_eq!(statuses("/v2/token?service=shoal").await[24], limited);
    assert_eq!(
        served.status(Method::GET, "/v2/mine/tags/list", &bob().unwrap()).await,
        200,
        "the same address"
    );
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
    let response = post(good).await;
    assert_eq!(response.status(), StatusCode::OK);
    let document: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
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
    let response = server.get("/v2/").await;
    assert_eq!(response.status(), StatusCode::OK, "anonymous callers may read something");
    assert_eq!(header(&response, "www-authenticate"), "Basic realm=\"shoal\"");
    let request = server.request(Method::GET, "/v2/").header("authorization", ann().unwrap());
    assert!(request.send().await.unwrap().headers().get("www-authenticate").is_none());
}

#[tokio::test]
async fn where_every_caller_may_do_everything_the_version_check_carries_no_challenge() {
    let root = tempfile::tempdir().unwrap();
    let control = access_control_for(&USERS, &[]).await;
    control.set_policy(Policy { administrators: vec![SubjectPattern::Anonymous], ..Policy::default() });
    let server = Server::open(config(root.path()), Arc::new(control)).await;
    let response = server.get("/v2/").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().get("www-authenticate").is_none());
    let empty = server.request(Method::POST, "/v2/a/blobs/uploads/").header("authorization", "Basic Og==");
    assert_eq!(empty.send().await.unwrap().status(), StatusCode::ACCEPTED);
}
