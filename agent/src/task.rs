//! The recipe as this program understands it.
//!
//! ```text
//! recipe.json --parse--> Task { target, target_disk, disk_hints, image, layout }
//! ```
//!
//! The controller validated the recipe against its schema before the job existed. This reads the fields that the targets
//! need and refuses what it cannot carry out, before anything is written.
//!
//! Invariant: an error contains no text of the recipe but names and sizes: a recipe holds user data.

use std::collections::BTreeMap;

use recipe::partition::default_linux_layout;
use recipe::{DiskHints, EraseMode, Partition, Recipe, Storage};
use serde::Deserialize;

use crate::oci::ImageReference;
use crate::rescue::Keys;

/// The names of steps: the unit names of the contract, which are reported as `failed_step`.
pub mod unit {
    /// Finds the task and reads the recipe.
    pub const DISPATCHER: &str = "provision-dispatcher.service";
    /// Selects the disk.
    pub const SELECT_DISK: &str = "select-disk.service";
    /// Removes old signatures, writes the partition table.
    pub const PARTITION: &str = "partition.service";
    /// Writes a disk image.
    pub const IMAGE_DISK: &str = "image-disk.service";
    /// Writes a disk image with Windows.
    pub const IMAGE_WINDOWS: &str = "image-windows.service";
    /// Writes the answer file into the Windows of the image.
    pub const UNATTEND: &str = "unattend-windows.service";
    /// Applies the layers of a root file system.
    pub const IMAGE_LINUX: &str = "image-linux.service";
    /// Installs the boot loader.
    pub const BOOTLOADER: &str = "bootloader-linux.service";
    /// Writes the seed of cloud-init.
    pub const CONFIG_DRIVE: &str = "config-drive.service";
    /// Moves the backup of the partition table and grows the last partition.
    pub const GROW: &str = "grow-disk.service";
    /// Erases a disk.
    pub const ERASE: &str = "erase.service";
    /// Reads what the machine is made of.
    pub const INVENTORY: &str = "inventory.service";
    /// Makes the machine usable for an operator.
    pub const RESCUE: &str = "rescue.service";
}

/// The work that a recipe orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `install-image.target`: an image of a whole disk.
    InstallImage(ImageReference),
    /// `install-windows.target`: an image of a whole disk with a prepared Windows, and the answer file.
    InstallWindows(ImageReference, Option<Vec<u8>>),
    /// `install-linux.target`: a root file system with its boot loader.
    InstallLinux(LinuxTask),
    /// `erase.target`.
    Erase(EraseMode),
    /// `inventory.target`: the report says what the machine is made of; nothing is written.
    Inventory,
    /// `rescue.target`: an operator works on the machine; nothing is written.
    Rescue(Keys),
}

/// The parameters of an installation of Linux beside the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxTask {
    /// The root file system.
    pub image: ImageReference,
    /// The partitions.
    pub layout: Vec<Partition>,
    /// More disks, arrays and volume groups.
    pub storage: Storage,
}

impl LinuxTask {
    /// Reads the layout with the types and the rules of the controller: a recipe on a medium made by hand was not checked.
    fn parse(image: ImageReference, bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "recipe.json: it is not UTF-8")?;
        let recipe = Recipe::accepted(text, "").and_then(|recipe| match recipe.broken_rules() {
            broken if broken.is_empty() => Ok(recipe),
            broken => Err(broken),
        });
        let recipe = recipe.map_err(|errors| {
            let first = errors.first().map_or("it cannot be read", |error| error.message.as_str());
            format!("recipe.json: {first}")
        })?;
        let layout = match recipe.partition_layout {
            layout if layout.is_empty() => default_linux_layout(),
            layout => layout,
        };
        Ok(Self { image, layout, storage: recipe.storage })
    }
}

/// A recipe that this program can carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The work that the recipe orders.
    pub target: Target,
    /// The disk by a path.
    pub target_disk: Option<String>,
    /// The disk by its properties.
    pub disk_hints: Option<DiskHints>,
}

#[derive(Deserialize)]
struct RecipeDocument {
    task_target: String,
    target_disk: Option<String>,
    oci_url: Option<String>,
    erase_mode: Option<String>,
    disk_hints: Option<DiskHints>,
    unattend_xml: Option<String>,
    #[serde(default)]
    ssh_authorized_keys: Vec<String>,
}

impl Task {
    /// Reads the task from the files beside `job.json`.
    ///
    /// # Errors
    /// Returns a sentence when the recipe is missing or damaged, or when this program has no such target.
    pub fn parse(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, String> {
        let bytes = files.get("recipe.json").ok_or("the task medium has no recipe.json")?;
        let recipe: RecipeDocument = serde_json::from_slice(bytes).map_err(|source| {
            format!(
                "recipe.json: {:?} error at line {} column {}",
                source.classify(),
                source.line(),
                source.column()
            )
        })?;
        let target = match recipe.task_target.as_str() {
            "install-image.target" => {
                let image = recipe.oci_url.ok_or("recipe.json has no oci_url")?;
                Target::InstallImage(ImageReference::parse(&image).map_err(|source| source.to_string())?)
            }
            "install-windows.target" => {
                let image = recipe.oci_url.ok_or("recipe.json has no oci_url")?;
                let image = ImageReference::parse(&image).map_err(|source| source.to_string())?;
                Target::InstallWindows(image, recipe.unattend_xml.map(String::into_bytes))
            }
            "install-linux.target" => {
                let image = recipe.oci_url.ok_or("recipe.json has no oci_url")?;
                let image = ImageReference::parse(&image).map_err(|source| source.to_string())?;
                Target::InstallLinux(LinuxTask::parse(image, bytes)?)
            }
            "erase.target" => Target::Erase(match recipe.erase_mode.as_deref() {
                None => EraseMode::default(),
                Some(mode) => EraseMode::parse(mode)
                    .ok_or("recipe.json: erase_mode is not known; write quick or secure")?,
            }),
            "inventory.target" => Target::Inventory,
            "rescue.target" => Target::Rescue(Keys::parse(recipe.ssh_authorized_keys)?),
            other => {
                let name: String = other.chars().take(64).collect();
                return Err(format!(
                    "this agent has no {name}; it has install-linux.target, install-image.target, install-windows.target, erase.target, \
                     inventory.target and rescue.target. Use a medium that has it"
                ));
            }
        };
        Ok(Self { target, target_disk: recipe.target_disk, disk_hints: recipe.disk_hints })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(recipe: serde_json::Value) -> Result<Task, String> {
        Task::parse(&[("recipe.json".to_owned(), serde_json::to_vec(&recipe).unwrap())].into())
    }

    #[test]
    fn targets_of_this_program_are_read_with_their_disk() {
        let task = parse(serde_json::json!({
            "task_target": "install-image.target",
            "oci_url": "host:1/os/disk:1",
            "disk_hints": {"serial": "S"},
            "user_data": "ignored here",
        }));
        let task = task.unwrap();
        assert_eq!(task.disk_hints.unwrap().serial.as_deref(), Some("S"));
        assert!(matches!(task.target, Target::InstallImage(image) if image.repository == "os/disk"));
        let erase =
            parse(serde_json::json!({"task_target": "erase.target", "target_disk": "/dev/sda"})).unwrap();
        let windows = serde_json::json!({
            "task_target": "install-windows.target", "oci_url": "host:1/os/win:1", "unattend_xml": "<unattend/>",
        });
        let answer = Some(b"<unattend/>".to_vec());
        assert!(
            matches!(parse(windows).unwrap().target, Target::InstallWindows(_, found) if found == answer)
        );
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGV4 a@b";
        let rescue = serde_json::json!({"task_target": "rescue.target", "ssh_authorized_keys": [key]});
        assert!(
            matches!(parse(rescue).unwrap().target, Target::Rescue(keys) if keys.file().starts_with(key))
        );
        assert!(
            parse(serde_json::json!({"task_target": "rescue.target", "ssh_authorized_keys": ["x"]})).is_err()
        );
        assert_eq!(
            (erase.target, erase.target_disk.as_deref()),
            (Target::Erase(EraseMode::Quick), Some("/dev/sda"))
        );
    }

    #[test]
    fn a_linux_installation_has_the_layout_of_its_recipe_or_the_default_one() {
        let mut recipe = serde_json::json!({
            "task_target": "install-linux.target", "oci_url": "host:1/os/root:1", "disk_hints": {"serial": "S"},
        });
        let Target::InstallLinux(task) = parse(recipe.clone()).unwrap().target else { panic!() };
        assert_eq!((task.image.repository.as_str(), task.layout.len()), ("os/root", 3));
        recipe["partition_layout"] = serde_json::json!([
            {"size": "100%", "type_guid": "8300", "format": "ext4", "mkfs_options": ["-F", "/dev/sdb"]},
        ]);
        let refused = parse(recipe).unwrap_err();
        assert!(refused.contains("mkfs_options/1"), "{refused}");
    }

    #[test]
    fn every_hint_of_the_schema_is_one_of_this_program() {
        let schemas = recipe::RecipeSchemas::builtin();
        let schema: serde_json::Value =
            serde_json::from_str(schemas.text(schemas.current_id()).unwrap()).unwrap();
        let hints = schema["properties"]["disk_hints"]["properties"].as_object().unwrap();
        assert_eq!(hints.len(), 9);
        for (name, hint) in hints {
            let value = match hint["type"].as_str().unwrap() {
                "integer" => serde_json::json!(1),
                "boolean" => serde_json::json!(true),
                _ => serde_json::json!("x"),
            };
            let one: DiskHints = serde_json::from_value(serde_json::json!({ name: value })).unwrap();
            assert_ne!(one, DiskHints::default(), "{name}");
        }
    }

    #[test]
    fn an_unknown_target_and_a_damaged_recipe_are_refused_in_words() {
        let unknown = parse(serde_json::json!({"task_target": "install-bsd.target"})).unwrap_err();
        assert!(
            unknown.contains("install-bsd.target") && unknown.contains("install-image.target"),
            "{unknown}"
        );
        let typo =
            parse(serde_json::json!({"task_target": "erase.target", "disk_hints": {"seriel": "secret"}}));
        let typo = typo.unwrap_err();
        assert!(typo.starts_with("recipe.json") && !typo.contains("secret"), "{typo}");
        assert!(Task::parse(&BTreeMap::new()).is_err());
        assert!(parse(serde_json::json!({"task_target": "install-image.target"})).is_err());
    }
}
