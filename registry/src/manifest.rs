//! What the registry understands of a manifest: enough to know that it is one and what it refers to.
//!
//! ```text
//! Content-Type (without parameters)  ->  image manifest   config + layers must be in the repository
//!                                        image index      manifests must be in the repository
//!                                        anything else    refused
//! ```
//!
//! The bytes are never rewritten: parsing answers questions, what is stored and served is what was sent. A
//! document that can be read as both an image and an index is refused, so that no two clients can see
//! different things under one digest. Layers which may not be distributed, or name URLs of their own, need not
//! be present; a missing `subject` is legal.
//!
//! Specification: image-spec `manifest.md`, `image-index.md`; distribution-spec "Pushing manifests".

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_MANIFEST_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_FOREIGN_LAYER: &str = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
const SCHEMA_VERSION: u32 = 2;

/// A manifest that may be stored, once what it requires is there.
pub(crate) struct Understood {
    /// The media type it is stored and served under.
    pub(crate) media_type: String,
    pub(crate) requires: Requires,
}

/// The content a manifest refers to and a client will come to fetch.
pub(crate) enum Requires {
    /// Blobs, fetched from the blobs endpoint.
    Blobs(Vec<Descriptor>),
    /// Other manifests; an index may also list plain blobs.
    Children(Vec<Descriptor>),
}

/// Why a document is not a manifest this registry stores.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidManifest {
    #[error("the manifest has no media type: send it as Content-Type")]
    NoMediaType,
    #[error("manifests of media type {0:?} are not supported: push an OCI or Docker schema 2 image or index")]
    UnsupportedMediaType(String),
    #[error("the manifest says it is {document:?} but was sent as {header:?}")]
    MediaTypesDiffer { document: String, header: String },
    #[error("the manifest has schemaVersion {0}, not {SCHEMA_VERSION}")]
    SchemaVersion(u32),
    #[error("the document could be read both as an image and as an index")]
    Ambiguous,
    #[error("the manifest is not what its media type says: {0}")]
    Document(#[from] serde_json::Error),
}

/// The fields that tell kinds of documents apart; all else is left to the typed parse.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    manifests: Option<IgnoredAny>,
}

/// Reads `document`, sent with `content_type`.
pub(crate) fn understand(content_type: Option<&str>, document: &[u8]) -> Result<Understood, InvalidManifest> {
    let outline: Outline = serde_json::from_slice(document)?;
    if outline.schema_version != SCHEMA_VERSION {
        return Err(InvalidManifest::SchemaVersion(outline.schema_version));
    }
    let header = content_type.map(without_parameters).filter(|text| !text.is_empty());
    let media_type = match (header, outline.media_type) {
        (Some(header), Some(document)) if header != document => {
            return Err(InvalidManifest::MediaTypesDiffer { document, header: header.to_owned() });
        }
        (Some(header), _) => header.to_owned(),
        (None, Some(document)) => document,
        (None, None) => return Err(InvalidManifest::NoMediaType),
    };
    let looks_like_image = outline.config.is_some() || outline.layers.is_some();
    if looks_like_image && outline.manifests.is_some() {
        return Err(InvalidManifest::Ambiguous);
    }
    let requires = match MediaType::from(media_type.as_str()) {
        MediaType::ImageManifest => image_blobs(document)?,
        MediaType::ImageIndex => index_children(document)?,
        MediaType::Other(other) if other == DOCKER_MANIFEST => image_blobs(document)?,
        MediaType::Other(other) if other == DOCKER_MANIFEST_LIST => index_children(document)?,
        _ => return Err(InvalidManifest::UnsupportedMediaType(media_type)),
    };
    Ok(Understood { media_type, requires })
}

fn without_parameters(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn image_blobs(document: &[u8]) -> Result<Requires, InvalidManifest> {
    let manifest: ImageManifest = typed(document, "layers")?;
    let layers = manifest.layers().iter().filter(|layer| must_be_present(layer)).cloned();
    Ok(Requires::Blobs(std::iter::once(manifest.config().clone()).chain(layers).collect()))
}

fn index_children(document: &[u8]) -> Result<Requires, InvalidManifest> {
    let index: ImageIndex = typed(document, "manifests")?;
    Ok(Requires::Children(index.manifests().iter().filter(|child| must_be_present(child)).cloned().collect()))
}

/// Parses into the specification's type. Go programs write an empty list as `null`, which the type does not
/// take; only a document that failed for that reason is parsed again, with the list made empty.
fn typed<T: DeserializeOwned>(document: &[u8], list: &str) -> Result<T, InvalidManifest> {
    serde_json::from_slice(document).or_else(|refusal| {
        let mut value: serde_json::Value = serde_json::from_slice(document)?;
        match value.get_mut(list) {
            Some(entries) if entries.is_null() => *entries = serde_json::Value::Array(Vec::new()),
            _ => return Err(refusal.into()),
        }
        Ok(serde_json::from_value(value)?)
    })
}

fn must_be_present(descriptor: &Descriptor) -> bool {
    let distributable = match descriptor.media_type() {
        MediaType::ImageLayerNonDistributable
        | MediaType::ImageLayerNonDistributableGzip
        | MediaType::ImageLayerNonDistributableZstd => false,
        MediaType::Other(other) => other != DOCKER_FOREIGN_LAYER,
        _ => true,
    };
    distributable && descriptor.urls().as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Algorithm, Digest};

    const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";

    fn descriptor(media_type: &str) -> serde_json::Value {
        let digest = Digest::of(Algorithm::Sha256, media_type.as_bytes()).to_string();
        serde_json::json!({"mediaType": media_type, "digest": digest, "size": 3})
    }

    fn image() -> serde_json::Value {
        serde_json::json!({
            "schemaVersion": 2,
            "mediaType": IMAGE,
            "config": descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [
                descriptor("application/vnd.oci.image.layer.v1.tar"),
                descriptor("application/vnd.oci.image.layer.nondistributable.v1.tar"),
                descriptor(DOCKER_FOREIGN_LAYER),
            ],
            "subject": descriptor("application/vnd.example.absent"),
            "an.unknown.field": {"is": "kept"},
        })
    }

    fn required(understood: &Understood) -> usize {
        match &understood.requires {
            Requires::Blobs(list) | Requires::Children(list) => list.len(),
        }
    }

    #[test]
    fn an_image_requires_its_config_and_its_distributable_layers() {
        let understood =
            understand(Some(&format!("{IMAGE}; charset=utf-8")), image().to_string().as_bytes()).unwrap();
        assert_eq!(understood.media_type, IMAGE);
        assert!(matches!(understood.requires, Requires::Blobs(_)));
        assert_eq!(required(&understood), 2);
    }

    #[test]
    fn an_index_requires_its_children_and_may_have_none() {
        let index = serde_json::json!({"schemaVersion": 2, "manifests": [descriptor(IMAGE)]}).to_string();
        assert_eq!(required(&understand(Some(INDEX), index.as_bytes()).unwrap()), 1);
        let empty = br#"{"schemaVersion":2,"manifests":null}"#;
        assert_eq!(required(&understand(Some(DOCKER_MANIFEST_LIST), empty).unwrap()), 0);
    }

    #[test]
    fn a_manifest_without_content_type_is_taken_by_its_own_word() {
        assert_eq!(understand(None, image().to_string().as_bytes()).unwrap().media_type, IMAGE);
        let mut nameless = image();
        nameless.as_object_mut().unwrap().remove("mediaType");
        let refused = understand(None, nameless.to_string().as_bytes());
        assert!(matches!(refused, Err(InvalidManifest::NoMediaType)));
    }

    #[test]
    fn contradictions_are_refused() {
        let as_index = understand(Some(INDEX), image().to_string().as_bytes());
        assert!(matches!(as_index, Err(InvalidManifest::MediaTypesDiffer { .. })));
        let mut both = image();
        both["manifests"] = serde_json::json!([]);
        assert!(matches!(
            understand(Some(IMAGE), both.to_string().as_bytes()),
            Err(InvalidManifest::Ambiguous)
        ));
        let mut first = image();
        first["schemaVersion"] = serde_json::json!(1);
        assert!(matches!(
            understand(Some(IMAGE), first.to_string().as_bytes()),
            Err(InvalidManifest::SchemaVersion(1))
        ));
        for junk in ["", "[]", "{", "\u{0}", "{\"schemaVersion\":2}"] {
            assert!(understand(Some(IMAGE), junk.as_bytes()).is_err(), "{junk:?}");
        }
        let plain = br#"{"schemaVersion":2}"#;
        assert!(matches!(
            understand(Some("text/plain"), plain),
            Err(InvalidManifest::UnsupportedMediaType(kind)) if kind == "text/plain"
        ));
    }
}
