//! OCI images as the simulated machine and the demo handle them: references, pull, unpack, push.
//!
//! ```text
//! oci_url  HOST:PORT/os-images/ubuntu-rootfs:22.04
//!   |  ImageReference::parse
//!   v
//! HEAD manifests/22.04 -> digest -> GET manifests/sha256:… -> (index -> GET its amd64 manifest)
//!   |                                                            every byte hashed, compared with what was asked for
//!   v
//! GET blobs/sha256:… for the config and each layer -> files     hashed while streaming, bounded by the descriptor
//!   |
//!   v
//! unpack: gunzip, diff_id, whiteouts -> one tar stream
//! ```
//!
//! This is a client of its own: it shares nothing with the `registry` crate, so that the two cannot agree on the same
//! mistake. OCI distribution specification 1.1, image specification 1.1; notes/contracts.md 027 and 029.

mod pull;
mod push;
mod reference;
mod unpack;

#[cfg(test)]
mod tests;

use base64::Engine;
use thiserror::Error;

pub use self::{
    pull::{Layer, PulledImage},
    push::{Blob, PushReceipt},
    reference::{ImageReference, ImageReferenceError, Selector},
    unpack::{ExtraFile, UnpackError, UnpackLimits, Unpacked, unpack},
};
use crate::http::HttpError;

/// Bytes a manifest or index may have.
pub const MAX_MANIFEST_BYTES: usize = 4 * 1024 * 1024;
/// Layers an image may have.
pub const MAX_LAYERS: usize = 128;

/// How requests to a registry are authorized.
#[derive(Clone, Default)]
pub enum Authorization {
    /// Not at all.
    #[default]
    Anonymous,
    /// User name and password, sent with the first request.
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

/// A registry as a client sees it.
#[derive(Clone, Debug)]
pub struct RegistryClient {
    http: reqwest::Client,
    base: url::Url,
    authorization: Authorization,
}

/// Why talking to a registry failed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The address is not one.
    #[error("the registry address {url:?} is not an http or https URL")]
    Address {
        /// What was given.
        url: String,
    },
    /// The exchange failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The registry answered with a status that does not fit.
    #[error("{operation}: the registry answered {status}{}", detail(reason))]
    Status {
        /// What was asked.
        operation: String,
        /// The status code.
        status: u16,
        /// The registry's own code and message, shortened.
        reason: String,
    },
    /// Content does not match its digest.
    #[error(
        "{operation}: expected {expected}, received {actual}; the content is damaged, push the image again"
    )]
    Digest {
        /// What was read.
        operation: String,
        /// The digest that was promised.
        expected: String,
        /// The digest of what came.
        actual: String,
    },
    /// Content is longer or shorter than its descriptor says.
    #[error("{operation}: expected {expected} bytes, received {actual}")]
    Size {
        /// What was read.
        operation: String,
        /// The size that was promised.
        expected: u64,
        /// How many bytes came before giving up.
        actual: u64,
    },
    /// A document is not what it claims to be.
    #[error("{operation}: {reason}")]
    Document {
        /// What was read.
        operation: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A local file could not be written.
    #[error("{operation}")]
    File {
        /// What was done.
        operation: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

impl RegistryError {
    /// Whether the same request may succeed a moment later.
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
    /// A client for the registry at `base`, such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// When `base` is not an http or https URL.
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

/// The error for an answer that does not fit, with what the registry said.
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

/// `sha256:` and the hex digest of `bytes`.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}
