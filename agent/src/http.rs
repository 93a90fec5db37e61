//! Blocking HTTP behind a trait, and its implementation.
//!
//! ```text
//! Request --Http::send--> Response { status, headers, body: Read }
//!              |
//!              `- HttpClient: ureq + rustls (ring); trusts `controller_ca` only, or without one the system's bundle
//! ```
//!
//! Invariants: redirects are never followed here, so a secret header never reaches another host by itself. A status is
//! no error. Proxies of the environment are ignored. Errors contain no header and no body.

use std::{
    fs,
    io::{self, Read},
    sync::Arc,
    time::Duration,
};

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

/// Files that can hold the certificate authorities of the system.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time from the request to the headers of the response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the whole body of a response that is no stream.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `POST`
    Post,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The absolute URL.
    pub url: String,
    /// Header names in lower case, and values.
    pub headers: Vec<(&'static str, String)>,
    /// The body of a `POST`.
    pub body: Vec<u8>,
    /// Whether the body of the response may take any time. Its reader then notices a silent connection itself.
    pub streams: bool,
}

impl Request {
    /// Creates a `GET`.
    #[must_use]
    pub fn get(url: impl Into<String>) -> Self {
        Self { method: Method::Get, url: url.into(), headers: Vec::new(), body: Vec::new(), streams: false }
    }

    /// Returns the request with another header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A response whose body was not read yet.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Box<dyn Read + Send>,
}

impl Response {
    /// Returns the first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Reads the body, at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an error when the connection breaks or the body is longer.
    pub fn bytes(self, limit: u64) -> Result<Vec<u8>, HttpError> {
        let mut bytes = Vec::new();
        self.body.take(limit + 1).read_to_end(&mut bytes).map_err(|source| HttpError(source.to_string()))?;
        if bytes.len() as u64 > limit {
            return Err(HttpError(format!("the response has more than {limit} bytes")));
        }
        Ok(bytes)
    }
}

/// A request was not responded to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HttpError(pub String);

/// Sends requests.
pub trait Http: Send + Sync {
    /// Sends a request and returns the response to it, whatever its status.
    ///
    /// # Errors
    /// Returns an error when there is no response.
    fn send(&self, request: &Request) -> Result<Response, HttpError>;

    /// Returns whether any certificate authority is trusted. Without one no `https` URL can be read.
    fn trusts_authorities(&self) -> bool {
        true
    }
}

/// The HTTP client of the machine.
pub struct HttpClient {
    trusts_authorities: bool,
    documents: ureq::Agent,
    streams: ureq::Agent,
}

impl HttpClient {
    /// Creates a client that trusts the authorities in `pem`, or those of the system without `pem`.
    ///
    /// # Errors
    /// Returns an error when `pem` holds no certificate.
    pub fn new(pem: Option<&str>) -> Result<Self, HttpError> {
        let roots = match pem {
            Some(pem) => {
                let roots = certificates(pem.as_bytes());
                if roots.is_empty() {
                    return Err(HttpError(
                        "controller_ca of job.json holds no certificate in PEM".to_owned(),
                    ));
                }
                roots
            }
            None => SYSTEM_BUNDLES
                .iter()
                .find_map(|path| fs::read(path).ok())
                .map(|bytes| certificates(&bytes))
                .unwrap_or_default(),
        };
        let trusts_authorities = !roots.is_empty();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent = |body_timeout| {
            ureq::Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .proxy(None)
                .user_agent(concat!("shoal-agent/", env!("CARGO_PKG_VERSION")))
                .accept_encoding("identity")
                .timeout_resolve(Some(CONNECT_TIMEOUT))
                .timeout_connect(Some(CONNECT_TIMEOUT))
                .timeout_send_body(Some(RESPONSE_TIMEOUT))
                .timeout_recv_response(Some(RESPONSE_TIMEOUT))
                .timeout_recv_body(body_timeout)
                .tls_config(tls.clone())
                .build()
                .new_agent()
        };
        Ok(Self { trusts_authorities, documents: agent(Some(BODY_TIMEOUT)), streams: agent(None) })
    }
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    ureq::tls::parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect()
}

impl Http for HttpClient {
    fn trusts_authorities(&self) -> bool {
        self.trusts_authorities
    }

    fn send(&self, request: &Request) -> Result<Response, HttpError> {
        let failed = |source: ureq::Error| HttpError(without_secrets(&source));
        let method = match request.method {
            Method::Get => "GET",
            Method::Post => "POST",
        };
        let mut builder = ureq::http::Request::builder().method(method).uri(&request.url);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let invalid = |_| HttpError("the URL or a header of the request is not valid".to_owned());
        let agent = if request.streams { &self.streams } else { &self.documents };
        let response = match request.method {
            Method::Get => agent.run(builder.body(()).map_err(invalid)?),
            Method::Post => agent.run(builder.body(request.body.as_slice()).map_err(invalid)?),
        }
        .map_err(failed)?;
        let (head, body) = response.into_parts();
        let text = |value: &ureq::http::HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers =
            head.headers.iter().filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)));
        Ok(Response {
            status: head.status.as_u16(),
            headers: headers.collect(),
            body: Box::new(body.into_reader()) as Box<dyn Read + Send>,
        })
    }
}

/// The texts of the library can contain a URL; those of a kind that does are replaced.
fn without_secrets(error: &ureq::Error) -> String {
    match error {
        ureq::Error::BadUri(_) => "the URL is not valid".to_owned(),
        ureq::Error::Io(source) => io_text(source),
        other => crate::discovery::chain(other),
    }
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the connection was refused".to_owned(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no response in time".to_owned(),
        _ => crate::discovery::chain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::Server;

    #[test]
    fn a_request_and_its_response_pass_unchanged_and_a_status_is_no_error() {
        let server = Server::start(|request| {
            assert!(request.head.starts_with("POST /a?b=c HTTP/1.1"), "{}", request.head);
            assert_eq!(request.header("x-webhook-secret"), Some("s"));
            assert_eq!(request.body, b"{}");
            (503, vec![("retry-after", "7".to_owned())], b"later".to_vec())
        });
        let http = HttpClient::new(None).unwrap();
        let url = format!("{}/a?b=c", server.url());
        let request = Request { method: Method::Post, body: b"{}".to_vec(), ..Request::get(url) };
        let response = http.send(&request.with("x-webhook-secret", "s")).unwrap();
        assert_eq!((response.status, response.header("Retry-After")), (503, Some("7")));
        assert_eq!(response.bytes(5).unwrap(), b"later");
    }

    #[test]
    fn a_redirect_is_returned_and_a_long_body_is_refused() {
        let server =
            Server::start(|_| (307, vec![("location", "/other".to_owned())], b"0123456789".to_vec()));
        let http = HttpClient::new(None).unwrap();
        let response = http.send(&Request::get(server.url())).unwrap();
        assert_eq!((response.status, response.header("location")), (307, Some("/other")));
        assert!(response.bytes(9).unwrap_err().0.contains("more than 9"));
    }

    #[test]
    fn only_the_authority_of_the_job_is_trusted() {
        let server = Server::start_tls(|_| (200, Vec::new(), b"ok".to_vec()));
        let trusting = HttpClient::new(Some(server.authority())).unwrap();
        assert_eq!(trusting.send(&Request::get(server.url())).unwrap().bytes(9).unwrap(), b"ok");
        let stranger = Server::start_tls(|_| (200, Vec::new(), Vec::new()));
        let refused = trusting.send(&Request::get(stranger.url())).err().unwrap();
        assert!(refused.0.to_lowercase().contains("certificate"), "{refused}");
    }

    #[test]
    fn an_authority_without_a_certificate_is_an_error() {
        assert!(HttpClient::new(Some("no PEM")).err().unwrap().0.contains("controller_ca"));
    }
}
