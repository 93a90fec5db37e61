//! HTTP clients of the simulated machine, with explicit trust and bounded bodies.
//!
//! A machine has two HTTP clients. The **virtual CD of the BMC** reads media and accepts any certificate, as real BMCs
//! do ([`media_client`]). The **maintenance OS** sends requests to controller and registry and trusts only the CA of its
//! `job.json` ([`api_client`]). Neither follows redirects, uses a proxy or reads the CA files of the host: the demo runs
//! on a system without CA files.
//!
//! Decision D16; docs/maintenance-os.md.

use std::{sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use thiserror::Error;

/// Timeout for establishing a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for each read of a response.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A client could not be built, or a request failed.
#[derive(Debug, Error)]
pub enum HttpError {
    /// rustls rejected the TLS configuration.
    #[error("preparing TLS for the simulated machine")]
    Tls(#[source] rustls::Error),
    /// rustls rejected the TLS configuration of the virtual CD.
    #[error("preparing TLS for the virtual CD")]
    AnyCertificate(#[source] lab_bmc::MediaReaderError),
    /// The PEM text holds no certificate.
    #[error("reading controller_ca of job.json: {reason}; put one or more PEM certificates there, or null")]
    CertificateAuthority {
        /// The reason.
        reason: String,
    },
    /// reqwest refused to build a client.
    #[error("building an HTTP client for the simulated machine")]
    Client(#[source] reqwest::Error),
    /// Sending the request or reading the response failed.
    #[error("{operation}")]
    Exchange {
        /// The operation that failed.
        operation: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The body is longer than the limit.
    #[error("{operation}: the response is longer than {limit} bytes")]
    TooLong {
        /// The operation that failed.
        operation: String,
        /// Maximum length in bytes.
        limit: usize,
    },
}

/// Builds the client of a virtual CD. It accepts any certificate, as a BMC does.
///
/// # Errors
/// Returns an error if TLS cannot be configured.
pub fn media_client() -> Result<reqwest::Client, HttpError> {
    build(lab_bmc::any_certificate().map_err(HttpError::AnyCertificate)?)
}

/// Builds the client of the maintenance OS. It trusts `controller_ca` and no other CA.
///
/// # Errors
/// Returns an error if the PEM text holds no usable certificate.
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
/// Returns an error if the connection breaks or the body is longer.
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
        .read_timeout(READ_TIMEOUT)
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
    fn clients_are_built_without_the_hosts_ca_files_and_a_bad_ca_is_explained() {
        assert!(media_client().is_ok() && api_client(None).is_ok());
        let scrambled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for bad in ["", "not PEM", scrambled] {
            let refused = api_client(Some(bad)).unwrap_err().to_string();
            assert!(refused.contains("controller_ca of job.json"), "{refused}");
        }
    }
}
