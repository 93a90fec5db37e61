//! Certificates and handshakes over real sockets with rustls clients.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::{Clock, ManualClock, SystemClock, Time};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn own(directory: &Path, names: &[&str], clock: Arc<dyn Clock>) -> Result<Arc<Certificates>, TlsError> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Certificates::open(
        TlsOptions { given: None, directory: directory.join("tls"), names, machines: None },
        clock,
    )
}

fn today() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Writes a self-signed pair for `localhost`.
fn write_pair(certificate: &Path, key: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(certificate, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
}

fn given(folder: &Path) -> CertificateFiles {
    CertificateFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") }
}

fn given_options(pair: &CertificateFiles, authorities: Option<&Path>) -> TlsOptions {
    let machines = MachineTrust { host: None, authorities: authorities.map(Path::to_owned) };
    let directory = pair.key.with_extension("none");
    TlsOptions { given: Some(pair.clone()), directory, names: Vec::new(), machines: Some(machines) }
}

fn open_given(pair: &CertificateFiles) -> Result<Arc<Certificates>, TlsError> {
    Certificates::open(given_options(pair, None), today())
}

/// Responds `ok` to every connection whose handshake succeeds.
async fn served(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let stop = CancellationToken::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, stop) = (acceptor.clone(), stop.clone());
            tokio::spawn(async move {
                if let Some(mut stream) = acceptor.accept(stream, &stop).await {
                    stream.write_all(b"ok").await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            });
        }
    });
    address
}

fn client(authority: &str, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

async fn connect(to: SocketAddr, name: &str, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TcpStream::connect(to).await?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn clients_with_the_own_authority_connect_by_tls_1_2_and_1_3_and_none_with_another_or_by_another_name()
{
    let folder = tempfile::tempdir().unwrap();
    let certificates = own(folder.path(), &["shoal.example", "192.0.2.1"], today()).unwrap();
    let address = served(TlsAcceptor::new(&certificates).unwrap()).await;
    let authority = certificates.authority();
    for (version, expected) in [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        for name in ["shoal.example", "192.0.2.1"] {
            let mut stream = connect(address, name, client(&authority, &[version])).await.unwrap();
            let connection = stream.get_ref().1;
            assert_eq!(connection.protocol_version(), Some(expected));
            assert_eq!(connection.alpn_protocol(), Some(b"http/1.1".as_slice()));
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "ok");
        }
        let wrong = connect(address, "other.example", client(&authority, &[version])).await.unwrap_err();
        assert!(wrong.to_string().contains("not valid for name"), "{wrong}");
    }
    let other = own(&folder.path().join("other"), &["shoal.example"], today()).unwrap().authority();
    let refused = connect(address, "shoal.example", client(&other, rustls::ALL_VERSIONS)).await.unwrap_err();
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
}

#[test]
fn the_authority_is_made_once_and_its_files_are_for_this_user_only() {
    let folder = tempfile::tempdir().unwrap();
    let first = own(folder.path(), &["a.example"], today()).unwrap().state();
    let again = own(folder.path(), &["a.example"], today()).unwrap().state();
    assert_eq!(first.certificate_sha256, again.certificate_sha256);
    let more = own(folder.path(), &["a.example", "b.example"], today()).unwrap().state();
    assert_ne!(first.certificate_sha256, more.certificate_sha256, "another name needs another certificate");
    assert_eq!(first.authority_sha256, more.authority_sha256);
    let directory = folder.path().join("tls");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for name in ["ca.key", "ca.pem", "server.pem"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 3, "no partial file remains");

    std::fs::remove_file(directory.join("ca.key")).unwrap();
    let refused = own(folder.path(), &["a.example"], today()).unwrap_err();
    assert!(matches!(refused, TlsError::AuthorityKeyMissing { .. }), "{refused}");
    std::fs::remove_file(directory.join("ca.pem")).unwrap();
    let new = own(folder.path(), &["a.example"], today()).unwrap().state();
    assert_ne!(first.authority_sha256, new.authority_sha256);
    assert_ne!(
        more.certificate_sha256, new.certificate_sha256,
        "the certificate of the former authority is replaced"
    );
}

/// The names of a certificate that a connection to this machine does not add to.
const NAMED: [&str; 2] = ["a.example", "127.0.0.1"];

/// Connects with the authority that a controller with these certificates gives its clients.
async fn verified(certificates: &Arc<Certificates>) -> std::io::Result<TlsStream<TcpStream>> {
    let address = served(TlsAcceptor::new(certificates).unwrap()).await;
    let config = client(&certificates.authority(), rustls::ALL_VERSIONS);
    connect(address, "a.example", config).await
}

#[tokio::test]
async fn a_certificate_that_another_authority_signed_is_issued_again_at_the_start() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let former = own(folder.path(), &NAMED, today()).unwrap().state();
    let other = own(elsewhere.path(), &NAMED, today()).unwrap().state();
    // The authority of a copy, beside the certificate that the former one signed.
    for name in ["ca.key", "ca.pem"] {
        let (from, to) = (elsewhere.path().join("tls").join(name), folder.path().join("tls").join(name));
        std::fs::copy(from, to).unwrap();
    }
    let certificates = own(folder.path(), &NAMED, today()).unwrap();
    assert_eq!(certificates.state().authority_sha256, other.authority_sha256);
    assert_ne!(certificates.state().certificate_sha256, former.certificate_sha256);
    verified(&certificates).await.unwrap();
    let again = own(folder.path(), &NAMED, today()).unwrap().state();
    assert_eq!(again.certificate_sha256, certificates.state().certificate_sha256, "once is enough");

    for name in ["ca.key", "ca.pem"] {
        std::fs::remove_file(folder.path().join("tls").join(name)).unwrap();
    }
    // A new authority, beside the certificate that the copy signed.
    let certificates = own(folder.path(), &NAMED, today()).unwrap();
    verified(&certificates).await.unwrap();
}

#[tokio::test]
async fn a_stored_certificate_is_judged_by_its_signature_and_not_by_the_name_of_its_issuer() {
    let folder = tempfile::tempdir().unwrap();
    let former = own(folder.path(), &NAMED, today()).unwrap();
    // A certificate with the issuer of the authority in force, signed by another key.
    let directory = folder.path().join("tls");
    let authority = std::fs::read_to_string(directory.join("ca.key")).unwrap();
    let print = hex::encode(Sha256::digest(rcgen::KeyPair::from_pem(&authority).unwrap().public_key_raw()));
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("Shoal CA {}", &print[..8]));
    let forger = rcgen::Issuer::new(params, rcgen::KeyPair::generate().unwrap());
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(NAMED.map(str::to_owned).to_vec()).unwrap();
    params.not_after = rcgen::date_time_ymd(2099, 1, 1);
    let forged = params.signed_by(&key, &forger).unwrap();
    std::fs::write(directory.join("server.pem"), key.serialize_pem() + &forged.pem()).unwrap();

    let certificates = own(folder.path(), &NAMED, today()).unwrap();
    assert_eq!(certificates.authority(), former.authority());
    verified(&certificates).await.unwrap();
}

#[tokio::test]
async fn an_authority_whose_key_is_another_one_issues_nothing_and_the_error_names_both_files() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    own(folder.path(), &NAMED, today()).unwrap();
    own(elsewhere.path(), &NAMED, today()).unwrap();
    let (key, certificate) = (folder.path().join("tls/ca.key"), folder.path().join("tls/ca.pem"));
    let stored = std::fs::read(folder.path().join("tls/server.pem")).unwrap();
    std::fs::copy(elsewhere.path().join("tls/ca.key"), &key).unwrap();
    // The certificate in force is of the certificate that clients have.
    let certificates = own(folder.path(), &NAMED, today()).unwrap();
    verified(&certificates).await.unwrap();
    // Another name needs another certificate, which no client would verify.
    let refused = own(folder.path(), &["a.example", "b.example", "127.0.0.1"], today()).unwrap_err();
    assert!(matches!(refused, TlsError::AuthorityPair { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.contains(key.to_str().unwrap()) && said.contains(certificate.to_str().unwrap()), "{said}");
    assert_eq!(std::fs::read(folder.path().join("tls/server.pem")).unwrap(), stored, "nothing was replaced");
    // A running controller keeps what clients verify, and says why.
    certificates.renew().unwrap_err();
    let trouble = certificates.state().trouble.unwrap();
    assert!(trouble.contains("the former certificate stays in force"), "{trouble}");
    verified(&certificates).await.unwrap();
}

#[tokio::test]
async fn the_own_certificate_is_valid_from_yesterday_and_issued_again_before_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let start: Time = "2026-11-23T12:00:00Z".parse().unwrap();
    let clock = Arc::new(ManualClock::new(start));
    let certificates = own(folder.path(), &["a.example"], Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let first = certificates.state();
    assert_eq!(first.until.unwrap().to_string(), "2027-12-25T12:00:00.000Z");
    let pem = std::fs::read(folder.path().join("tls/server.pem")).unwrap();
    let certificate = CertificateDer::from_pem_slice(&pem).unwrap();
    assert_eq!(der::validity(&certificate).unwrap().0, start.minus(Duration::from_secs(86_400)));

    let stop = CancellationToken::new();
    let watch = tokio::spawn(Arc::clone(&certificates).watch(stop.clone()));
    clock.advance(Duration::from_secs(340 * 86_400));
    let renewed = async {
        while certificates.state().certificate_sha256 == first.certificate_sha256 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, renewed).await.unwrap();
    let renewed = certificates.state();
    assert_eq!(renewed.authority_sha256, first.authority_sha256);
    assert!(renewed.until > first.until && renewed.trouble.is_none(), "{renewed:?}");
    stop.cancel();
    watch.await.unwrap();
    clock.advance(Duration::from_secs(10 * 365 * 86_400));
    let ended = certificates.state().trouble.unwrap();
    assert!(ended.contains("the certificate ended at") && ended.contains("issues it again"), "{ended}");
}

#[tokio::test]
async fn a_certificate_of_a_wrong_clock_is_made_again_by_the_same_authority_once_the_clock_is_right() {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let present = SystemClock.now();
    for wrong in [present.plus(YEAR), present.plus(YEAR * 73), "1970-01-01T00:10:00Z".parse().unwrap()] {
        let folder = tempfile::tempdir().unwrap();
        let first = own(folder.path(), &["a.example"], Arc::new(ManualClock::new(wrong))).unwrap();
        let of_wrong_clock = first.authority();
        let certificates = own(folder.path(), &["a.example"], today()).unwrap();
        assert_eq!(certificates.state().trouble, None, "{wrong}");
        let address = served(TlsAcceptor::new(&certificates).unwrap()).await;
        // Key and name of the authority are the former ones: clients that have it need no other.
        for authority in [certificates.authority(), of_wrong_clock] {
            let client = client(&authority, rustls::ALL_VERSIONS);
            connect(address, "a.example", client).await.unwrap_or_else(|why| panic!("{wrong}: {why}"));
        }
    }
}

#[tokio::test]
async fn a_running_controller_makes_its_certificate_again_when_its_clock_is_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let year = Duration::from_secs(365 * 86_400);
    let ahead = Arc::new(ManualClock::new(SystemClock.now().plus(year * 73)));
    let certificates = own(folder.path(), &["a.example"], Arc::clone(&ahead) as Arc<dyn Clock>).unwrap();
    let before = certificates.state();
    ahead.set(SystemClock.now());
    let trouble = certificates.state().trouble.unwrap();
    assert!(trouble.contains("is not valid before"), "{trouble}");
    let stop = CancellationToken::new();
    let watch = tokio::spawn(Arc::clone(&certificates).watch(stop.clone()));
    let renewed = async {
        while certificates.state().trouble.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, renewed).await.unwrap();
    stop.cancel();
    watch.await.unwrap();
    assert_ne!(certificates.state().authority_sha256, before.authority_sha256);
}

#[test]
fn an_authority_that_ends_before_its_certificate_would_signs_itself_again() {
    let folder = tempfile::tempdir().unwrap();
    let nine_years_ago = SystemClock.now().minus(Duration::from_secs(9 * 365 * 86_400));
    let old = own(folder.path(), &["a.example"], Arc::new(ManualClock::new(nine_years_ago))).unwrap().state();
    let new = own(folder.path(), &["a.example"], today()).unwrap().state();
    assert_ne!(old.authority_sha256, new.authority_sha256);
    let again = own(folder.path(), &["a.example"], today()).unwrap().state();
    assert_eq!(new.authority_sha256, again.authority_sha256);
}

#[tokio::test]
async fn an_address_to_which_a_client_connects_is_added_to_the_own_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = own(folder.path(), &["a.example"], today()).unwrap();
    let address = served(TlsAcceptor::new(&certificates).unwrap()).await;
    let before = certificates.state();
    let authority = certificates.authority();
    connect(address, "127.0.0.1", client(&authority, rustls::ALL_VERSIONS)).await.unwrap();
    connect(address, "a.example", client(&authority, rustls::ALL_VERSIONS)).await.unwrap();
    let after = certificates.state();
    assert_ne!(before.certificate_sha256, after.certificate_sha256);
    certificates.name_address("127.0.0.1".parse().unwrap());
    assert_eq!(certificates.state().certificate_sha256, after.certificate_sha256, "once is enough");
    let restarted = own(folder.path(), &["a.example"], today()).unwrap().state();
    assert_eq!(restarted.certificate_sha256, after.certificate_sha256);
}

#[tokio::test]
async fn a_given_pair_that_cannot_be_used_replaces_nothing_and_a_good_one_is_followed_without_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let pair = given(folder.path());
    write_pair(&pair.certificate, &pair.key);
    let certificates = open_given(&pair).unwrap();
    let first = certificates.state();
    assert!(!first.own_authority && first.trouble.is_none());
    assert_eq!(
        first.certificate_sha256, first.authority_sha256,
        "a self-signed certificate is its own authority"
    );

    let other = given(&folder.path().join("other"));
    std::fs::create_dir(folder.path().join("other")).unwrap();
    write_pair(&other.certificate, &other.key);
    let stop = CancellationToken::new();
    let watch = tokio::spawn(Arc::clone(&certificates).watch(stop.clone()));
    // A certificate with the key of the former one.
    std::fs::copy(&other.certificate, &pair.certificate).unwrap();
    let refused = async {
        while certificates.state().trouble.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, refused).await.unwrap();
    let state = certificates.state();
    assert!(state.trouble.unwrap().contains("the former certificate stays in force"));
    assert_eq!(state.certificate_sha256, first.certificate_sha256);

    std::fs::copy(&other.key, &pair.key).unwrap();
    let replaced = async {
        while certificates.state().certificate_sha256 == first.certificate_sha256 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, replaced).await.unwrap();
    assert!(certificates.state().trouble.is_none());
    stop.cancel();
    watch.await.unwrap();
}

#[test]
fn files_that_hold_no_pair_are_refused_with_the_file_and_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let pair = given(folder.path());
    assert!(open_given(&pair).unwrap_err().to_string().contains("cert.pem"));
    write_pair(&pair.certificate, &pair.key);
    for (file, expected) in [(&pair.certificate, "no PEM certificate"), (&pair.key, "no PEM private key")] {
        let good = std::fs::read(file).unwrap();
        std::fs::write(file, "canary").unwrap();
        let refused = open_given(&pair).unwrap_err().to_string();
        assert!(refused.contains(expected) && !refused.contains("canary"), "{refused}");
        std::fs::write(file, good).unwrap();
    }
    assert!(open_given(&pair).is_ok());
}

#[tokio::test]
async fn handshakes_that_never_end_are_bounded_and_keep_out_no_client() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = own(folder.path(), &["localhost"], today()).unwrap();
    let acceptor = TlsAcceptor::new(&certificates).unwrap().with_limits(LONG * 60, 8);
    let address = served(acceptor).await;
    let mut silent = Vec::new();
    for number in 0..64 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            // The head of a record of the handshake, and nothing of the record.
            stream.write_all(&[22, 3, 1, 0, 200]).await.unwrap();
        }
        silent.push(stream);
    }
    let authority = certificates.authority();
    let honest = connect(address, "localhost", client(&authority, rustls::ALL_VERSIONS));
    tokio::time::timeout(LONG, honest).await.unwrap().unwrap();
    // All but the newest were ended by the controller.
    for mut stream in silent.drain(..50) {
        let ended = tokio::time::timeout(LONG, stream.read(&mut [0; 16])).await.unwrap();
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
}

#[tokio::test]
async fn a_handshake_has_a_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = own(folder.path(), &["localhost"], today()).unwrap();
    let acceptor = TlsAcceptor::new(&certificates).unwrap().with_limits(Duration::from_millis(50), 8);
    let address = served(acceptor).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let ended = tokio::time::timeout(LONG, silent.read(&mut [0; 16])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_request_without_tls_gets_a_response_that_names_the_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = own(folder.path(), &["localhost"], today()).unwrap();
    let address = served(TlsAcceptor::new(&certificates).unwrap()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 400") && response.contains("use https://"), "{response}");
}

/// The names in the certificate that a client showed, or none.
async fn shown(
    version: &'static SupportedProtocolVersion,
    with: Option<&rcgen::CertifiedKey<rcgen::KeyPair>>,
) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let certificates = own(folder.path(), &["localhost"], today()).unwrap();
    let acceptor = TlsAcceptor::asking(&certificates, Vec::new()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream, &CancellationToken::new()).await.unwrap();
        let chain = stream.get_ref().1.peer_certificates();
        chain.map(|chain| der::names(&chain[0]).unwrap())
    });
    let mut config = client(&certificates.authority(), &[version]);
    if let Some(pair) = with {
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificates.authority().as_bytes()).unwrap()).unwrap();
        let builder = builder.with_root_certificates(roots);
        config = builder.with_client_auth_cert(vec![pair.cert.der().clone()], key.into()).unwrap();
    }
    let mut stream = connect(address, "localhost", config).await.unwrap();
    // A client of TLS 1.3 is ready before the server has read its certificate.
    let _ended = stream.read(&mut [0; 1]).await;
    accepted.await.unwrap()
}

#[tokio::test]
async fn a_client_is_asked_for_a_certificate_and_connects_with_any_or_none() {
    let pair = rcgen::generate_simple_self_signed(vec!["SN-1".to_owned()]).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        assert_eq!(shown(version, None).await, None);
        assert!(shown(version, Some(&pair)).await.unwrap().contains(&"SN-1".to_owned()));
    }
}
