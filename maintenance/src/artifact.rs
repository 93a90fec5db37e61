//! A boot image as an OCI artifact.
//!
//! ```text
//!   {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
//!    "artifactType": "application/vnd.shoal.boot-image.v1",
//!    "config": {the empty object},
//!    "layers": [{"mediaType": "application/vnd.shoal.boot-image.iso.v1", "digest": "sha256:…", "size": N,
//!                "annotations": {"org.opencontainers.image.title": "maintenance.iso"}}],
//!    "annotations": {"io.shoal.boot-image.kernel": "6.1.0-56-amd64", "io.shoal.boot-image.profile": "full"}}
//! ```
//!
//! The controller needs one layer and nothing else, so `oras push` of an image of another maker is one too. The annotations are there
//! for images of this builder.
//!
//! Invariant: equal images give equal manifests.
//!
//! Specification: OCI image-spec `manifest.md`, "Guidelines for Artifact Usage".

use serde_json::json;

use crate::record::Record;

/// The artifact type of a boot image.
pub const ARTIFACT_TYPE: &str = "application/vnd.shoal.boot-image.v1";
/// The media type of the manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The content of the configuration of an artifact.
pub const EMPTY_CONFIG: &[u8] = b"{}";
/// The digest of [`EMPTY_CONFIG`].
pub const EMPTY_DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

/// The manifest of an image with its SHA-256 in hex, its length, and its record if this builder made it.
#[must_use]
pub fn manifest(sha256: &str, bytes: u64, record: Option<&Record>) -> Vec<u8> {
    let mut document = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json", "digest": EMPTY_DIGEST, "size": EMPTY_CONFIG.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.shoal.boot-image.iso.v1",
            "digest": format!("sha256:{sha256}"),
            "size": bytes,
            "annotations": { "org.opencontainers.image.title": "maintenance.iso" },
        }],
    });
    if let Some(record) = record {
        document["annotations"] = json!({
            "io.shoal.boot-image.kernel": record.kernel,
            "io.shoal.boot-image.profile": record.profile,
        });
    }
    document.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn an_image_of_another_maker_has_a_manifest_without_annotations() {
        let read = |bytes: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        let document = read(manifest(&"a".repeat(64), 7, None));
        assert_eq!(document["layers"][0]["digest"], format!("sha256:{}", "a".repeat(64)));
        assert_eq!(document["layers"][0]["size"], 7);
        assert!(document.get("annotations").is_none());
    }

    #[test]
    fn the_digest_of_the_empty_configuration_is_its_digest() {
        assert_eq!(EMPTY_DIGEST, format!("sha256:{}", hex::encode(Sha256::digest(EMPTY_CONFIG))));
    }
}
