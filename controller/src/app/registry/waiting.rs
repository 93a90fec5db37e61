//! Responses of the registry wait for the audit entries of their requests.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;

use store::StoreError;

/// The task that records an entry.
type Recorded = JoinHandle<Result<(), StoreError>>;

tokio::task_local! {
    /// The entries of the current request.
    static OF_REQUEST: Arc<Mutex<Vec<Recorded>>>;
}

/// The response to the current request waits for this entry. Outside of a request nothing waits for it.
pub(super) fn before_response(recorded: Recorded) {
    let _no_request = OF_REQUEST.try_with(|entries| entries.lock().push(recorded));
}

/// A router whose responses wait for the audit entries of their requests.
pub(super) fn waiting_for_entries(router: Router) -> Router {
    router.layer(from_fn(wait))
}

async fn wait(request: Request, next: Next) -> Response {
    let entries = Arc::new(Mutex::new(Vec::new()));
    let response = OF_REQUEST.scope(Arc::clone(&entries), next.run(request)).await;
    let entries = std::mem::take(&mut *entries.lock());
    for entry in entries {
        if !matches!(entry.await, Ok(Ok(()))) {
            let message = "the change was made, but the audit log cannot be written; see /readyz, then repeat the request";
            let body = json!({ "errors": [{ "code": "UNKNOWN", "message": message }] });
            return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response();
        }
    }
    response
}
