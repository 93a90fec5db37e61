//! The HTTP transport over sockets: the error for each kind of bad peer, and when credentials leave the process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use redfish::{
    Bmc, BmcCredentials, Endpoint, ErrorKind, Fingerprint, HttpOptions, HttpTransport, Profile, Request,
    Response, TlsVerification, Transport, TransportError, TransportErrorKind, read_fingerprint,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(10);

fn endpoint(scheme: &str, address: SocketAddr) -> Endpoint {
    format!("{scheme}://{address}").parse().unwrap()
}

fn get() -> Request {
    let mut headers = HeaderMap::new();
    headers.insert("x-auth-token", HeaderValue::from_static("canary"));
    Request { method: Method::GET, path: "/redfish/v1/".to_owned(), headers, body: None }
}

/// Sends fixed bytes on every connection after a request (or a TLS hello), then closes it.
async fn peer(response: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.first() != Some(&0x16) {
                if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = stream.write_all(&response).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

async fn ask(address: SocketAddr, deadline: Duration) -> Result<Response, TransportError> {
    let transport =
        HttpTransport::new(&endpoint("http", address), &TlsVerification::Insecure, HttpOptions::default());
    transport.unwrap().send(get(), deadline).await
}

#[tokio::test]
async fn a_response_is_returned_whole_and_redirects_are_not_followed() {
    let response =
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 2\r\n\r\nhi";
    let response = ask(peer(response.to_vec()).await, LIMIT).await.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..]), (307, &b"hi"[..]));
    assert_eq!(response.headers["location"], "http://127.0.0.1:1/x");
}

#[tokio::test]
async fn a_transport_closes_its_connection_when_released_and_opens_a_new_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = async {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut request).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            assert_eq!(
                stream.read_buf(&mut request).await.unwrap(),
                0,
                "kept open until the rest, closed by it"
            );
        }
    };
    let client = async {
        let transport = HttpTransport::new(
            &endpoint("http", address),
            &TlsVerification::Insecure,
            HttpOptions::default(),
        )
        .unwrap();
        for _ in 0..2 {
            assert_eq!(transport.send(get(), LIMIT).await.unwrap().status.as_u16(), 204);
            transport.release_idle();
        }
    };
    tokio::time::timeout(LIMIT, async { tokio::join!(peer, client) }).await.unwrap();
}

#[tokio::test]
async fn every_bad_peer_has_an_error_kind_and_maybe_sent() {
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'a'; 5 << 20]].concat();
    for (response, kind) in [
        (b"".to_vec(), TransportErrorKind::Lost),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_vec(), TransportErrorKind::Lost),
        (b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), TransportErrorKind::Protocol),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n".to_vec(), TransportErrorKind::BodyTooLarge),
        (endless, TransportErrorKind::BodyTooLarge),
    ] {
        let shown = String::from_utf8_lossy(&response[..response.len().min(60)]).into_owned();
        let error = ask(peer(response).await, LIMIT).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_sent), (kind, true), "{shown}: {error}");
    }
}

#[tokio::test]
async fn a_refused_connection_means_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = ask(address, LIMIT).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_sent), (TransportErrorKind::Refused, false), "{error}");
    assert!(!error.to_string().contains("/redfish"), "{error}");
}

#[tokio::test]
async fn the_deadline_covers_headers_and_body() {
    for begin in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nslow"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(begin.as_bytes()).await.unwrap();
            // Open until the client gives up.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        });
        let error = ask(address, Duration::from_millis(100)).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_sent), (TransportErrorKind::Timeout, true), "{error}");
        peer.await.unwrap();
    }
}

/// A TLS server that counts the bytes of plaintext it receives, and its certificates.
struct TlsPeer {
    address: SocketAddr,
    received: Arc<AtomicUsize>,
    leaf: Fingerprint,
    ca: String,
}

/// What a TLS peer does once it has the request.
#[derive(Clone, Copy, PartialEq)]
enum AfterRequest {
    Responds,
    /// Ends TLS with bytes that are no record, such as those of a web server that is stopped.
    SendsGarbage,
}

impl TlsPeer {
    fn start() -> Self {
        Self::start_with(AfterRequest::Responds)
    }

    fn start_with(then: AfterRequest) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let leaf: CertificateDer<'static> = params.signed_by(&key, &issuer).unwrap().der().clone();
        let fingerprint = Fingerprint(Sha256::digest(&leaf).into());
        let ca = pem(issuer.der());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![leaf], key)
                .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(AtomicUsize::new(0));
        let (config, count) = (Arc::new(config), received.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = rustls::ServerConnection::new(config.clone()).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, stream);
                let mut request = [0; 4096];
                if let Ok(bytes) = stream.read(&mut request) {
                    count.fetch_add(bytes, Ordering::SeqCst);
                    if then == AfterRequest::SendsGarbage {
                        let _ = stream
                            .sock
                            .write_all(&[0x17, 3, 3, 0, 32].into_iter().chain([0; 32]).collect::<Vec<u8>>());
                        continue;
                    }
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            }
        });
        TlsPeer { address, received, leaf: fingerprint, ca }
    }

    async fn ask(&self, mode: &TlsVerification) -> Result<Response, TransportError> {
        let transport =
            HttpTransport::new(&endpoint("https", self.address), mode, HttpOptions::default()).unwrap();
        let result = transport.send(get(), LIMIT).await;
        assert_eq!(transport.peer_fingerprint(), Some(self.leaf));
        result
    }
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

#[tokio::test]
async fn the_pinned_certificate_its_ca_or_any_certificate_is_accepted_as_configured() {
    let peer = TlsPeer::start();
    for mode in [
        TlsVerification::Pin(peer.leaf),
        TlsVerification::Ca(peer.ca.as_bytes().into()),
        TlsVerification::Insecure,
    ] {
        assert_eq!(peer.ask(&mode).await.unwrap().body, Bytes::from_static(b"{}"), "{mode:?}");
    }
}

#[tokio::test]
async fn a_peer_with_a_wrong_certificate_receives_no_byte_of_the_request() {
    let (peer, other) = (TlsPeer::start(), TlsPeer::start());
    for (mode, kind) in [
        (TlsVerification::Pin(other.leaf), TransportErrorKind::PinMismatch),
        (TlsVerification::Ca(other.ca.as_bytes().into()), TransportErrorKind::Untrusted),
    ] {
        let error = peer.ask(&mode).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_sent), (kind, false), "{error}");
    }
    assert_eq!(peer.received.load(Ordering::SeqCst), 0);
    // The peer works and counts.
    peer.ask(&TlsVerification::Insecure).await.unwrap();
    assert!(peer.received.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn a_request_whose_tls_fails_after_it_was_sent_may_have_been_carried_out() {
    let peer = TlsPeer::start_with(AfterRequest::SendsGarbage);
    let error = peer.ask(&TlsVerification::Insecure).await.unwrap_err();
    assert!(error.maybe_sent, "{error:?}");
    assert_eq!(peer.received.load(Ordering::SeqCst) > 0, error.maybe_sent);
}

#[tokio::test]
async fn a_pin_mismatch_is_one_sentence_with_the_next_action() {
    let (peer, other) = (TlsPeer::start(), TlsPeer::start());
    let endpoint = endpoint("https", peer.address);
    let credentials = BmcCredentials::new("admin", "canary-secret".to_owned());
    let bmc =
        Bmc::connect(&endpoint, credentials, &TlsVerification::Pin(other.leaf), Profile::generic()).unwrap();
    let error = bmc.slot("/redfish/v1/x").await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, .. }));
    assert!(error.to_string().contains("pin it again"), "{error}");
}

#[tokio::test]
async fn a_peer_without_tls_is_recognised_and_has_no_fingerprint() {
    let address = peer(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()).await;
    let transport =
        HttpTransport::new(&endpoint("https", address), &TlsVerification::Insecure, HttpOptions::default());
    let error = transport.unwrap().send(get(), LIMIT).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_sent), (TransportErrorKind::NotTls, false), "{error}");
    assert!(read_fingerprint(&endpoint("http", address), LIMIT).await.is_err());
}

/// Old firmware ends the connection when it does not know the version of TLS.
#[tokio::test]
async fn a_peer_that_ends_the_handshake_is_named_with_tls_as_the_likely_cause() {
    let address = peer(Vec::new()).await;
    let credentials = BmcCredentials::new("admin", "canary-secret".to_owned());
    let bmc = Bmc::connect(
        &endpoint("https", address),
        credentials,
        &TlsVerification::Insecure,
        Profile::generic(),
    );
    let session = redfish::SessionHandle { uri: "/s".to_owned(), token: "t".to_owned().into() };
    let error = bmc.unwrap().delete_session(&session).await.unwrap_err();
    let cut = TransportErrorKind::HandshakeCut;
    assert!(matches!(&error.kind, ErrorKind::Unreachable { problem, .. } if *problem == cut), "{error}");
    let said = error.to_string();
    assert!(said.contains("ended the connection during the TLS handshake"), "{said}");
    assert!(
        said.contains("update its firmware or allow TLS 1.2") && said.contains("restart the BMC"),
        "{said}"
    );
    assert!(error.is_transient() && !error.maybe_applied());
}

#[tokio::test]
async fn a_fingerprint_is_read_without_credentials() {
    let peer = TlsPeer::start();
    assert_eq!(read_fingerprint(&endpoint("https", peer.address), LIMIT).await.unwrap(), peer.leaf);
}
