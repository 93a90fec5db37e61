//! Parsing of manifests: their kind, and the content they refer to.
//!
//! ```text
//! Content-Type (without parameters)  ->  image manifest   config + layers must be in the repository
//!                                        image index      manifests must be in the repository
//!                                        anything else    refused
//! ```
//!
//! The bytes are never rewritten: what is stored and served is what the client sent. A document that can be parsed both
//! as an image and as an index is refused, so that two clients cannot see different content under one digest. Layers
//! that may not be distributed, or that have URLs, may be missing. A missing `subject` is valid; a manifest with a
//! `subject` is recorded as its referrer. What a document refers to must be readable by the rules of `links`, which garbage
//! collection and deletes follow; unknown fields beside these may have any form.
//!
//! Specification: image-spec `manifest.md`, `image-index.md`; distribution-spec "Pushing manifests".

use std::collections::{BTreeMap, HashMap};

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::digest::Digest;
use crate::links::Links;

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_MANIFEST_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_FOREIGN_LAYER: &str = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
const SCHEMA_VERSION: u32 = 2;
/// The deepest nesting of brackets. Unknown fields are skipped whatever their depth, but clients that parse the whole
/// document stop at some depth, and the registry serves nothing that clients cannot parse.
const DEPTH_MAX: usize = 100;

/// A valid manifest. It may be stored once the content it requires is there.
pub(crate) struct ParsedManifest {
    /// The media type under which the manifest is stored and served.
    pub(crate) media_type: String,
    pub(crate) requires: RequiredContent,
    /// Everything the manifest lists, also what it does not require.
    pub(crate) links: Links,
    /// The subject of the manifest, if it has one with a digest that this registry supports.
    pub(crate) referral: Option<SubjectReference>,
}

/// A manifest's `subject`, and what the list of referrers shows of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubjectReference {
    pub(crate) subject: Digest,
    /// The size of the subject, as the manifest says.
    pub(crate) size: u64,
    pub(crate) artifact_type: Option<String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The content a manifest refers to and clients fetch.
pub(crate) enum RequiredContent {
    /// Blobs, fetched from the blobs endpoint.
    Blobs(Vec<Descriptor>),
    /// Other manifests; an index may also list plain blobs.
    Children(Vec<Descriptor>),
}

/// The reason why a document is not a manifest that this registry stores.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidManifest {
    #[error("the manifest has no media type: send it as Content-Type")]
    NoMediaType,
    #[error("manifests of media type {0:?} are not supported: push an OCI or Docker schema 2 image or index")]
    UnsupportedMediaType(String),
    #[error("the manifest has mediaType {document:?} but was sent as {header:?}")]
    MediaTypesDiffer { document: String, header: String },
    #[error("the manifest has schemaVersion {0}, not {SCHEMA_VERSION}")]
    SchemaVersion(u32),
    #[error("the document is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("the document can be parsed both as an image and as an index")]
    Ambiguous,
    #[error("the manifest does not match its media type: {0}")]
    Document(#[from] serde_json::Error),
    #[error(
        "config, layers, blobs, manifests and subject are descriptors or lists of descriptors, each at most once: {0}"
    )]
    References(serde_json::Error),
}

/// The fields that distinguish the kinds of documents; the typed parse checks the rest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestOutline {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    manifests: Option<IgnoredAny>,
}

/// Parses `document`, sent with `content_type`.
pub(crate) fn parse_manifest(
    content_type: Option<&str>,
    document: &[u8],
) -> Result<ParsedManifest, InvalidManifest> {
    if depth(document) > DEPTH_MAX {
        return Err(InvalidManifest::TooDeep);
    }
    let outline: ManifestOutline = serde_json::from_slice(document)?;
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
    let (requires, referral) = match MediaType::from(media_type.as_str()) {
        MediaType::ImageManifest => image(document)?,
        MediaType::ImageIndex => index(document)?,
        MediaType::Other(other) if other == DOCKER_MANIFEST => image(document)?,
        MediaType::Other(other) if other == DOCKER_MANIFEST_LIST => index(document)?,
        _ => return Err(InvalidManifest::UnsupportedMediaType(media_type)),
    };
    let links = Links::read(document).map_err(InvalidManifest::References)?;
    Ok(ParsedManifest { media_type, requires, links, referral })
}

/// Whether content of this media type is a manifest; any other content is a blob.
pub(crate) fn is_manifest(media_type: &str) -> bool {
    match MediaType::from(media_type) {
        MediaType::ImageManifest | MediaType::ImageIndex => true,
        MediaType::Other(other) => other == DOCKER_MANIFEST || other == DOCKER_MANIFEST_LIST,
        _ => false,
    }
}

/// The depth of the brackets of a document, if it is JSON.
fn depth(document: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut bytes = document.iter();
    let mut quoted = false;
    while let Some(byte) = bytes.next() {
        match (quoted, byte) {
            (_, b'"') => quoted = !quoted,
            (true, b'\\') => drop(bytes.next()),
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn without_parameters(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn image(document: &[u8]) -> Result<(RequiredContent, Option<SubjectReference>), InvalidManifest> {
    let manifest: ImageManifest = typed(document, "layers")?;
    let config = manifest.config();
    let layers = manifest.layers().iter().filter(|layer| must_be_present(layer)).cloned();
    let blobs = std::iter::once(config.clone()).chain(layers).collect();
    // An image without artifactType, or with an empty one, has the type of its configuration.
    let own = manifest.artifact_type().as_ref().filter(|kind| !kind.as_ref().is_empty());
    let kind = own.unwrap_or(config.media_type());
    Ok((
        RequiredContent::Blobs(blobs),
        referral(manifest.subject().as_ref(), Some(kind), manifest.annotations().as_ref()),
    ))
}

fn index(document: &[u8]) -> Result<(RequiredContent, Option<SubjectReference>), InvalidManifest> {
    let index: ImageIndex = typed(document, "manifests")?;
    let children = index.manifests().iter().filter(|child| must_be_present(child)).cloned().collect();
    let kind = index.artifact_type().as_ref();
    Ok((
        RequiredContent::Children(children),
        referral(index.subject().as_ref(), kind, index.annotations().as_ref()),
    ))
}

/// A subject with an unsupported algorithm has no referrers here: the response has no `OCI-PolicySubject`, and the client
/// maintains the list itself.
fn referral(
    subject: Option<&Descriptor>,
    kind: Option<&MediaType>,
    annotations: Option<&HashMap<String, String>>,
) -> Option<SubjectReference> {
    let subject = subject?;
    Some(SubjectReference {
        subject: Digest::try_from(subject.digest()).ok()?,
        size: subject.size(),
        artifact_type: kind.map(ToString::to_string).filter(|kind| !kind.is_empty()),
        annotations: annotations
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    })
}

/// Parses into the specification's type. Go programs write an empty list as `null`, which the type does not accept;
/// only a document that fails for that reason is parsed again, with an empty list.
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

    fn required(parsed: &ParsedManifest) -> usize {
        match &parsed.requires {
            RequiredContent::Blobs(list) | RequiredContent::Children(list) => list.len(),
        }
    }

    #[test]
    fn an_image_requires_its_config_and_its_distributable_layers() {
        let parsed =
            parse_manifest(Some(&format!("{IMAGE}; charset=utf-8")), image().to_string().as_bytes()).unwrap();
        assert_eq!(parsed.media_type, IMAGE);
        assert!(matches!(parsed.requires, RequiredContent::Blobs(_)));
        assert_eq!(required(&parsed), 2);
    }

    #[test]
    fn an_index_requires_its_children_and_may_have_none() {
        let index = serde_json::json!({"schemaVersion": 2, "manifests": [descriptor(IMAGE)]}).to_string();
        assert_eq!(required(&parse_manifest(Some(INDEX), index.as_bytes()).unwrap()), 1);
        let empty = br#"{"schemaVersion":2,"manifests":null}"#;
        assert_eq!(required(&parse_manifest(Some(DOCKER_MANIFEST_LIST), empty).unwrap()), 0);
    }

    #[test]
    fn depth_is_counted_outside_of_strings() {
        for (text, expected) in
            [("", 0), ("[]", 1), (r#"{"a":[{}],"b":{}}"#, 3), (r#"["[[[\"[[", "\\", []]"#, 2), ("]]]][", 1)]
        {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
        let nested = |levels: usize| {
            let text = image().to_string();
            format!("{},\"x\":{}{}}}", &text[..text.len() - 1], "[".repeat(levels), "]".repeat(levels))
        };
        assert!(parse_manifest(Some(IMAGE), nested(99).as_bytes()).is_ok());
        assert!(matches!(parse_manifest(Some(IMAGE), nested(100).as_bytes()), Err(InvalidManifest::TooDeep)));
    }

    #[test]
    fn a_subject_makes_a_referrer_with_the_type_of_its_manifest() {
        let subject = Digest::of(Algorithm::Sha256, b"application/vnd.example.absent");
        let referral = |document: &serde_json::Value, kind| {
            parse_manifest(Some(kind), document.to_string().as_bytes()).unwrap().referral
        };
        let by_config = referral(&image(), IMAGE).unwrap();
        assert_eq!(by_config.subject, subject);
        assert_eq!(by_config.artifact_type.as_deref(), Some("application/vnd.oci.image.config.v1+json"));
        let mut artifact = image();
        artifact["artifactType"] = serde_json::json!("application/vnd.example.sbom");
        artifact["annotations"] = serde_json::json!({"b": "2", "a": "1"});
        let by_itself = referral(&artifact, IMAGE).unwrap();
        assert_eq!(by_itself.artifact_type.as_deref(), Some("application/vnd.example.sbom"));
        assert_eq!(by_itself.annotations.len(), 2);
        artifact["artifactType"] = serde_json::json!("");
        assert_eq!(referral(&artifact, IMAGE).unwrap().artifact_type, by_config.artifact_type);

        let mut index =
            serde_json::json!({"schemaVersion": 2, "manifests": [], "subject": image()["subject"]});
        assert_eq!(referral(&index, INDEX).unwrap().artifact_type, None);
        index["subject"]["digest"] = serde_json::json!(format!("blake3:{}", "0".repeat(64)));
        assert_eq!(referral(&index, INDEX), None, "not addressable here");
        index.as_object_mut().unwrap().remove("subject");
        assert_eq!(referral(&index, INDEX), None);
    }

    #[test]
    fn a_field_that_lists_content_in_another_form_or_twice_is_refused() {
        let image = image().to_string();
        let with = |fields: &str| format!("{},{fields}}}", &image[..image.len() - 1]);
        let config = descriptor("application/vnd.oci.image.config.v1+json");
        let subject = &image[image.find("\"subject\"").unwrap()..image.len() - 1];
        let digest = config["digest"].as_str().unwrap();
        let twice = format!(r#"{{"mediaType":"a/b","digest":"{digest}","digest":"{digest}","size":3}}"#);
        for (kind, document) in [
            (IMAGE, with(r#""blobs":5"#)),
            (IMAGE, with(r#""blobs":"text""#)),
            (IMAGE, with(r#""blobs":[{"x":1}]"#)),
            (IMAGE, with(r#""blobs":[null]"#)),
            (IMAGE, with(&format!(r#""blobs":[{config}],"blobs":[]"#))),
            (IMAGE, with(r#""manifests":null,"blobs":[],"blobs":[]"#)),
            // A list that is null is read by the second, more tolerant parse.
            (IMAGE, format!(r#"{{"schemaVersion":2,"layers":null,"config":{config},{subject},{subject}}}"#)),
            (IMAGE, format!(r#"{{"schemaVersion":2,"layers":null,"config":{twice}}}"#)),
            (INDEX, r#"{"schemaVersion":2,"manifests":null,"config":5}"#.to_owned()),
            (INDEX, r#"{"schemaVersion":2,"manifests":null,"layers":[1]}"#.to_owned()),
            (INDEX, r#"{"schemaVersion":2,"manifests":[],"blobs":{"a":1}}"#.to_owned()),
        ] {
            let parsed = parse_manifest(Some(kind), document.as_bytes());
            assert!(matches!(parsed, Err(InvalidManifest::References(_))), "{document}");
        }
        for harmless in [r#""blobs":null"#, r#""blobs":[]"#, &format!(r#""blobs":[{config}]"#)] {
            assert!(parse_manifest(Some(IMAGE), with(harmless).as_bytes()).is_ok(), "{harmless}");
        }
    }

    #[test]
    fn a_manifest_without_content_type_has_its_media_type_field() {
        assert_eq!(parse_manifest(None, image().to_string().as_bytes()).unwrap().media_type, IMAGE);
        let mut nameless = image();
        nameless.as_object_mut().unwrap().remove("mediaType");
        let refused = parse_manifest(None, nameless.to_string().as_bytes());
        assert!(matches!(refused, Err(InvalidManifest::NoMediaType)));
    }

    #[test]
    fn contradictions_are_refused() {
        let as_index = parse_manifest(Some(INDEX), image().to_string().as_bytes());
        assert!(matches!(as_index, Err(InvalidManifest::MediaTypesDiffer { .. })));
        let mut both = image();
        both["manifests"] = serde_json::json!([]);
        assert!(matches!(
            parse_manifest(Some(IMAGE), both.to_string().as_bytes()),
            Err(InvalidManifest::Ambiguous)
        ));
        let mut first = image();
        first["schemaVersion"] = serde_json::json!(1);
        assert!(matches!(
            parse_manifest(Some(IMAGE), first.to_string().as_bytes()),
            Err(InvalidManifest::SchemaVersion(1))
        ));
        for junk in ["", "[]", "{", "\u{0}", "{\"schemaVersion\":2}"] {
            assert!(parse_manifest(Some(IMAGE), junk.as_bytes()).is_err(), "{junk:?}");
        }
        let plain = br#"{"schemaVersion":2}"#;
        assert!(matches!(
            parse_manifest(Some("text/plain"), plain),
            Err(InvalidManifest::UnsupportedMediaType(kind)) if kind == "text/plain"
        ));
    }
}
