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

use serde::Deserialize;

use crate::oci::ImageReference;
use crate::select::DiskHints;

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
    /// Moves the backup of the partition table and grows the last partition.
    pub const GROW: &str = "grow-disk.service";
    /// Erases a disk.
    pub const ERASE: &str = "erase.service";
    /// Reads what the machine is made of.
    pub const INVENTORY: &str = "inventory.service";
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `install-image.target`: an image of a whole disk.
    InstallImage(ImageReference),
    /// `erase.target`: signatures and partition tables are removed.
    Erase,
    /// `inventory.target`: the report says what the machine is made of; nothing is written.
    Inventory,
}

/// A recipe that this program can carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is to be done.
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
    disk_hints: Option<DiskHints>,
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
            "erase.target" => Target::Erase,
            "inventory.target" => Target::Inventory,
            other => {
                let name: String = other.chars().take(64).collect();
                return Err(format!(
                    "this agent has no {name}; it has install-image.target, erase.target and inventory.target. Use a medium \
                     that has it"
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
        assert_eq!((erase.target, erase.target_disk.as_deref()), (Target::Erase, Some("/dev/sda")));
    }

    #[test]
    fn an_unknown_target_and_a_damaged_recipe_are_refused_in_words() {
        let unknown = parse(serde_json::json!({"task_target": "install-linux.target"})).unwrap_err();
        assert!(
            unknown.contains("install-linux.target") && unknown.contains("install-image.target"),
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
