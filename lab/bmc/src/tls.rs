//! The certificate of a simulated BMC: self-signed, made at first use, replaced by a fault.
//!
//! ```text
//!   revision 0 ──► key, certificate, server configuration ──► every handshake
//!   revision 1 (renewed) ──► new ones
//!
//!   TLS 1.0 only:  ClientHello ──► 15 03 01 00 02 02 46   alert, fatal, protocol_version
//! ```
//!
//! Invariants: TLS 1.2 and 1.3; the provider is `ring` and is never installed globally; the key stays in this module.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The alert that a server limited to TLS 1.0 sends to a client that requires 1.2.
const PROTOCOL_VERSION_ALERT: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 70];
/// The header of the record that holds a ClientHello.
const RECORD_HEADER: usize = 5;

/// The reason why a certificate is not available.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Making the certificate failed.
    #[error("making a certificate for a simulated BMC failed")]
    Make(#[source] rcgen::Error),
    /// The TLS library refused the certificate.
    #[error("setting up TLS for a simulated BMC failed")]
    Use(#[source] rustls::Error),
}

/// The certificate of one simulated BMC.
#[derive(Debug, Default)]
pub(super) struct Certificates(Mutex<Option<Made>>);

#[derive(Clone, Debug)]
struct Made {
    revision: u64,
    config: Arc<ServerConfig>,
    fingerprint: [u8; 32],
}

impl Certificates {
    /// The TLS configuration with the certificate of this revision.
    pub(super) fn config(&self, revision: u64) -> Result<Arc<ServerConfig>, CertificateError> {
        self.made(revision).map(|made| made.config)
    }

    /// SHA-256 of the certificate of this revision.
    pub(super) fn fingerprint(&self, revision: u64) -> Result<[u8; 32], CertificateError> {
        self.made(revision).map(|made| made.fingerprint)
    }

    fn made(&self, revision: u64) -> Result<Made, CertificateError> {
        let mut kept = self.0.lock();
        match kept.as_ref().filter(|made| made.revision == revision) {
            Some(made) => Ok(made.clone()),
            None => Ok(kept.insert(make(revision)?).clone()),
        }
    }
}

fn make(revision: u64) -> Result<Made, CertificateError> {
    let names = ["bmc.invalid".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(CertificateError::Make)?;
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let fingerprint = Sha256::digest(&certificate).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(CertificateError::Use)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(CertificateError::Use)?;
    Ok(Made { revision, config: Arc::new(config), fingerprint })
}

/// Ends a handshake as a server that supports no version of the client. The caller bounds the time.
pub(super) async fn refuse_versions(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut header = [0; RECORD_HEADER];
    stream.read_exact(&mut header).await?;
    let length = u64::from(u16::from_be_bytes([header[3], header[4]]));
    tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await?;
    stream.write_all(&PROTOCOL_VERSION_ALERT).await?;
    stream.shutdown().await
}
