//! The image of a disk as an OCI artifact.
//!
//! ```text
//!   {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
//!    "artifactType": "application/vnd.shoal.disk.v1",
//!    "config": {the empty object},
//!    "layers": [{"mediaType": "application/vnd.shoal.disk.raw.v1+zstd", "digest": "sha256:…", "size": N,
//!                "annotations": {"org.opencontainers.image.title": "appliance.raw.zst"}}],
//!    "annotations": {"io.shoal.disk.bytes": "…", "io.shoal.disk.sha256": "…", "io.shoal.disk.sector": "512"}}
//! ```
//!
//! The agent needs one layer and nothing else: it recognises the packing by the first bytes, so `oras push` of one file with any media
//! type makes an artifact that it installs too. The annotations are for people and for other programs.
//!
//! Invariant: equal content gives equal manifests.
//!
//! Specification: OCI image-spec `manifest.md`, "Guidelines for Artifact Usage"; `annotations.md`.

use serde_json::json;

use crate::form::Form;

/// The artifact type of the image of a disk.
pub const ARTIFACT_TYPE: &str = "application/vnd.shoal.disk.v1";
/// The media type of the manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The content of the configuration of an artifact.
pub const EMPTY_CONFIG: &[u8] = b"{}";
/// The digest of [`EMPTY_CONFIG`].
pub const EMPTY_DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// The image of a disk, whose blob is in a registry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Artifact {
    /// The name of the file, without its form.
    pub name: String,
    /// How the blob is packed.
    pub packing: Form,
    /// The digest of the blob: `sha256:` and hex.
    pub blob: String,
    /// The bytes of the blob.
    pub blob_bytes: u64,
    /// The SHA-256 of the content of the disk, in hex.
    pub disk_sha256: String,
    /// The bytes of the disk.
    pub disk_bytes: u64,
    /// The size of its sectors, if its table tells it.
    pub sector: Option<u64>,
}

impl Artifact {
    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> Vec<u8> {
        let (suffix, ending) = match self.packing {
            Form::Raw | Form::Qcow2 => ("", ""),
            Form::Gzip => ("+gzip", ".gz"),
            Form::Zstd => ("+zstd", ".zst"),
        };
        let mut document = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": { "mediaType": EMPTY_TYPE, "digest": EMPTY_DIGEST, "size": EMPTY_CONFIG.len() },
            "layers": [{
                "mediaType": format!("application/vnd.shoal.disk.raw.v1{suffix}"),
                "digest": self.blob,
                "size": self.blob_bytes,
                "annotations": { "org.opencontainers.image.title": format!("{}.raw{ending}", self.name) },
            }],
            "annotations": {
                "io.shoal.disk.bytes": self.disk_bytes.to_string(),
                "io.shoal.disk.sha256": self.disk_sha256,
            },
        });
        if let Some(sector) = self.sector {
            document["annotations"]["io.shoal.disk.sector"] = json!(sector.to_string());
        }
        document.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::test_kit::golden;

    #[test]
    fn the_manifest_is_the_golden_one() {
        let artifact = Artifact {
            name: "appliance".to_owned(),
            packing: Form::Zstd,
            blob: format!("sha256:{}", "a".repeat(64)),
            blob_bytes: 41,
            disk_sha256: "b".repeat(64),
            disk_bytes: 1 << 30,
            sector: Some(512),
        };
        let document: serde_json::Value = serde_json::from_slice(&artifact.manifest()).unwrap();
        golden("disk-artifact.json", &format!("{document:#}\n"));
    }

    #[test]
    fn the_digest_of_the_empty_configuration_is_its_digest() {
        assert_eq!(EMPTY_DIGEST, format!("sha256:{}", hex::encode(Sha256::digest(EMPTY_CONFIG))));
    }
}
