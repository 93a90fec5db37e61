//! HTTP as the simulated machine speaks it: clients that trust what they are told to trust, and bounded bodies.
//!
//! Two kinds of client exist, because two different things talk. The **BMC's virtual CD** reads media and believes any
//! certificate, as real BMCs do ([`media_client`]). The **maintenance OS** talks to controller and registry and believes
//! only the CA of its `job.json` ([`api_client`]). Neither follows redirects, uses a proxy or asks the host for its
//! CA files: a laptop without any still runs the demo.
//!
//! DESIGN sections 7 and 13; L16.

use std::{sync::Arc, time::Duration};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use thiserror::Error;

/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the peer may be silent in the middle of an answer.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a client or an exchange failed.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The TLS set-up was refused.
    #[error("preparing TLS for the simulated machine")]
    Tls(#[source] rustls::Error),
    /// The PEM text holds no certificate.
    #[error("reading controller_ca of job.json: {reason}; put one or more PEM certificates there, or null")]
    CertificateAuthority {
        /// What is wrong with it.
        reason: String,
    },
    /// reqwest refused to build a client.
    #[error("building an HTTP client for the simulated machine")]
    Client(#[source] reqwest::Error),
    /// The exchange itself failed.
    #[error("{operation}")]
    Exchange {
        /// What was being done.
        operation: String,
        /// Why it failed.
        #[source]
        source: reqwest::Error,
    },
    /// The body is longer than it may be.
    #[error("{operation}: the answer is longer than {limit} bytes")]
    TooLong {
        /// What was being done.
        operation: String,
        /// Bytes allowed.
        limit: usize,
    },
}

/// The client behind a virtual CD: any certificate will do, as on a BMC.
///
/// # Errors
/// When TLS cannot be set up.
pub fn media_client() -> Result<reqwest::Client, HttpError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = config_builder(Arc::clone(&provider))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }))
        .with_no_client_auth();
    build(tls)
}

/// The client of the maintenance OS: it believes `controller_ca` and nobody else.
///
/// # Errors
/// When the PEM text holds no usable certificate.
pub fn api_client(controller_ca: Option<&str>) -> Result<reqwest::Client, HttpError> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = controller_ca {
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|source| refused_ca(&source))?;
            roots.add(certificate).map_err(|source| refused_ca(&source))?;
        }
        if roots.is_empty() {
            return Err(HttpError::CertificateAuthority { reason: "it holds no certificate".to_owned() });
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    build(config_builder(provider)?.with_root_certificates(roots).with_no_client_auth())
}

/// Reads a whole body of at most `limit` bytes.
///
/// # Errors
/// When the connection breaks or the body is longer.
pub async fn bounded_body(
    mut response: reqwest::Response,
    limit: usize,
    operation: &str,
) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|source| HttpError::Exchange {
        operation: operation.to_owned(),
        source: source.without_url(),
    })? {
        if body.len() + chunk.len() > limit {
            return Err(HttpError::TooLong { operation: operation.to_owned(), limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn config_builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, HttpError> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HttpError::Tls)
}

fn build(tls: ClientConfig) -> Result<reqwest::Client, HttpError> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(SILENCE_TIMEOUT)
        .build()
        .map_err(HttpError::Client)
}

fn refused_ca(source: &dyn std::error::Error) -> HttpError {
    HttpError::CertificateAuthority { reason: source.to_string() }
}

/// Believes every certificate but still checks that the peer owns it: a BMC without a trust store.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_made_without_the_hosts_ca_files_and_a_bad_ca_is_explained() {
        assert!(media_client().is_ok() && api_client(None).is_ok());
        let scrambled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for bad in ["", "not PEM", scrambled] {
            let refused = api_client(Some(bad)).unwrap_err().to_string();
            assert!(refused.contains("controller_ca of job.json"), "{refused}");
        }
    }
}
