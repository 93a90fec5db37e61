//! Pull: every document and every blob is requested by digest, and its digest is checked before use.

use std::path::{Path, PathBuf};

use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os};
use reqwest::{StatusCode, header::ACCEPT};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncWriteExt, BufWriter};

use super::{
    ImageReference, MAX_LAYERS, MAX_MANIFEST_BYTES, RegistryClient, RegistryError, Selector, digest_of,
    refused,
};
use crate::http::{HttpError, bounded_body};
use recipe::is_sha256;

const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";
const DIGEST_HEADER: &str = "docker-content-digest";
const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;
const WRITE_BUFFER: usize = 128 * 1024;

/// An image whose manifest and configuration were read and checked. Its layers are not pulled yet.
#[derive(Clone, Debug)]
pub struct PulledImage {
    /// Repository of the image.
    pub repository: String,
    /// Digest of the image manifest (never of an index).
    pub digest: String,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
}

/// One layer of an image.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Digest of the blob.
    pub digest: String,
    /// Size of the blob in bytes.
    pub size: u64,
    /// Whether the blob is compressed with gzip.
    pub gzip: bool,
    /// Digest of the uncompressed tar stream, if the configuration contains it.
    pub diff_id: Option<String>,
}

impl RegistryClient {
    /// Resolves a reference to one image manifest and its configuration.
    ///
    /// # Errors
    /// Returns an error if the registry refuses a request, content does not match its digest, or the image cannot be
    /// installed.
    pub async fn resolve(&self, reference: &ImageReference) -> Result<PulledImage, RegistryError> {
        let repository = &reference.repository;
        let digest = match &reference.selector {
            Selector::Digest(digest) => digest.clone(),
            Selector::Tag(tag) => self.digest_of_tag(repository, tag).await?,
        };
        let operation = format!("reading manifest {digest} of {repository}");
        let document = |source: serde_json::Error| RegistryError::Document {
            operation: operation.clone(),
            reason: source.to_string(),
        };
        let bytes = self.manifest(repository, &digest, &operation).await?;
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(document)?;
        let (digest, bytes) = if value.get("manifests").is_some() {
            let index: ImageIndex = serde_json::from_slice(&bytes).map_err(document)?;
            let digest = choose(&index).ok_or_else(|| RegistryError::Document {
                operation: operation.clone(),
                reason: "the index has no linux/amd64 image".to_owned(),
            })?;
            let bytes = self.manifest(repository, &digest, &operation).await?;
            (digest, bytes)
        } else {
            (digest, bytes)
        };
        let manifest: ImageManifest = serde_json::from_slice(&bytes).map_err(document)?;
        if manifest.layers().is_empty() || manifest.layers().len() > MAX_LAYERS {
            let reason = format!("it has {} layers; 1 to {MAX_LAYERS} are allowed", manifest.layers().len());
            return Err(RegistryError::Document { operation, reason });
        }
        let diff_ids = self.diff_ids(repository, &manifest).await?;
        let layers = manifest
            .layers()
            .iter()
            .enumerate()
            .map(|(index, descriptor)| layer(&operation, descriptor, diff_ids.get(index).cloned()));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(PulledImage { repository: repository.clone(), digest, layers })
    }

    /// Streams one layer into a file and checks size and digest. The file is valid only if this returns `Ok`.
    ///
    /// # Errors
    /// Returns an error if the registry refuses the request, the bytes do not match the descriptor, or the file cannot be
    /// written.
    pub async fn fetch_layer(
        &self,
        image: &PulledImage,
        layer: &Layer,
        file: &Path,
    ) -> Result<PathBuf, RegistryError> {
        let operation = format!("pulling layer {} of {}", layer.digest, image.repository);
        let failed = |source| RegistryError::File { operation: format!("{operation} into a file"), source };
        let mut response = self.blob(&image.repository, &layer.digest, &operation).await?;
        let mut out =
            BufWriter::with_capacity(WRITE_BUFFER, tokio::fs::File::create(file).await.map_err(failed)?);
        let mut sha256 = Sha256::new();
        let mut received = 0u64;
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|source| HttpError::Exchange { operation: operation.clone(), source })?
        {
            received += chunk.len() as u64;
            if received > layer.size {
                return Err(RegistryError::Size { operation, expected: layer.size, actual: received });
            }
            sha256.update(&chunk);
            out.write_all(&chunk).await.map_err(failed)?;
        }
        out.flush().await.map_err(failed)?;
        if received != layer.size {
            return Err(RegistryError::Size { operation, expected: layer.size, actual: received });
        }
        let actual = format!("sha256:{}", hex::encode(sha256.finalize()));
        if actual != layer.digest {
            return Err(RegistryError::Digest { operation, expected: layer.digest.clone(), actual });
        }
        Ok(file.to_owned())
    }

    async fn digest_of_tag(&self, repository: &str, tag: &str) -> Result<String, RegistryError> {
        let operation = format!("resolving {repository}:{tag}");
        let url = self.url(repository, &format!("manifests/{tag}"));
        let response = self.send(&operation, self.http.head(&url).header(ACCEPT, ACCEPTED)).await?;
        if response.status() != StatusCode::OK {
            return Err(refused(&operation, response).await);
        }
        let digest = response.headers().get(DIGEST_HEADER).and_then(|value| value.to_str().ok());
        match digest {
            Some(digest) if is_sha256(digest) => Ok(digest.to_owned()),
            _ => Err(RegistryError::Document {
                operation,
                reason: "the response has no valid Docker-Content-Digest".to_owned(),
            }),
        }
    }

    async fn manifest(
        &self,
        repository: &str,
        digest: &str,
        operation: &str,
    ) -> Result<Vec<u8>, RegistryError> {
        let url = self.url(repository, &format!("manifests/{digest}"));
        let response = self.send(operation, self.http.get(&url).header(ACCEPT, ACCEPTED)).await?;
        if response.status() != StatusCode::OK {
            return Err(refused(operation, response).await);
        }
        let bytes = bounded_body(response, MAX_MANIFEST_BYTES, operation).await?;
        check_digest(operation, digest, &bytes)?;
        Ok(bytes)
    }

    async fn blob(
        &self,
        repository: &str,
        digest: &str,
        operation: &str,
    ) -> Result<reqwest::Response, RegistryError> {
        let response =
            self.send(operation, self.http.get(self.url(repository, &format!("blobs/{digest}")))).await?;
        match response.status() {
            StatusCode::OK => Ok(response),
            _ => Err(refused(operation, response).await),
        }
    }

    /// The digests of the uncompressed layers; empty for an artifact, which has no image configuration.
    async fn diff_ids(
        &self,
        repository: &str,
        manifest: &ImageManifest,
    ) -> Result<Vec<String>, RegistryError> {
        let descriptor = manifest.config();
        let digest = descriptor.digest().to_string();
        let operation = format!("reading configuration {digest} of {repository}");
        if !is_sha256(&digest) {
            return Err(RegistryError::Document {
                operation,
                reason: "its digest is not a sha256".to_owned(),
            });
        }
        if descriptor.size() > MAX_CONFIG_BYTES {
            let expected = MAX_CONFIG_BYTES;
            return Err(RegistryError::Size { operation, expected, actual: descriptor.size() });
        }
        let response = self.blob(repository, &digest, &operation).await?;
        let bytes = bounded_body(response, MAX_CONFIG_BYTES as usize, &operation).await?;
        check_digest(&operation, &digest, &bytes)?;
        let docker = MediaType::Other("application/vnd.docker.container.image.v1+json".to_owned());
        if *descriptor.media_type() != MediaType::ImageConfig && *descriptor.media_type() != docker {
            return Ok(Vec::new());
        }
        let document = |reason: String| RegistryError::Document { operation: operation.clone(), reason };
        let config: ImageConfiguration =
            serde_json::from_slice(&bytes).map_err(|source| document(source.to_string()))?;
        let diff_ids = config.rootfs().diff_ids().clone();
        if diff_ids.len() != manifest.layers().len() {
            let reason =
                format!("it has {} layers, the manifest {}", diff_ids.len(), manifest.layers().len());
            return Err(document(reason));
        }
        Ok(diff_ids)
    }
}

fn check_digest(operation: &str, expected: &str, bytes: &[u8]) -> Result<(), RegistryError> {
    let actual = digest_of(bytes);
    if actual == expected {
        return Ok(());
    }
    Err(RegistryError::Digest { operation: operation.to_owned(), expected: expected.to_owned(), actual })
}

/// The digest of the linux/amd64 entry, or of the first entry without a platform.
fn choose(index: &ImageIndex) -> Option<String> {
    let fits = |descriptor: &&Descriptor| {
        descriptor
            .platform()
            .as_ref()
            .is_some_and(|platform| *platform.os() == Os::Linux && *platform.architecture() == Arch::Amd64)
    };
    let chosen = index.manifests().iter().find(fits);
    let without_platform = || index.manifests().iter().find(|descriptor| descriptor.platform().is_none());
    chosen
        .or_else(without_platform)
        .map(|descriptor| descriptor.digest().to_string())
        .filter(|digest| is_sha256(digest))
}

fn layer(operation: &str, descriptor: &Descriptor, diff_id: Option<String>) -> Result<Layer, RegistryError> {
    let refuse = |reason: String| RegistryError::Document { operation: operation.to_owned(), reason };
    let digest = descriptor.digest().to_string();
    if !is_sha256(&digest) {
        return Err(refuse(format!("the layer digest {digest} is not a sha256")));
    }
    let media_type = descriptor.media_type().to_string();
    let gzip = media_type.ends_with("gzip") || media_type.ends_with(".gz");
    if !gzip && !media_type.ends_with("tar") {
        return Err(refuse(format!("layers of type {media_type} cannot be unpacked; use tar or tar+gzip")));
    }
    Ok(Layer { digest, size: descriptor.size(), gzip, diff_id })
}
