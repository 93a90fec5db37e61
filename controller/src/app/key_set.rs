//! Fetches the key set of the issuer of JWTs (`JWT_JWKS`), by the policy of everything that is fetched.

use std::time::Duration;

use async_trait::async_trait;
use media::AddressPolicy;
use reqwest::{Client, StatusCode};
use url::Url;

use crate::auth::KeyDocument;
use engine::model::error_chain;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a fetch may take, including the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of the document.
const MAX_DOCUMENT: usize = 256 << 10;

/// A key set behind an https URL. No redirect is followed: the setting names where the keys are.
pub(super) struct HttpsKeySet {
    url: Url,
    client: Client,
    addresses: AddressPolicy,
}

impl HttpsKeySet {
    pub(super) fn new(
        url: Url,
        tls: rustls::ClientConfig,
        addresses: AddressPolicy,
    ) -> reqwest::Result<Self> {
        let client = addresses
            .client()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { url, client, addresses })
    }
}

#[async_trait]
impl KeyDocument for HttpsKeySet {
    async fn fetch(&self) -> Result<Vec<u8>, String> {
        let lost = |error: reqwest::Error| error_chain(&error.without_url()).to_string();
        self.addresses.check_url(&self.url).map_err(|refused| refused.to_string())?;
        let mut response = self.client.get(self.url.clone()).send().await.map_err(lost)?;
        if response.status() != StatusCode::OK {
            return Err(format!("the response has status {}; redirects are not followed", response.status()));
        }
        let mut document = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if document.len() + chunk.len() > MAX_DOCUMENT {
                return Err(format!("the response is longer than {MAX_DOCUMENT} bytes"));
            }
            document.extend_from_slice(&chunk);
        }
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::tls::{Certificates, TlsAcceptor, TlsOptions};

    /// An https server that sends `response` to every request, and the authority of its certificate.
    async fn serving(response: String) -> (SocketAddr, String, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let options = TlsOptions {
            given: None,
            directory: directory.path().join("tls"),
            names: vec!["localhost".to_owned()],
        };
        let certificates = Certificates::open(options, Arc::new(engine::model::SystemClock)).unwrap();
        let (authority, acceptor) = (certificates.authority(), TlsAcceptor::new(&certificates).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let stop = CancellationToken::new();
            while let Ok((stream, _)) = listener.accept().await {
                if let Some(mut stream) = acceptor.accept(stream, &stop).await {
                    let _request = stream.read(&mut [0; 4096]).await;
                    let _sent = stream.write_all(response.as_bytes()).await;
                    let _end = stream.shutdown().await;
                }
            }
        });
        (address, authority, directory)
    }

    async fn fetch(response: String, allowed: bool, trusted: bool) -> Result<Vec<u8>, String> {
        let (address, authority, _directory) = serving(response).await;
        let ranges = if allowed { vec!["127.0.0.0/8".parse().unwrap()] } else { Vec::new() };
        let roots = if trusted { authority } else { String::new() };
        let tls = media::tls_config(roots.as_bytes()).unwrap();
        let url = Url::parse(&format!("https://127.0.0.1:{}/certs", address.port())).unwrap();
        HttpsKeySet::new(url, tls, AddressPolicy::allowing(&ranges)).unwrap().fetch().await
    }

    fn of(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_key_set_is_fetched_over_https_from_allowed_addresses_only() {
        assert_eq!(fetch(of("200 OK", "{}"), true, true).await, Ok(b"{}".to_vec()));
        let refused = fetch(of("200 OK", "{}"), false, true).await.unwrap_err();
        assert!(refused.contains("FETCH_ALLOW_CIDRS"), "{refused}");
        assert!(fetch(of("200 OK", "{}"), true, false).await.is_err(), "an unknown authority");
    }

    #[tokio::test]
    async fn other_statuses_redirects_and_long_documents_are_refused() {
        for status in ["204 No Content", "302 Found", "404 Not Found", "500 Internal Server Error"] {
            let refused = fetch(of(status, ""), true, true).await.unwrap_err();
            assert!(refused.contains("has status"), "{refused}");
        }
        let long = "x".repeat(MAX_DOCUMENT + 1);
        let refused = fetch(of("200 OK", &long), true, true).await.unwrap_err();
        assert!(refused.contains("longer than"), "{refused}");
    }
}
