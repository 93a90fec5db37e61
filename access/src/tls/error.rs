//! The errors of TLS: a certificate or key that cannot be read, made or used.

use std::io;
use std::path::PathBuf;

/// The reason why a certificate cannot be read, made or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or directory of TLS could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file or directory of TLS could not be written.
    #[error("write {}; is the disk full or read-only?", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file contains no PEM certificate.
    #[error("{} contains no PEM certificate; give the certificate, then those of its intermediate authorities", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file contains no PEM private key.
    #[error("{} contains no PEM private key (PKCS #8, PKCS #1 or SEC 1, without a passphrase)", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not belong together, or their kind is not supported.
    #[error("the certificate in {} cannot be used with the key in {}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The certificate of the own authority exists and its key does not.
    #[error(
        "{} exists and {} does not: put the key back from a copy, or remove the certificate; then the controller makes a new \
         authority, which every client must be given",
        certificate.display(), key.display()
    )]
    AuthorityKeyMissing {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The certificate of the own authority does not verify what the key of the authority signs.
    #[error(
        "clients with {} refuse a certificate that {} signs: the two files are of different authorities. Put both back from one copy, or \
         remove the first; then the controller makes it again with the key, and every client must be given it. A certificate of an \
         authority of the site belongs in TLS_CERT_FILE",
        certificate.display(), key.display()
    )]
    AuthorityPair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// A certificate could not be made.
    #[error("make a certificate")]
    Make(#[source] rcgen::Error),
    /// The TLS library refused the configuration.
    #[error("set up TLS")]
    Setup(#[source] rustls::Error),
}
