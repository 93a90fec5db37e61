//! The JSON of firmware files and sets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::super::openapi::types;
use crate::firmware_files::{StoredFirmware, UnusableFirmware};
use firmware::{Component, Entry, FirmwareFile, FirmwareSet, Model, Restart};
use model::Time;
use store::StoredFirmwareSet;

/// A firmware file.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Firmware")]
pub(crate) struct FirmwareView {
    /// The digest of the artifact's manifest, which names the file in sets.
    digest: String,
    /// The repository of the registry.
    repository: String,
    vendor: String,
    /// The models that the file is for.
    models: Vec<String>,
    #[schemars(with = "types::FirmwareComponent")]
    component: Component,
    version: String,
    filename: String,
    /// The digest of the bytes.
    sha256: String,
    /// The length in bytes.
    size: u64,
    /// Whether the host must restart before the file is in use.
    #[schemars(with = "types::FirmwareRestart")]
    restart: Restart,
}

impl FirmwareView {
    fn new(repository: &str, digest: &str, file: &FirmwareFile) -> Self {
        Self {
            digest: digest.to_owned(),
            repository: repository.to_owned(),
            vendor: file.vendor.to_string(),
            models: file.models().iter().map(Model::to_string).collect(),
            component: file.component,
            version: file.version().to_string(),
            filename: file.filename.to_string(),
            sha256: file.sha256.hex(),
            size: file.size,
            restart: file.restart,
        }
    }

    pub(super) fn of(stored: &StoredFirmware) -> Self {
        Self::new(stored.repository.as_str(), &stored.digest.to_string(), &stored.file)
    }

    fn of_entry(entry: &Entry) -> Self {
        Self::new(&entry.repository, &entry.digest, &entry.file)
    }
}

/// A firmware file with what holds it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FirmwareDetail")]
pub(crate) struct FirmwareDetailView {
    #[serde(flatten)]
    pub(super) firmware: FirmwareView,
    /// The tags of the artifact.
    pub(super) tags: Vec<String>,
    /// The sets that hold the file.
    pub(super) sets: Vec<String>,
}

/// An artifact below `firmware/` that cannot be used.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UnusableFirmware")]
pub(crate) struct UnusableView {
    digest: String,
    repository: String,
    /// Why it cannot be used.
    reason: String,
}

impl UnusableView {
    pub(super) fn of(unusable: UnusableFirmware) -> Self {
        Self {
            digest: unusable.digest.to_string(),
            repository: unusable.repository.to_string(),
            reason: unusable.reason,
        }
    }
}

/// The firmware files.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FirmwarePage")]
pub(crate) struct FirmwarePage {
    pub(super) firmware: Vec<FirmwareView>,
    /// Artifacts that say that they are firmware and cannot be used.
    pub(super) unusable: Vec<UnusableView>,
    /// Always null: all files are listed.
    pub(super) next: Option<String>,
}

/// A firmware set.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FirmwareSet")]
pub(crate) struct FirmwareSetView {
    name: String,
    /// The id, which differs from that of a former set with the name.
    id: String,
    labels: BTreeMap<String, String>,
    /// The user who created the set.
    created_by: String,
    #[schemars(with = "types::Timestamp")]
    created_at: Time,
    /// The files, in the order of installation.
    files: Vec<FirmwareView>,
}

impl FirmwareSetView {
    pub(super) fn of(stored: &StoredFirmwareSet, set: &FirmwareSet) -> Self {
        Self {
            name: stored.name.clone(),
            id: stored.id.clone(),
            labels: stored.labels.clone(),
            created_by: stored.created_by.clone(),
            created_at: stored.created_at,
            files: set.entries().iter().map(FirmwareView::of_entry).collect(),
        }
    }
}

/// The firmware sets.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FirmwareSetPage")]
pub(crate) struct FirmwareSetPage {
    pub(super) sets: Vec<FirmwareSetView>,
    /// Always null: all sets are listed.
    pub(super) next: Option<String>,
}
