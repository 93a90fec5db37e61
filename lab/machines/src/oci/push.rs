//! Push: first the blobs (HEAD, POST, PATCH, PUT), then the manifest with its tag.

use bytes::Bytes;
use reqwest::{
    StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use url::Url;

use super::{RegistryClient, RegistryError, digest_of, refused};

/// Content to push, with its digest.
#[derive(Clone, Debug)]
pub struct Blob {
    /// Digest of the content.
    pub digest: String,
    /// The content.
    pub bytes: Bytes,
}

impl Blob {
    /// Creates a blob and computes its digest.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { digest: digest_of(&bytes), bytes }
    }
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushReceipt {
    /// Digest of the manifest.
    pub digest: String,
    /// Number of blobs that were uploaded.
    pub uploaded: usize,
    /// Number of blobs that the registry already had.
    pub present: usize,
}

impl RegistryClient {
    /// Pushes `blobs`, then `manifest` with `tag`.
    ///
    /// # Errors
    /// Returns an error if the registry refuses a request or violates the specification.
    pub async fn push(
        &self,
        repository: &str,
        tag: &str,
        blobs: &[Blob],
        manifest: Bytes,
        media_type: &str,
    ) -> Result<PushReceipt, RegistryError> {
        let (mut uploaded, mut present) = (0, 0);
        for blob in blobs {
            if self.has_blob(repository, blob).await? {
                present += 1;
            } else {
                self.upload(repository, blob).await?;
                uploaded += 1;
            }
        }
        let operation = format!("pushing manifest {repository}:{tag}");
        let digest = digest_of(&manifest);
        let request = self
            .http
            .put(self.url(repository, &format!("manifests/{tag}")))
            .header(CONTENT_TYPE, media_type)
            .body(manifest);
        let response = self.send(&operation, request).await?;
        if response.status() != StatusCode::CREATED {
            return Err(refused(&operation, response).await);
        }
        Ok(PushReceipt { digest, uploaded, present })
    }

    async fn has_blob(&self, repository: &str, blob: &Blob) -> Result<bool, RegistryError> {
        let operation = format!("checking for blob {} in {repository}", blob.digest);
        let url = self.url(repository, &format!("blobs/{}", blob.digest));
        let response = self.send(&operation, self.http.head(url)).await?;
        match response.status() {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(refused(&operation, response).await),
        }
    }

    async fn upload(&self, repository: &str, blob: &Blob) -> Result<(), RegistryError> {
        let operation = format!("uploading blob {} to {repository}", blob.digest);
        let begin = self.http.post(self.url(repository, "blobs/uploads/")).body(Bytes::new());
        let session = self.session(&operation, self.send(&operation, begin).await?).await?;
        let chunk = self
            .http
            .patch(session)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(blob.bytes.clone());
        let mut session = self.session(&operation, self.send(&operation, chunk).await?).await?;
        session.query_pairs_mut().append_pair("digest", &blob.digest);
        let response = self.send(&operation, self.http.put(session).body(Bytes::new())).await?;
        match response.status() {
            StatusCode::CREATED => Ok(()),
            _ => Err(refused(&operation, response).await),
        }
    }

    /// The URL of the upload session in a 202 response. It may be relative, and it must belong to this registry.
    async fn session(&self, operation: &str, response: reqwest::Response) -> Result<Url, RegistryError> {
        if response.status() != StatusCode::ACCEPTED {
            return Err(refused(operation, response).await);
        }
        let document = |reason: &str| RegistryError::Document {
            operation: operation.to_owned(),
            reason: reason.to_owned(),
        };
        let location = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| document("the response has no Location"))?;
        let session = self.base.join(location).map_err(|_| document("the Location is not a URL"))?;
        if session.origin() != self.base.origin() {
            return Err(document("the Location names another host"));
        }
        Ok(session)
    }
}
