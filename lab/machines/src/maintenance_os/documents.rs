//! The documents of a task image as an installer reads them. The types are separate from those of the controller on
//! purpose: with a shared struct, a misspelt key would go unnoticed.

use jiff::Timestamp;
use serde::Deserialize;

use recipe::{FsFormat, Partition, PartitionSize, PartitionType};

/// The content of `job.json`. It holds secrets, so it has no `Debug`.
#[derive(Clone, Deserialize)]
pub(super) struct JobDocument {
    pub(super) job_id: String,
    pub(super) server_serial: String,
    #[serde(default)]
    pub(super) controller_ca: Option<String>,
    pub(super) webhook_url: String,
    pub(super) webhook_token: String,
    #[serde(default)]
    pub(super) registry: Option<PullAccess>,
    pub(super) recipe_schema_id: String,
    pub(super) created_at: Timestamp,
    #[serde(default)]
    pub(super) disk_before: Option<FormerDisk>,
}

/// The identity of the disk that the attempt before a retry wrote.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct FormerDisk {
    #[serde(default)]
    pub(super) serial: Option<String>,
    #[serde(default)]
    pub(super) wwn: Option<String>,
}

/// URL and credentials for pulling the OS image.
#[derive(Clone, Deserialize)]
pub(super) struct PullAccess {
    pub(super) url: String,
    #[serde(default)]
    pub(super) username: Option<String>,
    #[serde(default)]
    pub(super) password: Option<String>,
}

/// The files of the task volume.
#[derive(Clone)]
pub(super) struct TaskFiles {
    pub(super) job: JobDocument,
    pub(super) recipe: Vec<u8>,
    pub(super) schema: Vec<u8>,
    /// The files for cloud-init that exist: `user-data`, `meta-data`, `network-config`, `vendor-data`.
    pub(super) cloud_init: Vec<(&'static str, Vec<u8>)>,
}

/// The fields of a validated recipe that an installer uses.
#[derive(Debug, Deserialize)]
pub(super) struct RecipeDocument {
    pub(super) task_target: String,
    pub(super) target_disk: Option<String>,
    pub(super) disk_hints: Option<serde_json::Value>,
    pub(super) oci_url: Option<String>,
    #[serde(default)]
    pub(super) partition_layout: Vec<PartitionDocument>,
    #[serde(default)]
    pub(super) more_disks: Vec<MoreDiskDocument>,
    #[serde(default)]
    pub(super) arrays: Vec<serde_json::Value>,
    #[serde(default)]
    pub(super) volume_groups: Vec<serde_json::Value>,
    #[serde(default)]
    pub(super) ssh_authorized_keys: Vec<String>,
}

/// One item of `more_disks`.
#[derive(Debug, Deserialize)]
pub(super) struct MoreDiskDocument {
    pub(super) target_disk: Option<String>,
    pub(super) disk_hints: Option<serde_json::Value>,
    #[serde(default)]
    pub(super) partition_layout: Vec<PartitionDocument>,
}

/// One item of `partition_layout`.
#[derive(Debug, Deserialize)]
pub(super) struct PartitionDocument {
    size: String,
    type_guid: String,
    format: Option<String>,
    label: Option<String>,
}

impl PartitionDocument {
    /// Parses the fields of the item.
    pub(super) fn parse(&self) -> Result<Partition, String> {
        let format = match self.format.as_deref() {
            None => FsFormat::Raw,
            Some(name) => FsFormat::parse(name).ok_or_else(|| format!("format {name:?} is not known"))?,
        };
        let size =
            PartitionSize::parse(&self.size).map_err(|source| format!("size {:?} {source}", self.size))?;
        let type_guid = PartitionType::parse(&self.type_guid)
            .map_err(|source| format!("type_guid {:?} {source}", self.type_guid))?;
        Ok(Partition { label: self.label.clone(), ..Partition::new(size, type_guid, format) })
    }
}

/// Returns whether a recipe says `delivery: media`.
pub(super) fn is_by_media(recipe: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Recipe {
        delivery: Option<String>,
    }
    serde_json::from_slice::<Recipe>(recipe).is_ok_and(|recipe| recipe.delivery.as_deref() == Some("media"))
}
