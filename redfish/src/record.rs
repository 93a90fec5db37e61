//! Sees every exchange of a handle: what was asked, what came of it, and the resources that were read.
//!
//! ```text
//!   Bmc -> Recorder -> HttpTransport        log: method path status ms       resources: path -> JSON, redacted on the way out
//! ```
//!
//! [`Recorder::capture`] gives the resources away with all that tells one machine or site from another replaced by a
//! pseudonym, the same everywhere in one capture: a captured BMC can be sent to people who have never seen it, and still be
//! read as one. Invariants: requests' headers and bodies are never kept; what is kept is bounded in number and size; what
//! cannot be parsed is not kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::json;
use crate::redact::Redactor;
use crate::transport::{Request, Response, Transport, TransportError};

/// So many exchanges are kept.
const MAX_EXCHANGES: usize = 1024;
/// Resources of so many bytes together are kept.
const MAX_BYTES: usize = 8 << 20;

/// One exchange.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Recorded {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The status; none when there was no answer.
    pub status: Option<u16>,
    /// How long it took.
    pub duration_ms: u64,
}

/// A transport that remembers.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<dyn Transport>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    exchanges: Vec<Recorded>,
    resources: BTreeMap<String, Value>,
    bytes: usize,
}

impl Recorder {
    /// Records what goes through `inner`.
    pub fn over(inner: Arc<dyn Transport>) -> Self {
        Recorder { inner, kept: Arc::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was asked so far.
    pub fn exchanges(&self) -> Vec<Recorded> {
        self.kept().exchanges.clone()
    }

    /// The resources read so far by path, redacted with pseudonyms of their own for every `seed`.
    pub fn capture(&self, seed: u64) -> Value {
        let kept = self.kept();
        let redactor = Redactor::new(seed, kept.resources.values());
        let resources: Map<String, Value> =
            kept.resources.iter().map(|(path, body)| (redactor.text(path), redactor.value(body))).collect();
        Value::Object(resources)
    }

    fn note(&self, method: &Method, path: &str, sent: &Result<Response, TransportError>, took: Duration) {
        let mut kept = self.kept();
        let status = sent.as_ref().ok().map(|response| response.status.as_u16());
        if kept.exchanges.len() < MAX_EXCHANGES {
            kept.exchanges.push(Recorded {
                method: method.to_string(),
                path: json::clip(path, 300),
                status,
                duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            });
        }
        let Ok(response) = sent else { return };
        if method != Method::GET
            || !response.status.is_success()
            || kept.bytes + response.body.len() > MAX_BYTES
        {
            return;
        }
        if let Ok(fields) = json::object(&response.body) {
            kept.bytes += response.body.len();
            kept.resources.insert(path.to_owned(), Value::Object(fields));
        }
    }
}

#[async_trait]
impl Transport for Recorder {
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        let (method, path) = (request.method.clone(), request.path.clone());
        let started = Instant::now();
        let sent = self.inner.send(request, deadline).await;
        self.note(&method, &path, &sent, started.elapsed());
        sent
    }

    fn rest(&self) {
        self.inner.rest();
    }
}
