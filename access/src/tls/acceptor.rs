//! The handshake of a connection: with a time limit, and with a maximum of those under way.
//!
//! ```text
//!  accepted ──> first byte ──+── of TLS: handshake ──> stream for HTTP
//!                            `── of HTTP: a response in the clear that names the mistake, then the end
//! ```
//!
//! Invariants: a handshake takes at most [`HANDSHAKE_TIMEOUT`]; at most [`MAX_HANDSHAKES`] are under way, and another one
//! ends the oldest, so that clients that never finish theirs keep out no client that does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{DistinguishedName, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::certificates::Certificates;
use super::error::TlsError;

/// The time in which a client must complete its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum of handshakes under way.
const MAX_HANDSHAKES: usize = 512;
/// The first byte of a TLS connection: a record of the handshake.
const HANDSHAKE_RECORD: u8 = 22;
/// The response to a request without TLS.
const NOT_TLS: &str = "this port speaks HTTPS: use https:// in the URL\n";

/// Makes TLS connections of accepted ones.
#[derive(Clone)]
pub struct TlsAcceptor {
    certificates: Arc<Certificates>,
    config: Arc<ServerConfig>,
    under_way: Arc<Handshakes>,
    limit: Duration,
}

impl TlsAcceptor {
    /// An acceptor that shows the certificate in force.
    ///
    /// # Errors
    /// When the TLS library refuses the configuration.
    pub fn new(certificates: &Arc<Certificates>) -> Result<Self, TlsError> {
        Self::with_clients(certificates, None)
    }

    /// An acceptor that also asks clients for a certificate of these authorities. It takes every certificate whose key the client
    /// has; who uses it decides what it is worth.
    ///
    /// # Errors
    /// When the TLS library refuses the configuration.
    pub fn asking(
        certificates: &Arc<Certificates>,
        authorities: Vec<DistinguishedName>,
    ) -> Result<Self, TlsError> {
        Self::with_clients(certificates, Some(authorities))
    }

    fn with_clients(
        certificates: &Arc<Certificates>,
        authorities: Option<Vec<DistinguishedName>>,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            config: certificates.server_config(authorities)?,
            certificates: Arc::clone(certificates),
            under_way: Arc::new(Handshakes::new(MAX_HANDSHAKES)),
            limit: HANDSHAKE_TIMEOUT,
        })
    }

    #[cfg(test)]
    pub(super) fn with_limits(mut self, limit: Duration, handshakes: usize) -> Self {
        self.limit = limit;
        self.under_way = Arc::new(Handshakes::new(handshakes));
        self
    }

    /// Performs the handshake. Returns `None` when it failed, took too long, or `stop` was requested.
    pub async fn accept(&self, stream: TcpStream, stop: &CancellationToken) -> Option<TlsStream<TcpStream>> {
        let handshake = self.under_way.enter();
        let result = tokio::select! {
            result = tokio::time::timeout(self.limit, self.handshake(stream)) => result,
            () = handshake.ended.cancelled() => return None,
            () = stop.cancelled() => return None,
        };
        match result {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_elapsed) => None,
        }
    }

    async fn handshake(&self, mut stream: TcpStream) -> std::io::Result<Option<TlsStream<TcpStream>>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Ok(None);
        }
        if first[0] != HANDSHAKE_RECORD {
            let length = NOT_TLS.len();
            let response = format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
                 Connection: close\r\n\r\n{NOT_TLS}"
            );
            // What was not read when a connection is closed makes the kernel discard what was sent.
            let _request = stream.read(&mut [0; 8192]).await?;
            stream.write_all(response.as_bytes()).await?;
            stream.shutdown().await?;
            return Ok(None);
        }
        // A client that reached this address expects it in the certificate.
        let address = stream.local_addr()?.ip();
        if !self.certificates.names_address(address) {
            let certificates = Arc::clone(&self.certificates);
            // Without a new certificate the handshake shows the former one.
            let _ = tokio::task::spawn_blocking(move || certificates.name_address(address)).await;
        }
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&self.config));
        acceptor.accept(stream).await.map(Some)
    }
}

/// The handshakes under way, the oldest first.
struct Handshakes {
    list: Mutex<(u64, BTreeMap<u64, CancellationToken>)>,
    most: usize,
}

/// One handshake; dropping it makes room.
struct Handshake {
    of: Arc<Handshakes>,
    number: u64,
    /// Cancelled when this handshake has to end for a newer one.
    ended: CancellationToken,
}

impl Handshakes {
    fn new(most: usize) -> Self {
        Self { list: Mutex::default(), most }
    }

    fn enter(self: &Arc<Self>) -> Handshake {
        let ended = CancellationToken::new();
        let mut list = self.list.lock();
        let (next, under_way) = &mut *list;
        *next += 1;
        under_way.insert(*next, ended.clone());
        if under_way.len() > self.most
            && let Some((_, oldest)) = under_way.pop_first()
        {
            oldest.cancel();
        }
        Handshake { of: Arc::clone(self), number: *next, ended }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.of.list.lock().1.remove(&self.number);
    }
}
