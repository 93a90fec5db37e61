//! The manifest of a backup.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::names::DATA;

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const ARTIFACT: &str = "application/vnd.shoal.backup.v1";
pub(super) const CONFIG: &str = "application/vnd.shoal.backup.config.v1+json";
/// A tar of small files.
pub(super) const FILES: &str = "application/vnd.shoal.backup.files.v1.tar";
/// One file.
pub(super) const FILE: &str = "application/vnd.shoal.backup.file.v1";
/// The largest manifest that is read.
pub(super) const MAX_MANIFEST: u64 = 4 << 20;

/// The description of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<Annotations>,
}

/// The annotations that a backup uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Annotations {
    /// The path of a file in the backup.
    #[serde(rename = "org.opencontainers.image.title", default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(rename = "org.opencontainers.image.created", default, skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<String>,
}

/// The manifest of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BackupManifest {
    schema_version: u8,
    media_type: String,
    artifact_type: String,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
    annotations: Annotations,
}

impl BackupManifest {
    pub(super) fn new(config: Descriptor, layers: Vec<Descriptor>, created: String) -> Self {
        Self {
            schema_version: 2,
            media_type: MANIFEST.to_owned(),
            artifact_type: ARTIFACT.to_owned(),
            config,
            layers,
            annotations: Annotations { title: None, created: Some(created) },
        }
    }

    /// Parses a manifest of a backup.
    ///
    /// # Errors
    /// What is wrong, when it is none or its blobs have no digest of a known kind.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("no manifest of a backup: {error}"))?;
        if manifest.artifact_type != ARTIFACT || manifest.config.media_type != CONFIG {
            return Err("a manifest of something else than a backup".to_owned());
        }
        let all_known =
            manifest.layers.iter().chain([&manifest.config]).all(|blob| hex_of(&blob.digest).is_some());
        if all_known { Ok(manifest) } else { Err("a manifest with a digest that is not sha256".to_owned()) }
    }
}

/// The hex digits of a SHA-256 digest.
pub(super) fn hex_of(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:")?;
    let plain =
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    plain.then_some(hex)
}

/// The digest of bytes in memory.
pub(super) fn digest_of_bytes(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Whether a path of a layer or of a tar stays below the data of a backup.
pub(super) fn is_data(path: &Path) -> bool {
    path.starts_with(DATA)
        && path.components().count() > 1
        && path.components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_backup_stays_in_its_data() {
        assert!(is_data(Path::new("data/oci/blobs/sha256/aa")));
        for path in ["", "data", "/data/x", "data/../x", "other/x", "../data/x"] {
            assert!(!is_data(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn another_artifact_is_no_backup() {
        let blob = |kind: &str| Descriptor {
            media_type: kind.to_owned(),
            digest: digest_of_bytes(b""),
            size: 0,
            annotations: None,
        };
        let good = BackupManifest::new(blob(CONFIG), vec![blob(FILES)], "2026-01-01T00:00:00Z".to_owned());
        let bytes = serde_json::to_vec(&good).unwrap();
        assert_eq!(BackupManifest::parse(&bytes).unwrap(), good);
        let text = String::from_utf8(bytes).unwrap();
        for bad in [
            text.replace(ARTIFACT, "application/vnd.example"),
            text.replace("sha256:", "sha512:"),
            text.replace(&digest_of_bytes(b""), "sha256:../../etc/passwd"),
            "{}".to_owned(),
            String::new(),
        ] {
            BackupManifest::parse(bad.as_bytes()).unwrap_err();
        }
    }
}
