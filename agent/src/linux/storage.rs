//! md arrays and LVM volume groups: which partitions are members, the programs that make, start and stop them, and what the new
//! system needs to start from them.
//!
//! ```text
//! make     mdadm --create (all arrays) -> pvcreate, vgcreate, lvcreate (fixed sizes, shares, the rest)
//! start    mdadm --assemble --uuid     -> vgchange -ay        a second run of the same job
//! stop     vgchange -an                -> mdadm --stop        always, before the disks are opened whole or the machine restarts
//! ```
//!
//! Invariants: every program names its devices, and LVM sees these only (a filter), so no array or group of another disk is started,
//! changed or stopped. The UUIDs of arrays come from the job id. Everything here is pure: the programs are run elsewhere.

use std::path::{Path, PathBuf};
use std::time::Duration;

use recipe::PartitionSize;
use recipe::storage::ArrayLevel;
use uuid::Uuid;

use super::host::Program;
use super::layout::Layout;
use super::members::{EXTENT, LogicalPlan, Place};
use super::texts::KernelFiles;
use crate::layer::LayerTree;

/// The number of the first array: those of the distribution's own numbering begin at 127 and count down, and at 0.
const FIRST_MD: usize = 100;
const LIMIT: Duration = Duration::from_secs(600);

/// The devices of a layout.
pub(super) struct Devices<'layout> {
    /// The layout.
    pub(super) layout: &'layout Layout,
    /// The partitions by disk.
    pub(super) partitions: &'layout [Vec<PathBuf>],
}

impl Devices<'_> {
    /// Returns the device of a place.
    pub(super) fn at(&self, place: Place) -> Option<PathBuf> {
        match place {
            Place::Partition { disk, number } => {
                self.partitions.get(disk)?.get(number.checked_sub(1)?).cloned()
            }
            Place::Array(index) => Some(PathBuf::from(md_device(index))),
            Place::Logical { group, volume } => {
                let group = self.layout.groups.get(group)?;
                let volume = group.volumes.get(volume)?;
                // Names have no dash, so the kernel's name needs no second one.
                Some(Path::new("/dev/mapper").join(format!("{}-{}", group.name, volume.name)))
            }
        }
    }

    fn texts(&self, places: &[Place]) -> Vec<String> {
        let devices = places.iter().filter_map(|place| self.at(*place));
        devices.map(|device| device.to_string_lossy().into_owned()).collect()
    }

    /// LVM's settings: no udev, no other devices, no copies of its metadata on the medium.
    fn lvm_settings(&self) -> String {
        let members = self.layout.groups.iter().flat_map(|group| self.texts(&group.members));
        let filter: Vec<String> = members.map(|device| format!("\"a|^{device}$|\"")).collect();
        format!(
            "devices{{filter=[{},\"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0}} \
             activation{{udev_sync=0 udev_rules=0 monitoring=0}} backup{{backup=0 archive=0}}",
            filter.join(",")
        )
    }

    fn lvm(&self, command: &str, words: &[&str]) -> Program {
        let settings = self.lvm_settings();
        let first = [command, "--config", &settings];
        program("lvm", first.iter().chain(words).map(|word| (*word).to_owned()).collect())
    }

    /// Returns the programs that make everything, each with the one that undoes it.
    pub(super) fn make(&self) -> Vec<(Program, Option<Program>)> {
        let mut all = Vec::new();
        for (index, array) in self.layout.arrays.iter().enumerate() {
            let mut words: Vec<String> = [
                "--create",
                &md_device(index),
                "--run",
                "--metadata=1.2",
                &format!("--level={}", array.level.number()),
                &format!("--raid-devices={}", array.members.len()),
                &format!("--uuid={}", md_uuid(array.uuid)),
                &format!("--name={}", array.name),
                "--homehost=any",
            ]
            .map(str::to_owned)
            .into();
            if array.level != ArrayLevel::Raid0 {
                // After a loss of power only what was being written is compared again.
                words.push("--bitmap=internal".to_owned());
            }
            words.extend(self.texts(&array.members));
            all.push((program("mdadm", words), Some(stop_array(index))));
        }
        for group in &self.layout.groups {
            let members = self.texts(&group.members);
            let members: Vec<&str> = members.iter().map(String::as_str).collect();
            all.push((self.lvm("pvcreate", &[&["-ff", "-y", "-q"], &members[..]].concat()), None));
            let words = [&["-y", "-q", &group.name], &members[..]].concat();
            all.push((self.lvm("vgcreate", &words), Some(self.stop_group(&group.name))));
            let mut volumes: Vec<&LogicalPlan> = group.volumes.iter().collect();
            // Shares are of the whole group; the rest is what all others leave.
            volumes.sort_by_key(|volume| match volume.size {
                PartitionSize::Bytes(_) => 0,
                PartitionSize::Percent(_) => 1,
                PartitionSize::Rest => 2,
            });
            for volume in volumes {
                let (option, size) = match volume.size {
                    PartitionSize::Bytes(bytes) => ("-l", bytes.div_ceil(EXTENT).to_string()),
                    PartitionSize::Percent(percent) => ("-l", format!("{percent}%VG")),
                    PartitionSize::Rest => ("-l", "100%FREE".to_owned()),
                };
                // Signatures of an earlier content are removed without a question.
                let words = ["-y", "-q", "-Wy", "-Zy", "-n", &volume.name, option, &size, &group.name];
                all.push((self.lvm("lvcreate", &words), None));
            }
        }
        all
    }

    /// Returns the programs that start what an earlier run of the job made, each with the one that undoes it.
    pub(super) fn start(&self) -> Vec<(Program, Option<Program>)> {
        let mut all = Vec::new();
        for (index, array) in self.layout.arrays.iter().enumerate() {
            let device = md_device(index);
            let mut words: Vec<String> =
                vec!["--assemble".to_owned(), device, format!("--uuid={}", md_uuid(array.uuid))];
            words.extend(self.texts(&array.members));
            all.push((program("mdadm", words), Some(stop_array(index))));
        }
        for group in &self.layout.groups {
            let start = self.lvm("vgchange", &["-q", "-ay", &group.name]);
            all.push((start, Some(self.stop_group(&group.name))));
        }
        all
    }

    /// Returns the program that prints each physical volume of the machine with the name of its volume group.
    pub(super) fn all_volumes() -> Program {
        let settings = "devices{use_devicesfile=0 obtain_device_list_from_udev=0}";
        let words = ["pvs", "--config", settings, "--noheadings", "-o", "pv_name,vg_name"];
        program("lvm", words.map(str::to_owned).into())
    }

    fn stop_group(&self, name: &str) -> Program {
        self.lvm("vgchange", &["-q", "-an", name])
    }
}

fn program(name: &str, arguments: Vec<String>) -> Program {
    Program { name: name.to_owned(), arguments, in_root: false, limit: LIMIT }
}

fn stop_array(index: usize) -> Program {
    program("mdadm", vec!["--stop".to_owned(), md_device(index)])
}

/// The device of an array.
pub(super) fn md_device(index: usize) -> String {
    format!("/dev/md{}", FIRST_MD + index)
}

/// The form of `mdadm` and of `rd.md.uuid`: four groups of eight digits.
pub(super) fn md_uuid(uuid: Uuid) -> String {
    let digits = uuid.simple().to_string();
    [&digits[..8], &digits[8..16], &digits[16..24], &digits[24..]].join(":")
}

/// Returns the modules of the kernel that a layout needs.
pub(super) fn modules(layout: &Layout) -> Vec<&'static str> {
    let mut names = Vec::new();
    if !layout.arrays.is_empty() {
        names.push("md_mod");
    }
    names.extend(layout.arrays.iter().map(|array| match array.level {
        ArrayLevel::Raid0 => "raid0",
        ArrayLevel::Raid1 => "raid1",
        ArrayLevel::Raid10 => "raid10",
        ArrayLevel::Raid5 | ArrayLevel::Raid6 => "raid456",
    }));
    if !layout.groups.is_empty() {
        names.push("dm_mod");
    }
    names
}

/// Returns the programs of the medium that a layout needs.
pub(super) fn needed_programs(layout: &Layout) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if !layout.arrays.is_empty() {
        names.push("mdadm".to_owned());
    }
    if !layout.groups.is_empty() {
        names.push("lvm".to_owned());
    }
    let made = layout.volumes.iter().filter_map(|volume| volume.mkfs(Path::new("/dev/null")));
    names.extend(made.map(|program| program.name));
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the words of the kernel's command line by which an initramfs of dracut starts the arrays and groups; others ignore them.
pub(super) fn command_line(layout: &Layout) -> String {
    let arrays = layout.arrays.iter().map(|array| format!("rd.md.uuid={}", md_uuid(array.uuid)));
    let groups = layout.groups.iter().map(|group| format!("rd.lvm.vg={}", group.name));
    arrays.chain(groups).collect::<Vec<_>>().join(" ")
}

/// Returns the text of `mdadm.conf`.
pub(super) fn mdadm_conf(layout: &Layout) -> String {
    let mut text = "# Written by the installer of Shoal.\nHOMEHOST <system>\nMAILADDR root\n".to_owned();
    for array in &layout.arrays {
        text += &format!("ARRAY /dev/md/{} metadata=1.2 UUID={}\n", array.name, md_uuid(array.uuid));
    }
    text
}

/// Writes what the new system needs to find its arrays and groups, and returns the programs of the image that put it into the
/// initramfs of each kernel.
///
/// # Errors
/// Returns a sentence when the image lacks a program, or when its file system refuses a file.
pub(super) fn prepare(
    tree: &LayerTree,
    layout: &Layout,
    kernels: &[KernelFiles],
) -> Result<Vec<Program>, String> {
    if !layout.has_storage() {
        return Ok(Vec::new());
    }
    let has = |name: &str| {
        ["usr/sbin", "usr/bin", "sbin", "bin"].iter().any(|folder| tree.has_file(&format!("{folder}/{name}")))
    };
    let lacks = |what: &str, program: &str, package: &str| {
        format!(
            "the layout has {what}, and the image has no {program} to start them; install the package {package} in it"
        )
    };
    if !layout.arrays.is_empty() {
        if !has("mdadm") {
            return Err(lacks("arrays", "mdadm", "mdadm"));
        }
        let debian = !tree.list("etc/mdadm").is_empty() || has("update-initramfs");
        let path = if debian { "etc/mdadm/mdadm.conf" } else { "etc/mdadm.conf" };
        tree.write_file(path, mdadm_conf(layout).as_bytes(), Some(0o644))
            .map_err(|source| format!("writing /{path}: {source}"))?;
    }
    if !layout.groups.is_empty() && !has("lvm") {
        return Err(lacks("volume groups", "lvm", "lvm2"));
    }
    let name = ["update-initramfs", "dracut"].into_iter().find(|name| has(name)).ok_or_else(|| {
        "the layout has arrays or volume groups, and the image has neither update-initramfs nor dracut to make an \
         initramfs that starts them; install one of them in it"
            .to_owned()
    })?;
    let arguments = |version: &str| -> Vec<String> {
        match name {
            "dracut" => {
                let words = ["--force", "--no-hostonly", "--mdadmconf", "--lvmconf", "--kver", version];
                words.map(str::to_owned).into()
            }
            _ => ["-c", "-k", version].map(str::to_owned).into(),
        }
    };
    let make = |kernel: &KernelFiles| Program {
        name: name.to_owned(),
        arguments: arguments(&kernel.version),
        in_root: true,
        limit: LIMIT,
    };
    Ok(kernels.iter().map(make).collect())
}
