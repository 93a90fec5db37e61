//! `shoal ca export`: the certificates that clients trust to reach a controller by https.
//!
//! ```text
//!  data directory, or the last certificate of TLS_CERT_FILE ──┐
//!                                                             ├──> PEM on standard output
//!  --from URL: GET /ca.pem, compared with --fingerprint ──────┘
//! ```
//!
//! Invariants: nothing of an unverified connection is used except the certificates, each of whose fingerprints is compared or shown; what
//! is printed is made of them again, so no other text of a response or a file reaches a terminal or a file of trust.

use std::sync::Arc;

use clap::Subcommand;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use serde_json::json;
use sha2::{Digest, Sha256};

use access::tls::{authority_of, certificate_pem};
use controller::app::tls_options;
use model::error_chain;
use settings::Settings;

use super::settings_args::SettingsArgs;
use client::connection;
use client::error::CliError;
use client::output::{Output, plain};

/// A command about the certificate authority.
#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Print the certificates that clients trust, as PEM
    Export {
        /// Read them from a running controller instead of the data directory
        #[arg(long, value_name = "URL")]
        from: Option<String>,
        /// The SHA-256 of the certificate, as the controller showed it at its start; with another one, or a second one, nothing is printed
        #[arg(long, value_name = "SHA256", requires = "from")]
        fingerprint: Option<String>,
    },
}

/// Runs a command.
pub(super) async fn run(
    command: CaCommand,
    settings: SettingsArgs,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let CaCommand::Export { from, fingerprint } = command;
    let (pem, verified) = match from {
        Some(url) => (fetched(&url).await?, fingerprint.is_some()),
        None => (stored(&settings.load()?)?, true),
    };
    let unusable = |why: String| {
        CliError::failed(format!("the controller has no certificate to trust: {}", plain(&why)))
    };
    let certificates: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(error.to_string()))?;
    let prints: Vec<String> = certificates.iter().map(|der| hex::encode(Sha256::digest(der))).collect();
    let Some(first) = prints.first() else {
        return Err(unusable("the text has no PEM certificate".to_owned()));
    };
    if let Some(wanted) = fingerprint {
        if prints.len() > 1 {
            return Err(CliError::failed(format!(
                "the response has {} certificates, and a fingerprint is of one: nothing was printed. Export them on the machine of the \
                 controller",
                prints.len()
            )));
        }
        if digits(&wanted) != *first {
            return Err(CliError::failed(format!(
                "the certificate has the fingerprint {first}, not the given one: another controller responded, or another program in \
                 between; nothing was printed"
            )));
        }
    }
    if !verified {
        output.note(format!(
            "not verified: compare the SHA-256 {} with the one that the controller logged at its start",
            prints.join(" and ")
        ));
    }
    let pem: String = certificates.iter().map(certificate_pem).collect();
    if output.json {
        // Of several unverified certificates none may be taken for all.
        let print = (verified || prints.len() == 1).then_some(first);
        return output.document(&json!({ "pem": pem, "sha256": print }));
    }
    output.out.write_all(pem.as_bytes())?;
    Ok(output.out.flush()?)
}

/// The certificates of the data directory of the settings.
fn stored(settings: &Settings) -> Result<String, CliError> {
    let found = authority_of(&tls_options(settings))
        .map_err(|error| CliError::failed(error_chain(&error).to_string()))?;
    found.ok_or_else(|| {
        CliError::failed(format!(
            "{} has no authority yet; the first start of a controller with CONTROLLER_HTTPS_ADDR makes it",
            settings.tls_dir().display()
        ))
    })
}

async fn fetched(url: &str) -> Result<String, CliError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| CliError::failed(format!("cannot prepare TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    connection::get_text(url, "ca.pem", tls).await
}

/// A fingerprint without its prefix, colons and upper case.
fn digits(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    text.strip_prefix("sha256:").unwrap_or(&text).replace(':', "")
}

/// Accepts any certificate: what is fetched is compared afterwards.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

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
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_compared_without_its_form() {
        assert_eq!(digits(" SHA256:AB:cd\n"), "abcd");
        assert_eq!(digits("abcd"), "abcd");
    }
}
