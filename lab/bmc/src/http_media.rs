//! Reads media over real HTTP or HTTPS.
//!
//! Invariants: no redirect is followed; a certificate is never verified (BMCs cannot); no error contains a URL, because
//! its path is a secret.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use async_trait::async_trait;
use bytes::BytesMut;
use reqwest::{Client, Version, header, redirect};

use super::media_reader::{MediaReader, MediaRefusal, MediaRequest, MediaResponse};
use redfish::{TransportErrorKind, tls::accept_any_certificate, transport::TransportError};

/// The source of requests from a second address. All of 127/8 is local.
const OTHER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The reason why the HTTP reader cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum MediaReaderError {
    /// The TLS provider refused its own protocol versions.
    #[error("setting up TLS for reading media failed; the build lacks a usable TLS version")]
    Tls(#[source] TransportError),
    /// The HTTP client could not be built.
    #[error("building the HTTP client for reading media failed; check the limits of this process")]
    Client(#[source] reqwest::Error),
}

/// Reads media over real HTTP or HTTPS.
#[derive(Clone, Debug)]
pub struct HttpMediaReader {
    client: Client,
    /// Sends from [`OTHER_ADDRESS`], for servers on loopback.
    elsewhere: Client,
    /// Trusts no certificate.
    wary: Client,
}

impl HttpMediaReader {
    /// Creates a reader with its HTTP clients. All simulated BMCs of a process share one.
    ///
    /// # Errors
    /// When TLS or an HTTP client cannot be set up.
    pub fn new() -> Result<Self, MediaReaderError> {
        let any = || any_certificate();
        Ok(Self {
            client: client(None, any()?)?,
            elsewhere: client(Some(OTHER_ADDRESS), any()?)?,
            wary: client(None, no_certificate()?)?,
        })
    }
}

/// TLS of a virtual CD: every certificate is accepted if the peer has its key. Most BMCs cannot verify a certificate.
///
/// # Errors
/// When the TLS provider refuses its protocol versions.
pub fn any_certificate() -> Result<rustls::ClientConfig, MediaReaderError> {
    accept_any_certificate().map_err(MediaReaderError::Tls)
}

/// TLS of a BMC that verifies certificates and has no authority.
fn no_certificate() -> Result<rustls::ClientConfig, MediaReaderError> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            MediaReaderError::Tls(TransportError::not_sent(TransportErrorKind::Config, error.to_string()))
        })?;
    Ok(versions.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

fn client(local: Option<IpAddr>, tls: rustls::ClientConfig) -> Result<Client, MediaReaderError> {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .local_address(local)
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(30))
        .pool_max_idle_per_host(4)
        .pool_idle_timeout(Duration::from_secs(5))
        .user_agent("SimBmc-VirtualMedia/1.0")
        .build()
        .map_err(MediaReaderError::Client)
}

#[async_trait]
impl MediaReader for HttpMediaReader {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        let client = match (request.pace.trusts_none, request.other_address) {
            (true, _) => &self.wary,
            (false, true) => &self.elsewhere,
            (false, false) => &self.client,
        };
        let url = request.url.as_str();
        let mut sent = if request.head { client.head(url) } else { client.get(url) };
        if let Some((first, last)) = request.range {
            sent = sent.header(header::RANGE, format!("bytes={first}-{last}"));
        }
        if request.http_1_0 {
            sent = sent.version(Version::HTTP_10);
        }
        let mut response = sent.send().await.map_err(unreachable)?;
        let text = |name: header::HeaderName| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let mut read = MediaResponse {
            status: response.status().as_u16(),
            length: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            content_range: text(header::CONTENT_RANGE),
            encoded: response.headers().contains_key(header::CONTENT_ENCODING),
            ..MediaResponse::default()
        };
        let mut body = BytesMut::new();
        let mut received = 0_u64;
        while !request.head && (body.len() < request.keep || request.to_the_end) {
            let Some(chunk) = response.chunk().await.map_err(unreachable)? else { break };
            body.extend_from_slice(&chunk[..chunk.len().min(request.keep - body.len())]);
            received += chunk.len() as u64;
            if request.pace.stop_after.is_some_and(|limit| received >= limit) {
                return Err(MediaRefusal::Unusable("its body ends too early"));
            }
            if let Some(pause) = request.pace.pause {
                tokio::time::sleep(pause).await;
            }
        }
        read.body = body.freeze();
        Ok(read)
    }
}

/// The cause without the URL, because its path is a secret.
fn unreachable(error: reqwest::Error) -> MediaRefusal {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    MediaRefusal::Unreachable(cause)
}
