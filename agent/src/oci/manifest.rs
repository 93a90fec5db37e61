//! From a reference to the layers of one image.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::error::PullError;
use super::registry::Registry;
use super::source::ImageSource;
use recipe::{ImageReference, Selector, is_sha256};

const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";
const MAX_DOCUMENT: u64 = 4 * 1024 * 1024;
const MAX_LAYERS: usize = 512;
const IMAGE_CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// An image whose documents were read and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciImage {
    /// The digest of the image's manifest.
    pub digest: String,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
}

/// One layer of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The digest of the blob.
    pub digest: String,
    /// The size of the blob in bytes.
    pub size: u64,
    /// The media type.
    pub media_type: String,
    /// The digest of the uncompressed content, if the configuration has it.
    pub diff_id: Option<String>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Deserialize)]
struct Document {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
struct Configuration {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

impl Registry<'_> {
    /// Resolves a reference to one image for this machine's architecture.
    ///
    /// # Errors
    /// Returns an error when the registry refuses a request or does not respond for ten minutes, a document does not
    /// match its digest, or the image cannot be installed.
    pub fn resolve(&self, reference: &ImageReference) -> Result<OciImage, PullError> {
        let expected = match &reference.selector {
            Selector::Digest(digest) => Some(digest),
            Selector::Tag(_) => None,
        };
        resolve(self, reference.selector.as_str(), expected).inspect_err(|error| self.failed(error.class()))
    }
}

/// Resolves a name or digest of a source to one image for this machine's architecture.
pub(super) fn resolve(
    source: &dyn ImageSource,
    name: &str,
    expected: Option<&String>,
) -> Result<OciImage, PullError> {
    let (mut digest, mut document) = manifest(source, name, expected)?;
    let refused = |digest: &str, reason: String| PullError::Document {
        what: format!("manifest {digest} of {}", source.name()),
        reason,
    };
    if let Some(manifests) = &document.manifests {
        let architecture = architecture();
        let chosen = choose(manifests, architecture)
            .ok_or_else(|| refused(&digest, format!("the index has no image for linux/{architecture}")))?
            .to_owned();
        (digest, document) = manifest(source, &chosen, Some(&chosen))?;
    }
    let layers = document.layers.unwrap_or_default();
    if layers.is_empty() || layers.len() > MAX_LAYERS {
        return Err(refused(
            &digest,
            format!("it has {} layers; 1 to {MAX_LAYERS} are allowed", layers.len()),
        ));
    }
    // Progress counts the bytes of all layers.
    if layers.iter().try_fold(0_u64, |sum, layer| sum.checked_add(layer.size)).is_none() {
        return Err(refused(&digest, "its layers have more bytes than can be counted".to_owned()));
    }
    if let Some(wrong) = layers.iter().find(|layer| !is_sha256(&layer.digest)) {
        let shown: String = wrong.digest.chars().take(80).collect();
        return Err(refused(&digest, format!("the layer digest {shown} is not a sha256")));
    }
    let diff_ids = match &document.config {
        Some(config) if IMAGE_CONFIGS.contains(&&*config.media_type) => diff_ids(source, config)?,
        _ => Vec::new(),
    };
    if !diff_ids.is_empty() && diff_ids.len() != layers.len() {
        let reason = format!("it has {} layers, its configuration {}", layers.len(), diff_ids.len());
        return Err(refused(&digest, reason));
    }
    let mut diff_ids = diff_ids.into_iter();
    let layers = layers.into_iter().map(|layer| Layer {
        digest: layer.digest,
        size: layer.size,
        media_type: layer.media_type,
        diff_id: diff_ids.next(),
    });
    Ok(OciImage { digest, layers: layers.collect() })
}

/// Reads a manifest or an index. Without an expected digest, that of the bytes is returned.
fn manifest(
    source: &dyn ImageSource,
    name: &str,
    expected: Option<&String>,
) -> Result<(String, Document), PullError> {
    let bytes = source.document("manifests", name, ACCEPTED, MAX_DOCUMENT)?;
    let what = format!("manifest {name} of {}", source.name());
    let digest = verified(&what, &bytes, expected)?;
    let document = serde_json::from_slice(&bytes)
        .map_err(|source| PullError::Document { what, reason: source.to_string() })?;
    Ok((digest, document))
}

fn diff_ids(source: &dyn ImageSource, config: &Descriptor) -> Result<Vec<String>, PullError> {
    let what = format!("configuration {} of {}", config.digest, source.name());
    let refused = |reason: String| PullError::Document { what: what.clone(), reason };
    if !is_sha256(&config.digest) || config.size > MAX_DOCUMENT {
        return Err(refused("its digest is not a sha256, or it is too large".to_owned()));
    }
    let bytes = source.document("blobs", &config.digest, "*/*", MAX_DOCUMENT)?;
    verified(&what, &bytes, Some(&config.digest))?;
    let parsed: Configuration =
        serde_json::from_slice(&bytes).map_err(|source| refused(source.to_string()))?;
    match parsed.rootfs.diff_ids.iter().all(|id| is_sha256(id)) {
        true => Ok(parsed.rootfs.diff_ids),
        false => Err(refused("a diff_id is not a sha256".to_owned())),
    }
}

fn verified(what: &str, bytes: &[u8], expected: Option<&String>) -> Result<String, PullError> {
    let actual = format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    match expected {
        Some(expected) if *expected != actual => {
            Err(PullError::Digest { what: what.to_owned(), expected: expected.clone(), actual })
        }
        _ => Ok(actual),
    }
}

fn choose<'index>(manifests: &'index [Descriptor], architecture: &str) -> Option<&'index str> {
    let fits = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|platform| platform.os == "linux" && platform.architecture == architecture)
    };
    let plain = || manifests.iter().find(|descriptor| descriptor.platform.is_none());
    let chosen = manifests.iter().find(fits).or_else(plain)?;
    is_sha256(&chosen.digest).then_some(&*chosen.digest)
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
