//! Verification of a BMC's certificate: by a pin, by a CA, or not at all.
//!
//! Certificates of BMCs are mostly self-signed, expired and without a usable name, so the usual verification of web
//! servers fails. A pin compares the SHA-256 of the leaf certificate only. The handshake signature is always verified,
//! so the peer holds the key. The handshake ends before a request is written, so a peer with a wrong certificate
//! receives no credentials. TLS 1.2 and 1.3 only; the provider is `ring` and is not installed globally.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};

use crate::transport::{TransportError, TransportErrorKind};

/// The rule by which the certificate of a BMC is accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TlsVerification {
    /// Only the certificate with this fingerprint; its name and dates are not checked.
    Pin(Fingerprint),
    /// Certificates for this name or address, issued by one of these CAs (PEM, one or more certificates).
    Ca(Arc<[u8]>),
    /// Any certificate; for laboratories and for reading a fingerprint before the first pin.
    Insecure,
}

/// SHA-256 of a certificate in DER form.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        Fingerprint(Sha256::digest(certificate.as_ref()).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a fingerprint of 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a fingerprint is 64 hexadecimal digits (SHA-256 of the certificate), colons allowed")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let text = text.trim();
        let digits: String = text.strip_prefix("sha256:").unwrap_or(text).split(':').take(33).collect();
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| FingerprintError)?;
        Ok(Fingerprint(bytes))
    }
}

/// Fingerprint of the certificate in the latest handshake, also when it was refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerCertificate(Arc<Mutex<Option<Fingerprint>>>);

impl PeerCertificate {
    pub(crate) fn get(&self) -> Option<Fingerprint> {
        *self.0.lock()
    }

    fn set(&self, fingerprint: Fingerprint) {
        *self.0.lock() = Some(fingerprint);
    }
}

/// Maximum number of TLS sessions stored per BMC; the default of the library is too large for thousands of BMCs.
const SESSIONS: usize = 8;

/// A TLS configuration that accepts any certificate, as BMCs do when they read media over HTTPS. The peer must still hold
/// the key of its certificate.
///
/// # Errors
///
/// When the TLS provider supports none of the required protocol versions.
pub fn accept_any_certificate() -> Result<ClientConfig, TransportError> {
    client_config(&TlsVerification::Insecure, PeerCertificate::default())
}

/// Builds the rustls configuration for a verification mode.
pub(crate) fn client_config(
    mode: &TlsVerification,
    peer: PeerCertificate,
) -> Result<ClientConfig, TransportError> {
    let config = |detail: String| TransportError::not_sent(TransportErrorKind::Config, detail);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let rule = match mode {
        TlsVerification::Pin(pin) => Rule::Pin(*pin),
        TlsVerification::Insecure => Rule::Any,
        TlsVerification::Ca(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem).take(256) {
                let certificate = certificate.map_err(|error| config(format!("CA file: {error}")))?;
                roots.add(certificate).map_err(|error| config(format!("CA certificate: {error}")))?;
            }
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .map_err(|error| config(format!("CA certificates: {error}")))?;
            Rule::Issued(verifier)
        }
    };
    let verifier = Verifier { rule, peer, provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| config(error.to_string()))?;
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

#[derive(Debug)]
enum Rule {
    Pin(Fingerprint),
    Issued(Arc<WebPkiServerVerifier>),
    Any,
}

#[derive(Debug)]
struct Verifier {
    rule: Rule,
    peer: PeerCertificate,
    provider: Arc<CryptoProvider>,
}

/// Marks, inside a rustls error, that the certificate differs from the pinned one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("pinned {pinned}, shown {shown}")]
pub(crate) struct PinMismatch {
    pub(crate) pinned: Fingerprint,
    pub(crate) shown: Fingerprint,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Fingerprint::of(end_entity);
        self.peer.set(shown);
        match &self.rule {
            Rule::Pin(pin) if *pin == shown => Ok(ServerCertVerified::assertion()),
            Rule::Pin(pin) => {
                let mismatch = PinMismatch { pinned: *pin, shown };
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(mismatch)))))
            }
            Rule::Issued(verifier) => {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Rule::Any => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_parsed_with_and_without_colons() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        let expected = Fingerprint([0xab; 32]);
        assert_eq!(plain.parse(), Ok(expected));
        assert_eq!(colons.parse(), Ok(expected));
        assert_eq!(format!("sha256:{plain}").parse(), Ok(expected));
        assert_eq!("abc".parse::<Fingerprint>(), Err(FingerprintError));
        assert_eq!("ab".repeat(40).parse::<Fingerprint>(), Err(FingerprintError));
    }

    #[test]
    fn a_ca_file_without_certificates_is_a_configuration_error() {
        let error =
            client_config(&TlsVerification::Ca(b"nothing".as_slice().into()), PeerCertificate::default())
                .unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Config);
    }
}
