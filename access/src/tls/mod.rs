//! TLS of the listeners: where the certificate comes from, when it changes, and the handshake of a connection.
//!
//! ```text
//!  TLS_CERT_FILE, TLS_KEY_FILE ──────────────────────┐  read at the start, at SIGHUP and when the files change
//!                                                    v
//!  STORAGE_ROOT/tls/ca.key, ca.pem ──issues──> certificate in force ──> every new handshake
//!                                     ^
//!        names of the settings, addresses of this machine, end of the former one
//! ```
//!
//! Invariants: a connection keeps the certificate of its handshake; a pair that cannot be used replaces nothing; private
//! keys are in files with mode 0600 and in no output; a handshake has a time limit, and so many at once have a maximum.
//!
//! Decision D16.

mod acceptor;
mod authority;
mod certificates;
mod client_auth;
pub(crate) mod der;
mod error;
mod files;
mod machines;

pub use acceptor::TlsAcceptor;
pub use certificates::{
    CertificateFiles, Certificates, TlsOptions, TlsState, authority_of, certificate_end, certificate_pem,
    unverifiable,
};
pub use client_auth::PresentedCertificate;
pub use error::TlsError;
pub use machines::MachineTrust;

#[cfg(test)]
mod machines_tests;
#[cfg(test)]
mod tests;
