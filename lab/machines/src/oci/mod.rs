//! OCI client of the simulated machine and the demo: references, pull, unpack, push.
//!
//! ```text
//! oci_url  HOST:PORT/os-images/ubuntu-rootfs:22.04
//!   |  ImageReference::parse
//!   v
//! HEAD manifests/22.04 -> digest -> GET manifests/sha256:… -> (index -> GET its amd64 manifest)
//!   |                                                            every byte hashed and compared with the digest
//!   v
//! GET blobs/sha256:… for the config and each layer -> files     hashed while streaming, bounded by the descriptor
//!   |
//!   v
//! unpack: gunzip, diff_id, whiteouts -> one tar stream
//! ```
//!
//! The client shares no code with the `registry` crate, so that both cannot contain one mistake.
//! OCI distribution specification 1.1, image specification 1.1; docs/maintenance-os.md.

mod pull;
mod push;
mod unpack;

#[cfg(test)]
mod tests;

use base64::Engine;
use thiserror::Error;

pub use self::{
    pull::{Layer, PulledImage},
    push::{Blob, PushReceipt},
    unpack::{ExtraFile, UnpackError, UnpackLimits, Unpacked, unpack},
};
use crate::http::HttpError;
pub use recipe::{ImageReference, ImageReferenceError, Selector};

/// Maximum length of a manifest or index in bytes.
pub const MAX_MANIFEST_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of layers of an image.
pub const MAX_LAYERS: usize = 128;

/// The authorization of requests to a registry.
#[derive(Clone, Default)]
pub enum Authorization {
    /// Requests have no credentials.
    #[default]
    Anonymous,
    /// User name and password, sent with every request.
    Basic {
        /// User name.
        username: String,
        /// Password or pull token.
        password: String,
    },
    /// An API token.
    Bearer(String),
}

impl std::fmt::Debug for Authorization {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic(…)",
            Self::Bearer(_) => "Bearer(…)",
        })
    }
}

impl Authorization {
    fn apply(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match self {
            Self::Anonymous => request,
            Self::Basic { username, password } => {
                let pair = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
                request.header(reqwest::header::AUTHORIZATION, format!("Basic {pair}"))
            }
            Self::Bearer(token) => request.bearer_auth(token),
        }
    }
}

/// A client of one registry.
#[derive(Clone, Debug)]
pub struct RegistryClient {
    http: reqwest::Client,
    base: url::Url,
    authorization: Authorization,
}

/// A request to a registry failed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The address is not an http or https URL.
    #[error("the registry address {url:?} is not an http or https URL")]
    Address {
        /// The address.
        url: String,
    },
    /// Sending the request or reading the response failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The registry responded with an unexpected status.
    #[error("{operation}: the registry responded with {status}{}", detail(reason))]
    Status {
        /// The operation that failed.
        operation: String,
        /// The status code.
        status: u16,
        /// Code and message of the registry, truncated.
        reason: String,
    },
    /// Content does not match its digest.
    #[error(
        "{operation}: expected {expected}, received {actual}; the content is damaged, push the image again"
    )]
    Digest {
        /// The operation that failed.
        operation: String,
        /// The expected digest.
        expected: String,
        /// The digest of the received bytes.
        actual: String,
    },
    /// The length of the content differs from its descriptor.
    #[error("{operation}: expected {expected} bytes, received {actual}")]
    Size {
        /// The operation that failed.
        operation: String,
        /// The size in the descriptor.
        expected: u64,
        /// Number of bytes received.
        actual: u64,
    },
    /// A document is not valid.
    #[error("{operation}: {reason}")]
    Document {
        /// The operation that failed.
        operation: String,
        /// The reason.
        reason: String,
    },
    /// A local file could not be written.
    #[error("{operation}")]
    File {
        /// The operation that failed.
        operation: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl RegistryError {
    /// Whether a retry of the request may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Http(HttpError::Exchange { .. }) => true,
            Self::Status { status, .. } => *status >= 500 || *status == 429,
            _ => false,
        }
    }
}

impl RegistryClient {
    /// Creates a client for the registry at `base`, such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// Returns an error if `base` is not an http or https URL.
    pub fn new(
        http: reqwest::Client,
        base: &str,
        authorization: Authorization,
    ) -> Result<Self, RegistryError> {
        let refused = || RegistryError::Address { url: base.to_owned() };
        let mut base_url = url::Url::parse(base).map_err(|_| refused())?;
        if !matches!(base_url.scheme(), "http" | "https") || base_url.host_str().is_none() {
            return Err(refused());
        }
        base_url.set_path("/");
        base_url.set_query(None);
        Ok(Self { http, base: base_url, authorization })
    }

    fn url(&self, repository: &str, rest: &str) -> String {
        format!("{}v2/{repository}/{rest}", self.base)
    }

    async fn send(
        &self,
        operation: &str,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, RegistryError> {
        let request = self.authorization.apply(request);
        Ok(request
            .send()
            .await
            .map_err(|source| HttpError::Exchange { operation: operation.to_owned(), source })?)
    }
}

/// Builds the error for an unexpected response, with the error text of the registry.
async fn refused(operation: &str, response: reqwest::Response) -> RegistryError {
    let status = response.status().as_u16();
    let body = crate::http::bounded_body(response, 16 * 1024, operation).await.unwrap_or_default();
    let document: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let error = &document["errors"][0];
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    let reason: String = format!("{} {}", text("code"), text("message")).trim().chars().take(200).collect();
    RegistryError::Status { operation: operation.to_owned(), status, reason }
}

fn detail(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// Returns the digest of `bytes` as `sha256:` and hex digits.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}
