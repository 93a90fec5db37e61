//! `select-disk.service`: the disks that the recipe chooses, and whether a retry finds the disk of the attempt before it.
//!
//! ```text
//! target_disk | hints ──► one disk ──► disk_before of job.json: the same one, or another (nothing is written)
//! more_disks          ──► further disks, none of them twice; disk_before says nothing of them
//! ```
//!
//! The rules are those of docs/maintenance-os.md. The code shares nothing with the agent on purpose: a rule that both would
//! get wrong in the same way would go unnoticed.

use serde::Serialize;

use super::dispatcher::{TargetDisk, Task};
use super::documents::FormerDisk;
use crate::machine::{DiskSpec, Machine};

/// The disks of a task.
#[derive(Debug)]
pub(super) struct ChosenDisks<'machine> {
    /// The disk that gets the system.
    pub(super) first: &'machine DiskSpec,
    /// The disks of `more_disks`, in their order.
    pub(super) more: Vec<&'machine DiskSpec>,
}

/// The identity of the chosen disk, as reports contain it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DiskIdentity {
    name: String,
    bytes: u64,
    serial: Option<String>,
    wwn: Option<String>,
    /// Whether a unit that writes has begun.
    pub(super) written: bool,
    /// A line for each further disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<String>,
}

impl DiskIdentity {
    pub(super) fn of(machine: &Machine, chosen: &ChosenDisks<'_>) -> Self {
        let more = chosen.more.iter().map(|disk| match machine.disk_serial(disk) {
            Some(serial) => format!("{} serial={serial}", name(disk)),
            None => name(disk).to_owned(),
        });
        Self {
            name: name(chosen.first).to_owned(),
            bytes: chosen.first.bytes,
            serial: machine.disk_serial(chosen.first),
            wwn: chosen.first.wwn.clone(),
            written: false,
            more: more.collect(),
        }
    }
}

/// Chooses the disks of a task. Nothing is written here.
pub(super) fn choose<'machine>(
    machine: &'machine Machine,
    task: &Task,
) -> Result<ChosenDisks<'machine>, String> {
    let first = one(machine, &task.target_disk)?;
    let mut more: Vec<&DiskSpec> = Vec::new();
    for (index, (wanted, _)) in task.more_disks.iter().enumerate() {
        let disk = one(machine, wanted).map_err(|reason| format!("more_disks/{index}: {reason}"))?;
        if disk.device == first.device || more.iter().any(|other| other.device == disk.device) {
            return Err(format!(
                "more_disks/{index} is {}, which is chosen already; nothing was written",
                disk.device
            ));
        }
        more.push(disk);
    }
    Ok(ChosenDisks { first, more })
}

fn one<'machine>(machine: &'machine Machine, target: &TargetDisk) -> Result<&'machine DiskSpec, String> {
    let all = || {
        let disks: Vec<&str> = machine.disks.iter().map(|disk| disk.device.as_str()).collect();
        disks.join(", ")
    };
    match (target, &machine.disks[..]) {
        (TargetDisk::Named(disk), _) => {
            machine.disk(disk).ok_or_else(|| format!("there is no {disk}; this machine has {}", all()))
        }
        (TargetDisk::Only, [disk]) => Ok(disk),
        (TargetDisk::Only, _) => Err(format!("hints need a machine with one disk; this one has {}", all())),
    }
}

/// Compares the chosen disk with that of the attempt before: by WWN if both have one, else by serial number.
pub(super) fn check_former(former: &FormerDisk, machine: &Machine, disk: &DiskSpec) -> Result<(), String> {
    let (serial, wwn) = (machine.disk_serial(disk), disk.wwn.clone());
    let pairs =
        [("WWN", known(&former.wwn), known(&wwn)), ("serial number", known(&former.serial), known(&serial))];
    let comparable = pairs.iter().find(|(_, before, now)| before.is_some() && now.is_some());
    // Without a pair, a disk that the attempt before could name is not known to be this one.
    let named = pairs.iter().find(|(_, before, _)| before.is_some());
    let Some((kind, before, now)) = comparable.or(named) else { return Ok(()) };
    if before.is_some() && before == now {
        return Ok(());
    }
    let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "not shown".to_owned());
    Err(format!(
        "the attempt before wrote the disk with {kind} {}; {}, which matches now, has {}; nothing was written",
        shown(before),
        name(disk),
        shown(now)
    ))
}

/// Returns the text in a form that can be compared, if it is not empty.
fn known(text: &Option<String>) -> Option<String> {
    let text = text.as_deref().unwrap_or_default().trim().to_ascii_lowercase();
    (!text.is_empty()).then_some(text)
}

fn name(disk: &DiskSpec) -> &str {
    disk.device.strip_prefix("/dev/").unwrap_or(&disk.device)
}
