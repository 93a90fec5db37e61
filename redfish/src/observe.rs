//! What the client asks of and tells its surroundings: who counts, who keeps tokens, who may still send.
//!
//! All three are called on the path of a request and must not block.

use std::time::Duration;

use http::Method;

use crate::error::Operation;
use crate::session::SessionHandle;
use crate::transport::TransportErrorKind;

/// One HTTP request that was sent, with what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// On behalf of what it was sent.
    pub operation: Operation,
    /// The HTTP method.
    pub method: &'a Method,
    /// The path; holds no secret.
    pub path: &'a str,
    /// The outcome.
    pub result: ExchangeResult,
    /// From sending to the end of the answer, without waiting for a permit.
    pub duration: Duration,
    /// 1 for the first try of a request.
    pub attempt: u32,
}

/// Status or failure of one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExchangeResult {
    /// The HTTP status.
    Status(u16),
    /// No answer.
    Failed(TransportErrorKind),
}

/// Sees every request; for metrics and evidence.
pub trait Observer: Send + Sync {
    /// Called once after each request.
    fn exchange(&self, exchange: Exchange<'_>);
}

/// Sees sessions come and go, so that the next incarnation can delete what a crash left behind.
pub trait SessionKeeper: Send + Sync {
    /// A session was opened.
    fn opened(&self, session: &SessionHandle);
    /// The session at this path no longer exists, or was given up.
    fn closed(&self, uri: &str);
}

/// Decides, right before a request is sent, whether its sender still owns the server: who does not sends nothing.
pub trait Fence: Send + Sync {
    /// Whether the sender owns the server for so long from now: for a mutation the longest it may take, for a read and a
    /// login, which change nothing, no time at all. Logouts do not ask.
    fn allows(&self, owned_for: Duration) -> bool;
}

/// The default for all three: sees nothing, keeps nothing, allows everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nobody;

impl Observer for Nobody {
    fn exchange(&self, _: Exchange<'_>) {}
}

impl SessionKeeper for Nobody {
    fn opened(&self, _: &SessionHandle) {}
    fn closed(&self, _: &str) {}
}

impl Fence for Nobody {
    fn allows(&self, _: Duration) -> bool {
        true
    }
}
