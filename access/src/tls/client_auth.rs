//! Asks clients for a certificate and takes any, so that a report with a wrong one receives a response that says so.
//!
//! The handshake verifies that the client has the key of the certificate that it shows. Whether an authority issued the
//! certificate, and what it permits, is decided where it is used (`auth::client_certificate`): a handshake that ends with an
//! alert cannot name the reason, and a certificate for another purpose must not keep a client out of the API.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The certificates that a client showed in the handshake, its own first. Nothing but the possession of its key is verified.
#[derive(Clone, Debug)]
pub struct PresentedCertificate(pub Arc<[CertificateDer<'static>]>);

/// Asks for a certificate of these authorities and requires none.
#[derive(Debug)]
pub(super) struct AskForCertificate {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) hints: Vec<DistinguishedName>,
}

impl AskForCertificate {
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

impl ClientCertVerifier for AskForCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
