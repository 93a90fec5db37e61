//! The recipe: the document that says what to install on a server (schemas/recipe-v2.schema.json, and version 1 beside it).
//!
//! ```text
//!  text ── parse ──► Value ── schema (by $id) ──► Value ── read ──► Recipe ── rules ──► accepted
//!           │                    │                          │                  │           │
//!           │ json, utf8,        │ pattern, required,       │ base64,          │ rest_     └─► lints()
//!           │ duplicate_key,     │ enum, maxLength,         │ maxBytes,        │ twice,
//!           │ too_large, …       │ additionalProperties, …  │ size_range       │ …
//!           ▼                    ▼                          ▼                  ▼
//!           └──────────────── Vec<FieldError>, at most 50, never with a payload in it
//! ```
//!
//! A recipe is validated once, when it is accepted. Later steps of a job read the accepted text with [`Recipe::accepted`],
//! which applies neither schema nor rules, so a newer controller continues the jobs of an older one.
//!
//! Invariants:
//! - [`Recipe::raw`] is the submitted text, byte for byte. The task image holds this text; the typed fields are parsed
//!   from it.
//! - The crate does no I/O, never waits and never panics, whatever the text. Size, depth, number of values and number
//!   of errors are bounded before they cost memory.
//! - Payloads (user data, answer files, kickstarts) may hold secrets: no error, lint, summary or `Debug` shows more
//!   of them than their size.
//!
//! Limits count UTF-8 bytes of the JSON string's value. The schema can only count characters (`maxLength`), so it accepts
//! a superset of what [`RecipeSchemas::validate`] accepts.

mod error;
mod explain;
#[doc(hidden)]
pub mod fuzz;
mod image_reference;
mod lint;
pub mod network;
mod options;
mod parse;
pub mod partition;
mod read;
mod repair;
mod rules;
mod schemas;
pub mod storage;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use serde::Serialize;
use serde_json::json;

pub use error::{FieldError, MAX_ERRORS, child as pointer_to_member, unescaped as member_of_segment};
pub use image_reference::{ImageReference, ImageReferenceError, Selector, is_sha256};
pub use lint::Lint;
pub use network::Network;
pub use options::{After, Delivery, DiskHints, EraseMode};
pub use parse::{MAX_DEPTH, MAX_RECIPE_BYTES, MAX_VALUES, parse as parse_recipe};
pub use partition::{FsFormat, Partition, PartitionSize, PartitionType};
pub use repair::Repair;
pub use schemas::{RecipeSchemas, SchemaError};
pub use storage::Storage;

/// The minutes of a session of `rescue.target` without `session_minutes`.
const SESSION_MINUTES: u32 = 240;
/// The time for a secure erase: 20 TB at 150 MB/s take 37 hours, and disks may be erased one after the other.
const SECURE_ERASE_TIME: Duration = Duration::from_secs(72 * 3600);

/// The systemd target the maintenance OS starts, which decides what a recipe needs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumString, strum::Display,
)]
pub enum TaskTarget {
    /// `install-linux.target`
    #[strum(serialize = "install-linux.target")]
    InstallLinux,
    /// `install-image.target`
    #[strum(serialize = "install-image.target")]
    InstallImage,
    /// `install-windows.target`
    #[strum(serialize = "install-windows.target")]
    InstallWindows,
    /// `install-esxi.target`
    #[strum(serialize = "install-esxi.target")]
    InstallEsxi,
    /// `supermicro-update.target`
    #[strum(serialize = "supermicro-update.target")]
    SupermicroUpdate,
    /// `erase.target`
    #[strum(serialize = "erase.target")]
    Erase,
    /// `inventory.target`
    #[strum(serialize = "inventory.target")]
    Inventory,
    /// `rescue.target`
    #[strum(serialize = "rescue.target")]
    Rescue,
}

impl TaskTarget {
    /// Returns the name of the systemd unit, as recipes write it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the target with this name, if known.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns whether the target writes a disk of the machine.
    #[must_use]
    pub fn writes_a_disk(self) -> bool {
        match self {
            Self::InstallLinux | Self::InstallImage | Self::InstallWindows | Self::Erase => true,
            // The installer of ESXi chooses its disk by the kickstart.
            Self::InstallEsxi | Self::SupermicroUpdate | Self::Inventory | Self::Rescue => false,
        }
    }
}

impl Serialize for TaskTarget {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A volume label that installers search for. Without one, the task image has the label of its job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumString, strum::VariantArray,
)]
#[strum(serialize_all = "UPPERCASE")]
pub enum MediaLabel {
    /// `CIDATA`: cloud-init, NoCloud.
    Cidata,
    /// `OEMDRV`: Anaconda.
    Oemdrv,
    /// `CONFIG-2`: cloud-init, ConfigDrive.
    #[strum(serialize = "CONFIG-2")]
    Config2,
}

impl MediaLabel {
    /// Returns the volume id as the image holds it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the label with this name, if known.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// Bytes for the installer. They may hold secrets, so `Debug` shows only the size.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// Wraps bytes of a recipe.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes as the installer gets them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// A recipe that passed validation.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The text as submitted, byte for byte.
    pub raw: String,
    /// The `$id` of the schema the recipe was validated against.
    pub schema_id: String,
    /// The target that the maintenance OS starts.
    pub task_target: TaskTarget,
    /// The state of the machine after a success.
    pub after: After,
    /// The way in which the OS image and the result travel.
    pub delivery: Delivery,
    /// The disk to install to, always a whole disk.
    pub target_disk: Option<String>,
    /// The disk by its properties.
    pub disk_hints: Option<DiskHints>,
    /// The OS image: an OCI reference without a scheme.
    pub oci_url: Option<String>,
    /// The URL of the firmware to install.
    pub firmware_url: Option<String>,
    /// The partitions in disk order; empty when the recipe has none.
    pub partition_layout: Vec<Partition>,
    /// More disks, arrays and volume groups.
    pub storage: Storage,
    /// The way in which `erase.target` erases.
    pub erase_mode: EraseMode,
    /// The network of the installer; without one it is that of the server's record ([`Recipe::on_network`]), else DHCP.
    pub network: Option<Network>,
    /// The SSH public keys of `rescue.target`.
    pub ssh_authorized_keys: Vec<String>,
    /// The minutes of a session of `rescue.target`, if the recipe has them; [`Recipe::session`] has the default.
    pub session_minutes: Option<u32>,
    /// cloud-init user data, decoded if the recipe has `user_data_encoding: base64`.
    pub user_data: Option<Payload>,
    /// cloud-init network configuration.
    pub network_config: Option<Payload>,
    /// cloud-init vendor data.
    pub vendor_data: Option<Payload>,
    /// Windows answer file.
    pub unattend_xml: Option<Payload>,
    /// Kickstart file.
    pub ks_cfg: Option<Payload>,
    /// The requested volume label.
    pub media_label: Option<MediaLabel>,
}

impl Recipe {
    /// Reads a recipe that a controller has accepted before. Neither the schema nor the rules are applied again: they decide
    /// whether a new recipe is accepted, and may have become stricter since.
    ///
    /// # Errors
    /// Returns the errors of the fields when the text has been altered, or has a value that this version has no type for.
    pub fn accepted(json: &str, schema_id: &str) -> Result<Self, Vec<FieldError>> {
        let value = parse::parse(json)?;
        // The limits of payloads are part of the schema; without them only the types of the fields are checked.
        read::recipe(json, schema_id, &serde_json::Value::Null, &value).map_err(error::bounded)
    }

    /// Returns the rules of the current version that the recipe breaks. A recipe that a controller has just accepted breaks none.
    pub fn broken_rules(&self) -> Vec<FieldError> {
        rules::errors(self, true)
    }

    /// Returns advice about an accepted recipe: values that are valid and probably not intended.
    pub fn lints(&self) -> Vec<Lint> {
        lint::lints(self)
    }

    /// Returns the recipe for a server whose record has this network. What the recipe says itself stays: its `network`, its
    /// `network_config`, and the absence of both where it needs no address (`delivery: media`). An installed system that runs
    /// cloud-init has the network too, which has the form of cloud-init's network configuration, version 2.
    #[must_use]
    pub fn on_network(mut self, network: Network) -> Self {
        if self.delivery != Delivery::Network || self.network.is_some() {
            return self;
        }
        let has_cloud_init = self.user_data.is_some() || self.vendor_data.is_some();
        if has_cloud_init && self.network_config.is_none() {
            // The types of a network can always be written as JSON, which is YAML.
            let text = serde_json::to_string_pretty(&network).unwrap_or_default();
            self.network_config = Some(Payload::new(format!("{text}\n")));
        }
        self.network = Some(network);
        self
    }

    /// Returns how long a session of `rescue.target` lasts, from the report that the machine is reachable.
    #[must_use]
    pub fn session(&self) -> Duration {
        Duration::from_secs(60 * u64::from(self.session_minutes.unwrap_or(SESSION_MINUTES)))
    }

    /// Returns how much longer than an installation the job may take: a secure erase may overwrite a disk of many terabytes, or have
    /// the disk do so, which must not be interrupted.
    #[must_use]
    pub fn erase_time(&self) -> Duration {
        match (self.task_target, self.erase_mode) {
            (TaskTarget::Erase, EraseMode::Secure) => SECURE_ERASE_TIME,
            _ => Duration::ZERO,
        }
    }

    /// Returns the part of a recipe that may be logged: targets and sizes, without payloads and without credentials of URLs.
    pub fn summary(&self) -> serde_json::Value {
        let mut summary = serde_json::Map::new();
        let mut put = |key: &str, value: Option<serde_json::Value>| {
            if let Some(value) = value {
                summary.insert(key.to_owned(), value);
            }
        };
        put("schema_id", Some(json!(self.schema_id)));
        put("recipe_bytes", Some(json!(self.raw.len())));
        put("task_target", Some(json!(self.task_target)));
        put("target_disk", self.target_disk.as_ref().map(|disk| json!(disk)));
        put("disk_hints", self.disk_hints.as_ref().map(|hints| json!(hints)));
        put("after", (self.after != After::default()).then(|| json!(self.after.as_str())));
        put("delivery", (self.delivery != Delivery::default()).then(|| json!(self.delivery.as_str())));
        put("erase_mode", (self.erase_mode != EraseMode::default()).then(|| json!(self.erase_mode.as_str())));
        put("network_links", self.network.as_ref().map(|network| json!(network.links())));
        put(
            "ssh_keys",
            (!self.ssh_authorized_keys.is_empty()).then(|| json!(self.ssh_authorized_keys.len())),
        );
        put("session_minutes", self.session_minutes.map(|minutes| json!(minutes)));
        put("oci_url", self.oci_url.as_ref().map(|url| json!(url)));
        put("firmware_url", self.firmware_url.as_ref().map(|url| json!(without_credentials(url))));
        put("partitions", (!self.partition_layout.is_empty()).then(|| json!(self.partition_layout.len())));
        for (key, count) in [
            ("more_disks", self.storage.more_disks.len()),
            ("arrays", self.storage.arrays.len()),
            ("volume_groups", self.storage.volume_groups.len()),
        ] {
            put(key, (count > 0).then(|| json!(count)));
        }
        put("media_label", self.media_label.map(|label| json!(label.as_str())));
        for (key, payload) in self.payloads() {
            put(key, payload.map(|payload| json!({ "bytes": payload.len() })));
        }
        serde_json::Value::Object(summary)
    }

    /// Returns the payload fields with their recipe names.
    fn payloads(&self) -> [(&'static str, Option<&Payload>); 5] {
        [
            ("user_data", self.user_data.as_ref()),
            ("network_config", self.network_config.as_ref()),
            ("vendor_data", self.vendor_data.as_ref()),
            ("unattend_xml", self.unattend_xml.as_ref()),
            ("ks_cfg", self.ks_cfg.as_ref()),
        ]
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({})", self.summary())
    }
}

/// Returns scheme, host, port and path of a URL, without user name, password and query, which may be a signature. A text
/// that is not a URL is not shown.
fn without_credentials(url: &str) -> String {
    let Ok(parsed) = url::Url::parse(url) else { return "(not a URL)".to_owned() };
    let Some(host) = parsed.host_str() else { return format!("{}:…", parsed.scheme()) };
    let port = parsed.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", parsed.scheme(), parsed.path())
}
