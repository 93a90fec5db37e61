//! A firmware file as an OCI artifact: the manifest that the program writes, and that `oras push` writes too.
//!
//! ```text
//!   {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
//!    "artifactType": "application/vnd.shoal.firmware.v1",
//!    "config": {the empty object},
//!    "layers": [{"mediaType": "application/octet-stream", "digest": "sha256:…", "size": N,
//!                "annotations": {"org.opencontainers.image.title": "BIOS_2.19.1.EXE"}}],
//!    "annotations": {"io.shoal.firmware.vendor": "…", "io.shoal.firmware.model": "Model A;Model B",
//!                    "io.shoal.firmware.component": "bios", "org.opencontainers.image.version": "2.19.1",
//!                    "io.shoal.firmware.restart": "host"}}
//! ```
//!
//! `restart` may be absent; it is that of the component then. The repository is any below `firmware/`, the tag any.
//!
//! Invariant: equal files give equal manifests, so adding a file again changes nothing.
//!
//! Specification: OCI image-spec `manifest.md`, "Guidelines for Artifact Usage"; `annotations.md`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::json;

use crate::file::{FileName, FirmwareFile, Restart, Sha256Digest};
use crate::identity::{Component, InvalidIdentity, Model, Vendor};

/// The artifact type of a firmware file.
pub const ARTIFACT_TYPE: &str = "application/vnd.shoal.firmware.v1";
/// The media type of the manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of the file in a manifest that the program writes.
pub const FILE_TYPE: &str = "application/octet-stream";
/// The content of the configuration of an artifact.
pub const EMPTY_CONFIG: &[u8] = b"{}";
/// The beginning of the names of all repositories with firmware.
pub const REPOSITORIES: &str = "firmware/";

const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
const EMPTY_DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
const VENDOR: &str = "io.shoal.firmware.vendor";
const MODEL: &str = "io.shoal.firmware.model";
const COMPONENT: &str = "io.shoal.firmware.component";
const RESTART: &str = "io.shoal.firmware.restart";
const VERSION: &str = "org.opencontainers.image.version";
const TITLE: &str = "org.opencontainers.image.title";
const SEPARATOR: char = ';';
/// The most characters of the version in a tag.
const TAG_VERSION: usize = 64;

/// Why a firmware artifact cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ArtifactError {
    /// The document is no manifest.
    #[error("the manifest cannot be read ({0}); push it again")]
    Document(String),
    /// An annotation is missing.
    #[error("the annotation {0} is missing; push the artifact again with `--annotation {0}=…`")]
    Missing(&'static str),
    /// The artifact has no file or several.
    #[error("the artifact has {0} files; a firmware artifact has exactly one")]
    Files(usize),
    /// A value is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidIdentity),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    artifact_type: Option<String>,
    #[serde(default)]
    layers: Vec<Layer>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Layer {
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The repository of a file that the program adds.
pub fn repository(vendor: &Vendor, component: Component) -> String {
    format!("{REPOSITORIES}{vendor}/{component}")
}

/// The tag of a file that the program adds: its version and the beginning of the digest of its manifest.
pub fn tag(file: &FirmwareFile, manifest_hex: &str) -> String {
    let sign = |sign: char| if sign.is_ascii_alphanumeric() || ".-_".contains(sign) { sign } else { '-' };
    let version: String = file.version().as_str().chars().map(sign).take(TAG_VERSION).collect();
    let begin: String = manifest_hex.chars().take(12).collect();
    format!("v{version}-{begin}")
}

/// The manifest of a file.
pub fn manifest(file: &FirmwareFile) -> Vec<u8> {
    let models: Vec<&str> = file.models().iter().map(Model::as_str).collect();
    let document = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": { "mediaType": EMPTY_TYPE, "digest": EMPTY_DIGEST, "size": EMPTY_CONFIG.len() },
        "layers": [{
            "mediaType": FILE_TYPE,
            "digest": file.sha256.to_string(),
            "size": file.size,
            "annotations": { TITLE: file.filename.as_str() },
        }],
        "annotations": {
            VENDOR: file.vendor.as_str(),
            MODEL: models.join(&SEPARATOR.to_string()),
            COMPONENT: file.component.as_str(),
            VERSION: file.version().as_str(),
            RESTART: file.restart.as_str(),
        },
    });
    document.to_string().into_bytes()
}

/// Reads a manifest; `None` when it is no firmware artifact.
///
/// # Errors
/// When the artifact says that it is firmware and what it is for is missing or invalid.
pub fn read_manifest(bytes: &[u8]) -> Result<Option<FirmwareFile>, ArtifactError> {
    let document: Document =
        serde_json::from_slice(bytes).map_err(|why| ArtifactError::Document(why.to_string()))?;
    if document.artifact_type.as_deref() != Some(ARTIFACT_TYPE) {
        return Ok(None);
    }
    let [layer] = document.layers.as_slice() else { return Err(ArtifactError::Files(document.layers.len())) };
    let wanted = |name: &'static str| {
        document.annotations.get(name).map(String::as_str).ok_or(ArtifactError::Missing(name))
    };
    let vendor: Vendor = wanted(VENDOR)?.parse()?;
    let models: BTreeSet<Model> =
        wanted(MODEL)?.split(SEPARATOR).map(str::parse).collect::<Result<_, InvalidIdentity>>()?;
    let component: Component = wanted(COMPONENT)?.parse()?;
    let title = layer.annotations.get(TITLE).ok_or(ArtifactError::Missing(TITLE))?;
    // `oras push ./folder/file` names the folder too.
    let filename: FileName = title.rsplit('/').next().unwrap_or_default().parse()?;
    let sha256: Sha256Digest = layer.digest.parse()?;
    let mut file =
        FirmwareFile::new((vendor, models, component), wanted(VERSION)?, (filename, sha256, layer.size))?;
    if let Some(restart) = document.annotations.get(RESTART) {
        file.restart = restart.parse::<Restart>()?;
    }
    Ok(Some(file))
}
