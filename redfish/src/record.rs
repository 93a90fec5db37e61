//! A transport that records every exchange and the resources that were read.
//!
//! ```text
//!   Bmc -> RecordingTransport -> HttpTransport
//!               |-> exchanges: method, path, status, ms
//!               `-> resources: path -> JSON, redacted in a capture
//! ```
//!
//! [`RecordingTransport::capture`] returns the resources with every identifying text replaced by a pseudonym, one per
//! text in one capture: the capture of a BMC can be given to others, and its links still lead from one resource to the
//! next. Invariants: headers and bodies of requests are never recorded; the record is bounded in number and size; a
//! response that cannot be parsed is not recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::json;
use crate::redact::Redactor;
use crate::transport::{Request, Response, Transport, TransportError};
use crate::upload::UploadBody;

/// Maximum number of recorded exchanges.
const MAX_EXCHANGES: usize = 1024;
/// Maximum size of all recorded resources in bytes.
const MAX_BYTES: usize = 8 << 20;

/// One recorded exchange.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct RecordedExchange {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The status; `None` when there was no response.
    pub status: Option<u16>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// A transport that forwards requests and records exchanges and resources.
#[derive(Clone)]
pub struct RecordingTransport {
    inner: Arc<dyn Transport>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    exchanges: Vec<RecordedExchange>,
    resources: BTreeMap<String, Value>,
    bytes: usize,
}

impl RecordingTransport {
    /// Creates a transport that sends through `inner`.
    pub fn over(inner: Arc<dyn Transport>) -> Self {
        RecordingTransport { inner, kept: Arc::default() }
    }

    /// The exchanges recorded so far.
    pub fn exchanges(&self) -> Vec<RecordedExchange> {
        self.kept.lock().exchanges.clone()
    }

    /// The resources recorded so far, by path, redacted; each `seed` gives different pseudonyms.
    pub fn capture(&self, seed: u64) -> Value {
        let kept = self.kept.lock();
        let redactor = Redactor::new(seed, kept.resources.values());
        let resources: Map<String, Value> =
            kept.resources.iter().map(|(path, body)| (redactor.text(path), redactor.value(body))).collect();
        Value::Object(resources)
    }

    fn note(&self, method: &Method, path: &str, sent: &Result<Response, TransportError>, took: Duration) {
        let mut kept = self.kept.lock();
        let status = sent.as_ref().ok().map(|response| response.status.as_u16());
        if kept.exchanges.len() < MAX_EXCHANGES {
            kept.exchanges.push(RecordedExchange {
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
impl Transport for RecordingTransport {
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        let (method, path) = (request.method.clone(), request.path.clone());
        let started = Instant::now();
        let sent = self.inner.send(request, deadline).await;
        self.note(&method, &path, &sent, started.elapsed());
        sent
    }

    async fn upload(
        &self,
        request: Request,
        body: UploadBody,
        deadline: Duration,
    ) -> Result<Response, TransportError> {
        let (method, path) = (request.method.clone(), request.path.clone());
        let started = Instant::now();
        let sent = self.inner.upload(request, body, deadline).await;
        self.note(&method, &path, &sent, started.elapsed());
        sent
    }

    fn peer_certificate(&self) -> Option<[u8; 32]> {
        self.inner.peer_certificate()
    }

    fn release_idle(&self) {
        self.inner.release_idle();
    }
}
