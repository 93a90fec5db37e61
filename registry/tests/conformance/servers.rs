//! The registries of the suite: open, and with each way of logging in.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use registry::{AccessControl, AllowAll, Authorizer, Registry, TokenAuthority, TokenOptions};
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::{Login, Target};
use crate::support::{PASSWORD, USER, access_control_with, client, config};

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

/// Serves a registry that accepts sparse manifests, with `change` applied to its router.
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
    Login { user: USER.to_owned(), password: PASSWORD.to_owned(), holds_nothing: false }
}

pub(super) async fn open() -> Served {
    serve(|_| Arc::new(AllowAll), |router| router).await
}

pub(super) async fn behind_basic() -> Served {
    let control = access_control().await;
    serve(|_| Arc::new(control), |router| router).await
}

pub(super) async fn behind_bearer(change: impl FnOnce(Router) -> Router) -> Served {
    let authority = Arc::new(TokenAuthority::new(access_control().await, TokenOptions::default()));
    let endpoint = authority.token_router();
    serve(|_| authority, |router| change(router.merge(endpoint))).await
}

/// A user in an htpasswd file that may pull, push and delete in the repositories of the suite.
async fn access_control() -> AccessControl {
    access_control_with(&["conformance/* user:tester all"]).await
}
