//! The dispatcher: validates the recipe against its schema and reads the task from it.

use serde_json::Value;

use super::documents::{PartitionDocument, RecipeDocument, TaskFiles};
use crate::oci::{ExtraFile, ImageReference};
use recipe::Partition;
use recipe::partition::default_linux_layout;

/// The targets of this maintenance OS.
const INSTALL_LINUX: &str = "install-linux.target";
const RESCUE: &str = "rescue.target";
const MAX_REASONS: usize = 5;

/// The disk of a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetDisk {
    /// The disk with this path.
    Named(String),
    /// The only disk of the machine: simulated disks have no properties that hints could name.
    Only,
}

/// The task of a recipe: an installation or a rescue session.
#[derive(Debug)]
pub(super) enum Dispatched {
    /// An installation.
    Install(Box<Task>),
    /// A rescue session.
    Rescue(RescueTask),
}

impl Dispatched {
    /// The target of the recipe.
    pub(super) fn target(&self) -> &'static str {
        match self {
            Self::Install(_) => INSTALL_LINUX,
            Self::Rescue(_) => RESCUE,
        }
    }
}

/// A rescue session.
#[derive(Debug)]
pub(super) struct RescueTask {
    /// Whether an SSH server runs: the recipe has a key.
    pub(super) has_ssh: bool,
}

/// A parsed recipe of an installation.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) target_disk: TargetDisk,
    /// The further disks, each with its layout.
    pub(super) more_disks: Vec<(TargetDisk, Vec<Partition>)>,
    pub(super) image: ImageReference,
    pub(super) layout: Vec<Partition>,
    pub(super) cloud_init: Vec<ExtraFile>,
}

/// Validates `recipe.json` against the schema in the task image and parses it.
pub(super) fn dispatch(files: &TaskFiles) -> Result<Dispatched, String> {
    let schema: Value =
        serde_json::from_slice(&files.schema).map_err(|source| format!("recipe.schema.json: {source}"))?;
    let id = schema["$id"].as_str().unwrap_or_default();
    if id != files.job.recipe_schema_id {
        return Err(format!("recipe.schema.json is {id:?}, job.json names {:?}", files.job.recipe_schema_id));
    }
    let recipe: Value =
        serde_json::from_slice(&files.recipe).map_err(|source| format!("recipe.json: {source}"))?;
    let validator = jsonschema::validator_for(&schema)
        .map_err(|source| format!("recipe.schema.json: {}", source.masked()))?;
    let reasons: Vec<String> = validator
        .iter_errors(&recipe)
        .take(MAX_REASONS)
        // Masked: a recipe contains user data, and this text is logged.
        .map(|error| format!("{}: {}", error.instance_path(), error.masked()))
        .collect();
    if !reasons.is_empty() {
        return Err(format!("recipe.json breaks its schema: {}", reasons.join("; ")));
    }
    read(recipe, files)
}

fn read(recipe: Value, files: &TaskFiles) -> Result<Dispatched, String> {
    let recipe: RecipeDocument =
        serde_json::from_value(recipe).map_err(|source| format!("recipe.json: {source}"))?;
    if recipe.task_target == RESCUE {
        return Ok(Dispatched::Rescue(RescueTask { has_ssh: !recipe.ssh_authorized_keys.is_empty() }));
    }
    if recipe.task_target != INSTALL_LINUX {
        return Err(format!(
            "{} does not exist on this maintenance OS, only {INSTALL_LINUX} and {RESCUE}",
            recipe.task_target
        ));
    }
    if !recipe.arrays.is_empty() || !recipe.volume_groups.is_empty() {
        return Err("this simulated machine has no arrays and no volume groups".to_owned());
    }
    let missing = |field: &str| format!("recipe.json has no {field}");
    let image = recipe.oci_url.ok_or_else(|| missing("oci_url"))?;
    let layout = match partitions("/partition_layout", &recipe.partition_layout)? {
        layout if layout.is_empty() => default_linux_layout(),
        layout => layout,
    };
    let mut more_disks = Vec::new();
    for (index, more) in recipe.more_disks.into_iter().enumerate() {
        let at = format!("/more_disks/{index}");
        let disk = target(more.target_disk, more.disk_hints.is_some());
        let disk = disk.ok_or_else(|| missing(&format!("{at}/target_disk")))?;
        let own = partitions(&format!("{at}/partition_layout"), &more.partition_layout)?;
        more_disks.push((disk, if own.is_empty() { layout.clone() } else { own }));
    }
    let cloud_init = files.cloud_init.iter();
    Ok(Dispatched::Install(Box::new(Task {
        target_disk: target(recipe.target_disk, recipe.disk_hints.is_some())
            .ok_or_else(|| missing("target_disk"))?,
        more_disks,
        image: ImageReference::parse(&image).map_err(|source| source.to_string())?,
        layout,
        cloud_init: cloud_init
            .map(|(name, bytes)| ExtraFile { path: (*name).to_owned(), bytes: bytes.clone() })
            .collect(),
    })))
}

/// The disk that a name or hints choose; `None` without both.
fn target(name: Option<String>, has_hints: bool) -> Option<TargetDisk> {
    name.map(TargetDisk::Named).or(has_hints.then_some(TargetDisk::Only))
}

fn partitions(at: &str, items: &[PartitionDocument]) -> Result<Vec<Partition>, String> {
    let parsed = items
        .iter()
        .enumerate()
        .map(|(index, item)| item.parse().map_err(|reason| format!("recipe.json {at}/{index}: {reason}")));
    parsed.collect()
}
