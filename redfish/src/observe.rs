//! Interfaces the client calls: an observer of requests, a keeper of session tokens, a fence before each request.
//!
//! All three are called on the path of a request and must not block its thread. The keeper of a new session is awaited.

use std::time::Duration;

use async_trait::async_trait;
use http::Method;

use crate::credentials::SessionHandle;
use crate::error::Operation;
use crate::transport::TransportErrorKind;

/// One HTTP request that was sent, with its result.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The operation that sent the request.
    pub operation: Operation,
    /// The HTTP method.
    pub method: &'a Method,
    /// The path; contains no secret.
    pub path: &'a str,
    /// Status or transport failure.
    pub result: ExchangeResult,
    /// Time from sending to the end of the response, without the wait for a permit.
    pub duration: Duration,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// HTTP status or transport failure of one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExchangeResult {
    /// The HTTP status.
    Status(u16),
    /// The request had no response.
    Failed(TransportErrorKind),
}

/// Receives every request with its result; for metrics.
pub trait Observer: Send + Sync {
    /// Called once after each request.
    fn exchange(&self, exchange: Exchange<'_>);
}

/// Stores open sessions, so that the next controller instance can delete those left behind by a crash.
#[async_trait]
pub trait SessionKeeper: Send + Sync {
    /// Called when a session was opened. The first request with it is sent after this returns, so that a session which has
    /// changed a BMC is known to the next controller instance.
    async fn opened(&self, session: &SessionHandle);
    /// Called when the session at this path no longer exists, or is no longer used.
    fn closed(&self, uri: &str);
}

/// Decides, right before a request is sent, whether its sender still owns the server. If not, nothing is sent.
pub trait Fence: Send + Sync {
    /// Whether the sender owns the server for this long from now: for a mutation its deadline, for a read and a login, which
    /// change nothing, zero. A logout does not ask.
    fn allows(&self, owned_for: Duration) -> bool;
}

/// The default for all three: records nothing, stores nothing, allows everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noop;

impl Observer for Noop {
    fn exchange(&self, _: Exchange<'_>) {}
}

#[async_trait]
impl SessionKeeper for Noop {
    async fn opened(&self, _: &SessionHandle) {}
    fn closed(&self, _: &str) {}
}

impl Fence for Noop {
    fn allows(&self, _: Duration) -> bool {
        true
    }
}
