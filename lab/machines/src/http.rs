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
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
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
    /// The TLS set-up of the virtual CD was refused.
    #[error("preparing TLS for the virtual CD")]
    AnyCertificate(#[source] lab_bmc::MediaReaderError),
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
    build(lab_bmc::any_certificate().map_err(HttpError::AnyCertificate)?)
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
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HttpError::Tls)?;
    build(tls.with_root_certificates(roots).with_no_client_auth())
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
