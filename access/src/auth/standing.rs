//! The standing of the client of a request: what it has proved, for the parts that admit requests.
//!
//! ```text
//!   connection ── of_request ──> router ──> handler: credentials are right ── prove(Known) ──┐
//!        ^                                  handler: the media grant is open ── prove(Media) ─┤
//!        `────────────────────────────────────────────────────────────────────────────────────'
//! ```
//!
//! A request is admitted before its credentials are known. The code that verifies them reports it here, without a parameter in
//! every layer between. Outside of a connection, such as in the simulation, a proof has no effect.

use std::sync::Arc;

/// The standing of a client: what it has proved. A later value takes precedence over an earlier one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Standing {
    /// The client has proved nothing.
    #[default]
    Anonymous,
    /// The client has credentials of the API or of the registry, the token of a worker, or the secret of an installation report.
    Known,
    /// The client reads a medium with an open grant: it is the BMC of a running job.
    Media,
}

/// Receives what a client proves.
pub trait Proof: Send + Sync {
    /// Called when the client of a request has proved `standing`.
    fn prove(&self, standing: Standing);
}

tokio::task_local! {
    static OF_REQUEST: Arc<dyn Proof>;
}

/// Runs the handler of a request; what its client proves is reported to `proof`.
pub async fn of_request<T>(proof: Arc<dyn Proof>, handler: impl Future<Output = T>) -> T {
    OF_REQUEST.scope(proof, handler).await
}

/// Reports that the client of the current request has proved `standing`.
pub fn prove(standing: Standing) {
    // Without a connection no budget depends on it.
    let _no_connection = OF_REQUEST.try_with(|proof| proof.prove(standing));
}
