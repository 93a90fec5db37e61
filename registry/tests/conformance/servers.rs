//! The registries the suite is run against: open, and behind each way of logging in.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::get;
use registry::{Access, Action, AllowAll, Authorizer, Caller, Denied, Registry};
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::{Login, Target};
use crate::support::{BasicOnly, PASSWORD, USER, basic, client, config};

/// A served registry; stopped when dropped.
pub(super) struct Served {
    address: SocketAddr,
    task: JoinHandle<()>,
    _root: tempfile::TempDir,
}

impl Served {
    pub(super) fn target(&self, login: Option<Login>) -> Target {
        let base = Url::parse(&format!("http://{}", self.address)).unwrap();
        Target::new(base, client(), login)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a registry that takes sparse manifests, with `change` applied to its router.
pub(super) async fn serve(
    authorizer: impl FnOnce(SocketAddr) -> Arc<dyn Authorizer>,
    change: impl FnOnce(Router) -> Router,
) -> Served {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path());
    config.sparse_images = vec![super::REPOSITORY.parse().unwrap()];
    let registry = Registry::open(config).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = change(registry.router(authorizer(address)));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let task = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    Served { address, task, _root: root }
}

pub(super) fn login() -> Login {
    Login { user: USER.to_owned(), password: PASSWORD.to_owned() }
}

pub(super) async fn open() -> Served {
    serve(|_| Arc::new(AllowAll), |router| router).await
}

pub(super) async fn behind_basic() -> Served {
    serve(|_| Arc::new(BasicOnly), |router| router).await
}

pub(super) async fn behind_bearer() -> Served {
    let tokens = |router: Router| router.route("/token", get(issue));
    serve(|address| Arc::new(Bearer { realm: format!("http://{address}/token") }), tokens).await
}

/// A token of this service says in clear text what it is good for; real ones are signed.
struct Bearer {
    realm: String,
}

#[async_trait]
impl Authorizer for Bearer {
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
        let token = caller.authorization.and_then(|value| value.strip_prefix("Bearer "));
        let token = token.ok_or(Denied::Unauthorized)?;
        // Content is looked for wherever its user may read, and the one user here may read everything.
        let granted =
            access.action == Action::Pull || token.split(' ').any(|scope| scope == scope_of(access));
        if granted { Ok(()) } else { Err(Denied::Unauthorized) }
    }

    fn challenge(&self, access: Access<'_>) -> String {
        format!("Bearer realm=\"{}\",service=\"test\",scope=\"{}\"", self.realm, scope_of(access))
    }
}

fn scope_of(access: Access<'_>) -> String {
    let action = match access.action {
        Action::Pull => "pull",
        Action::Push => "push",
        Action::Delete => "delete",
    };
    access.repository.map_or_else(String::new, |name| format!("repository:{name}:{action}"))
}

async fn issue(RawQuery(asked): RawQuery, headers: HeaderMap) -> axum::response::Response {
    let known = headers.get("authorization").is_some_and(|value| *value == *basic());
    if !known {
        return axum::http::StatusCode::UNAUTHORIZED.into_response();
    }
    let asked = Url::parse(&format!("http://localhost/?{}", asked.unwrap_or_default())).unwrap();
    let scopes = asked.query_pairs().filter(|(name, _)| name == "scope").map(|(_, scope)| scope.into_owned());
    let token = scopes.fold("good-for".to_owned(), |token, scope| format!("{token} {scope}"));
    axum::Json(serde_json::json!({"token": token, "expires_in": 300})).into_response()
}
