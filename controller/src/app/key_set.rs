//! Fetches the key set of the issuer of JWTs (`JWT_JWKS`), by the policy of everything that is fetched.

use std::time::Duration;

use async_trait::async_trait;
use media::AddressPolicy;
use reqwest::{Client, StatusCode};
use url::Url;

use access::auth::KeyDocument;
use model::error_chain;

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
    use access::auth::{AuthFailure, Authenticator};
    use access::tls::{Certificates, TlsAcceptor, TlsOptions};
    use model::Time;
    use settings::{Settings, Sources};

    /// An https server that sends `response` to every request, and the authority of its certificate.
    async fn serving(response: String) -> (SocketAddr, String, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let options = TlsOptions {
            given: None,
            directory: directory.path().join("tls"),
            names: vec!["localhost".to_owned()],
            machines: None,
        };
        let certificates = Certificates::open(options, Arc::new(model::SystemClock)).unwrap();
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

    /// Authenticates a token of an unknown key with these settings: only a key set that was read can say so.
    async fn asked_with(document: &str, more: &[(&str, &std::path::Path)], trusted: &str) -> AuthFailure {
        let (address, authority, directory) = serving(of("200 OK", document)).await;
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, if trusted == "its own" { authority } else { trusted.to_owned() }).unwrap();
        let mut flags: Vec<(String, String)> = [
            ("STORAGE_ROOT", directory.path().display().to_string()),
            ("AUTH_MODE", "jwt".to_owned()),
            ("JWT_JWKS", format!("https://localhost:{}/certs", address.port())),
            ("JWT_ISSUER", "https://login.example".to_owned()),
            ("JWT_AUDIENCE", "shoal".to_owned()),
            ("FETCH_ALLOW_CIDRS", "127.0.0.0/8,::1/128".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (name, path) in more {
            let path = if path.as_os_str().is_empty() { file.as_path() } else { path };
            flags.push(((*name).to_owned(), path.display().to_string()));
        }
        let sources = Sources { flags, environment: &|_| None, variables: Vec::new(), file: None };
        let settings = Settings::load(&sources).unwrap();
        let store = store::Store::open(&directory.path().join("db"), Time::from_timestamp(now())).unwrap();
        let store = Arc::new(super::super::adapters::StoreCredentials(store));
        let config = super::super::controller::auth_config(&settings).unwrap();
        let authenticator = Authenticator::new(config, store).unwrap();
        let token =
            format!("Bearer {}.{}.c2lnbmF0dXJl", encoded(r#"{"alg":"EdDSA","kid":"other"}"#), encoded("{}"));
        authenticator.authenticate(Some(&token), [127, 0, 0, 1].into(), now()).await.unwrap_err()
    }

    fn encoded(text: &str) -> String {
        base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text)
    }

    fn now() -> jiff::Timestamp {
        "2026-11-20T08:00:00Z".parse().unwrap()
    }

    #[tokio::test]
    async fn a_key_set_of_a_private_authority_is_read_with_that_authority_and_with_no_other() {
        let document = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        let here = std::path::Path::new("");
        let foreign = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
        let other = tempfile::tempdir().unwrap();
        let other_file = other.path().join("other.pem");
        std::fs::write(&other_file, &foreign).unwrap();
        // (authorities, whether the set was read): a token of an unknown key is then invalid, and otherwise it cannot be checked.
        for (files, trusted, expected) in [
            (vec![("JWT_CA_FILE", here)], "its own", AuthFailure::Invalid),
            (vec![("CONTROLLER_CA_FILE", here)], "its own", AuthFailure::Invalid),
            (
                vec![("JWT_CA_FILE", here), ("CONTROLLER_CA_FILE", &other_file)],
                "its own",
                AuthFailure::Invalid,
            ),
            (
                vec![("JWT_CA_FILE", &other_file), ("CONTROLLER_CA_FILE", here)],
                "its own",
                AuthFailure::Unavailable,
            ),
            (vec![("JWT_CA_FILE", here)], foreign.as_str(), AuthFailure::Unavailable),
        ] {
            assert_eq!(asked_with(document, &files, trusted).await, expected, "{files:?}");
        }
    }
}
