//! The audit entry of a request: one for each request that changes something, and refused requests as sums.
//!
//! ```text
//!   request ──> trail: source, action, target of the path ──> handler: actor, target ──> first change + entry
//!      response 2xx, no entry yet (a change outside of the database, or none) ──> entry, durable, then the response
//!      response 4xx ──> counted (`RefusedAttempts`); of reads and dry runs only refused credentials and permissions
//!      response 5xx, or the client is gone ──> entry with the code
//! ```
//!
//! Invariants: a success is sent only after its entry is durable; a route that changes something has an action (a test reads
//! the table of routes).

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{Method, StatusCode};

use super::Api;
use super::error::ApiError;
use super::error_code::ErrorCode;
use access::audit::{AuditAction, name_of};
use access::auth::Principal;
use model::audit::{AuditActor, NewAuditEntry};
use model::error_chain;
use store::{AuditTrail, Store, audit_trail};

/// The codes with which a request without permission is refused.
const DENIED: [ErrorCode; 3] = [ErrorCode::Unauthorized, ErrorCode::Forbidden, ErrorCode::RateLimited];

/// The audit of one request. Dropped without [`Self::finish`], the client was gone before its response.
pub(super) struct RequestAudit {
    trail: Arc<AuditTrail>,
    changes: bool,
    is_dry_run: bool,
    store: Store,
    finished: bool,
}

impl RequestAudit {
    /// The audit of a request to a route; `segments` are those of its path that the route names.
    pub(super) fn begin(
        api: &Api,
        method: &Method,
        route: &str,
        segments: &[(String, String)],
        peer: IpAddr,
        request_id: &str,
    ) -> Self {
        let action = AuditAction::of_route(method, route);
        let name = action.unwrap_or(AuditAction::Read).as_str();
        let entry = NewAuditEntry::new(api.now(), AuditActor::unknown(), name)
            .from_source(&peer.to_canonical().to_string())
            .of_request(request_id);
        let entry = match (action, segments.first()) {
            (Some(_), Some((_, text))) => entry.on(AuditAction::target_of_route(route), &name_of(text)),
            (Some(_), None) => entry,
            (None, _) => entry.on("route", route),
        };
        let changes = action.is_some();
        let (trail, store) = (AuditTrail::new(entry, changes), api.store().clone());
        Self { trail, changes, is_dry_run: false, store, finished: false }
    }

    /// Reads the query too: the refusal of a dry run, which changes nothing, is no attempt to change something.
    pub(super) fn with_query(mut self, query: Option<&str>) -> Self {
        let mut terms = query.into_iter().flat_map(|query| query.split('&'));
        self.is_dry_run = terms.any(|term| matches!(term, "dry_run" | "dry_run=true" | "dry_run=1"));
        self
    }

    /// The trail of the request.
    pub(super) fn trail(&self) -> Arc<AuditTrail> {
        Arc::clone(&self.trail)
    }

    /// Records the result of the request.
    ///
    /// # Errors
    /// When a success cannot be recorded.
    pub(super) async fn finish(
        mut self,
        api: &Api,
        status: StatusCode,
        error: Option<&ApiError>,
    ) -> Result<(), ApiError> {
        self.finished = true;
        let code = error.map(ApiError::code);
        if status.is_client_error() {
            if let Some(code) = code
                && (self.changes && !self.is_dry_run || DENIED.contains(&code))
            {
                api.refused.count(self.refusal(code));
            }
            return Ok(());
        }
        let failed = status.is_server_error();
        let wanted = self.changes && self.trail.is_identified() && (failed || self.trail.is_open());
        if !wanted {
            return Ok(());
        }
        let entry = self.trail.entry(code.map_or("ok", ErrorCode::as_str));
        match self.store.record_audit(vec![entry]).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "the audit entry of a request was not stored");
                Err(ApiError::new(
                    ErrorCode::Unavailable,
                    "the audit log cannot be written, so whether the request was carried out is unknown; see /readyz, then look \
                     and try again",
                ))
            }
        }
    }

    /// The entry of a refused request. A name that was refused as such is not recorded.
    fn refusal(&self, code: ErrorCode) -> NewAuditEntry {
        let mut entry = self.trail.entry(code.as_str());
        if self.changes && matches!(code, ErrorCode::ValidationError | ErrorCode::BadJson) {
            entry.target.clear();
        }
        entry
    }
}

impl Drop for RequestAudit {
    fn drop(&mut self) {
        if self.finished || !self.trail.is_open() {
            return;
        }
        // What the handler has begun outside of the database may have been done.
        let (store, entry) = (self.store.clone(), self.trail.entry("disconnected"));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.record_audit(vec![entry]).await {
                    tracing::error!(error = %error_chain(&error), "the audit entry of a request was not stored");
                }
            });
        }
    }
}

/// The caller of the current request is `principal`.
pub(super) fn by(principal: &Principal) {
    by_actor(principal.actor());
}

/// The caller of the current request is `actor`.
pub(super) fn by_actor(actor: AuditActor) {
    if let Some(trail) = audit_trail() {
        trail.identify(actor);
    }
}

/// The current request is about this.
pub(super) fn target(kind: &str, name: &str) {
    if let Some(trail) = audit_trail() {
        trail.target(kind, &name_of(name));
    }
}

/// The current request changes nothing, although requests to its route usually do.
pub(super) fn changes_nothing() {
    if let Some(trail) = audit_trail() {
        trail.changes_nothing();
    }
}
