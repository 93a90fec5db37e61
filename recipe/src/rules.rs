//! Rules that a JSON schema cannot express. Each has its code.
//!
//! | code | rule |
//! |---|---|
//! | `whole_disk` | `target_disk` under `/dev/disk/by-…` is a disk, not one of its partitions |
//! | `rest_twice` | at most one partition takes the rest (`100%`): a second one would be empty |
//! | `percent_sum` | shares fit on the disk: at most 100% together, less when another partition takes the rest |
//! | `required` | a target that writes a disk has `target_disk` or `disk_hints` (version 1 requires `target_disk` by its schema) |
//! | `size_order` | `min_bytes` is not above `max_bytes` |
//! | `not_for_target` | `ssh_authorized_keys`, `session_minutes` and a secure `erase_mode` stand with the target that uses them |
//! | `oci_url` | the image of a target that the agent installs is named as [`ImageReference`] reads it |
//! | `delivery` | `delivery: media` stands with a target that installs an OS image |
//! | `mount` | a mount point occurs once, has a file system that Linux mounts, and is no place of the kernel |
//! | `mkfs_options` | each option has at most one value, none names a device, and the partition has a file system |
//! | `least_size` | a partition or a volume of a fixed size is large enough for its file system |
//! | `storage` | arrays and volume groups have the members they need, and members no file system: [`storage::errors`] |
//! | `network` | names and MAC addresses occur once; links and members exist: [`network::errors`] |

use std::collections::BTreeMap;

use super::error::{FieldError, display};
use super::partition::{FsFormat, Partition, PartitionSize};
use super::repair::Repair;
use super::storage::{self, Slot};
use super::{Delivery, EraseMode, ImageReference, Recipe, TaskTarget, network};

/// Folders of the running kernel, on which a partition cannot be mounted.
const OF_THE_KERNEL: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

/// Returns the errors of all broken rules. `knows_hints` says whether the schema of the recipe has `disk_hints`.
pub(super) fn errors(recipe: &Recipe, knows_hints: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if knows_hints {
        disk(recipe, &mut errors);
    }
    hints(recipe, &mut errors);
    target(recipe, &mut errors);
    image(recipe, &mut errors);
    delivery(recipe, &mut errors);
    let slots = storage::slots(recipe);
    mounts(&slots, &mut errors);
    for slot in &slots {
        mkfs_options(slot, &mut errors);
        least_size(slot, &mut errors);
    }
    errors.extend(storage::errors(recipe));
    if let Some(network) = &recipe.network {
        errors.extend(network::errors("/network", network));
    }
    whole_disk(recipe, &mut errors);
    for (at, _, layout) in storage::layouts(recipe) {
        rest_once(&at, layout, &mut errors);
        percent_sum(&at, layout, &mut errors);
    }
    errors
}

fn disk(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    if recipe.task_target.writes_a_disk() && recipe.target_disk.is_none() && recipe.disk_hints.is_none() {
        let message = format!("{} needs `target_disk` or `disk_hints`.", recipe.task_target);
        errors.push(FieldError::new("/target_disk", "required", message));
    }
}

fn hints(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let more = recipe.storage.more_disks.iter().enumerate();
    let more = more.map(|(index, disk)| (format!("/more_disks/{index}/disk_hints"), &disk.disk_hints));
    for (at, hints) in std::iter::once(("/disk_hints".to_owned(), &recipe.disk_hints)).chain(more) {
        let sizes = hints.as_ref().and_then(|hints| hints.min_bytes.zip(hints.max_bytes));
        if let Some((least, most)) = sizes.filter(|(least, most)| least > most) {
            let path = format!("{at}/max_bytes");
            let message =
                format!("{} is {most} and `min_bytes` is {least}; no disk can match.", display(&path));
            errors.push(FieldError::new(&path, "size_order", message));
        }
    }
}

fn target(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let mut only = |field: &str, given: bool, target: TaskTarget| {
        if given && recipe.task_target != target {
            let message = format!("`{field}` is for {target}, this recipe is for {}.", recipe.task_target);
            errors.push(FieldError::new(&format!("/{field}"), "not_for_target", message));
        }
    };
    only("ssh_authorized_keys", !recipe.ssh_authorized_keys.is_empty(), TaskTarget::Rescue);
    only("session_minutes", recipe.session_minutes.is_some(), TaskTarget::Rescue);
    only("erase_mode", recipe.erase_mode == EraseMode::Secure, TaskTarget::Erase);
}

/// The schema checks a part of the grammar. What the agent cannot read fails after the host was powered off.
fn image(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let pulls = matches!(
        recipe.task_target,
        TaskTarget::InstallLinux | TaskTarget::InstallImage | TaskTarget::InstallWindows
    );
    let image = recipe.oci_url.as_deref().filter(|_| pulls);
    if let Some(Err(refused)) = image.map(ImageReference::parse) {
        let message = format!(
            "`oci_url`: {}; write HOST:PORT/name:tag or HOST:PORT/name@sha256:… in lower case.",
            refused.rule
        );
        errors.push(FieldError::new("/oci_url", "oci_url", message));
    }
}

fn delivery(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let installs = matches!(recipe.task_target, TaskTarget::InstallLinux | TaskTarget::InstallImage);
    if recipe.delivery == Delivery::Media && !installs {
        let message = format!(
            "`delivery` is media, which is for {} and {}; this recipe is for {}.",
            TaskTarget::InstallLinux,
            TaskTarget::InstallImage,
            recipe.task_target
        );
        errors.push(FieldError::new("/delivery", "delivery", message));
    }
}

fn mounts(slots: &[Slot<'_>], errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for slot in slots {
        let Some(mount) = slot.mount else { continue };
        let path = format!("{}/mount", slot.at);
        let mut fail = |what: String| {
            errors.push(FieldError::new(&path, "mount", format!("{} {what}", display(&path))));
        };
        let below = |folder: &&&str| {
            mount.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some(other) = seen.insert(mount, &slot.shown) {
            fail(format!("is the mount point of {other} too."));
        } else if let Some(folder) = OF_THE_KERNEL.iter().find(below) {
            fail(format!("is below {folder}, which belongs to the kernel."));
        } else if !slot.format.is_mountable() {
            fail(format!("needs a file system: {} cannot be mounted.", slot.format.as_str()));
        } else if mount == "/" && slot.format == FsFormat::Vfat {
            fail("cannot be vfat: it has no owners and permissions.".to_owned());
        }
    }
}

/// Programs take a device as a word of its own or as `device=`. The installer gives the partition itself; a second device
/// would be written too.
fn mkfs_options(slot: &Slot<'_>, errors: &mut Vec<FieldError>) {
    let at = format!("{}/mkfs_options", slot.at);
    let mut fail = |path: String, what: &str| {
        errors.push(FieldError::new(&path, "mkfs_options", format!("{} {what}", display(&path))));
    };
    if !slot.mkfs_options.is_empty() && !slot.format.is_mountable() {
        fail(at, "is for vfat, ext4, xfs and btrfs; remove it.");
        return;
    }
    let mut is_value = false;
    for (number, word) in slot.mkfs_options.iter().enumerate() {
        let path = format!("{at}/{number}");
        let is_option = word.starts_with('-');
        if !is_option && !is_value {
            fail(path, "is no option and no value of the option before it.");
        } else if word.contains("dev=") || word.contains("device=") || word.contains('/') {
            fail(path, "names a device or a file; the installer writes to the partition only.");
        }
        is_value = is_option;
    }
}

/// The program that makes the file system would refuse it, after the partition table was written.
fn least_size(slot: &Slot<'_>, errors: &mut Vec<FieldError>) {
    let least = slot.format.least_bytes(slot.mkfs_options);
    let Some(PartitionSize::Bytes(bytes)) = slot.size else { return };
    if bytes < least {
        let path = format!("{}/size", slot.at);
        let (format, mib) = (slot.format.as_str(), least >> 20);
        let message = format!(
            "{} is too small for {format}, which needs {mib}M; {format} is not made in less.",
            display(&path)
        );
        errors.push(FieldError::new(&path, "least_size", message));
    }
}

fn whole_disk(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let more = recipe.storage.more_disks.iter().enumerate();
    let more = more.map(|(index, disk)| (format!("/more_disks/{index}/target_disk"), &disk.target_disk));
    for (path, disk) in std::iter::once(("/target_disk".to_owned(), &recipe.target_disk)).chain(more) {
        let Some(disk) = disk.as_deref().filter(|disk| disk.starts_with("/dev/disk/by-")) else { continue };
        let whole = std::iter::successors(Some(disk), |name| of_partition(name)).last().unwrap_or(disk);
        if whole != disk {
            let message = format!("{} names a partition; give the whole disk, {whole}.", display(&path));
            let repair = Some(Repair::Set(whole.into()));
            errors.push(FieldError::new(&path, "whole_disk", message).repaired_by(repair));
        }
    }
}

/// The disk of a partition by its link. udev names a partition after its disk: NAME-part1.
fn of_partition(link: &str) -> Option<&str> {
    let (disk, number) = link.rsplit_once("-part")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(disk)
}

fn rest_once(at: &str, layout: &[Partition], errors: &mut Vec<FieldError>) {
    let rests = layout.iter().enumerate().filter(|(_, part)| part.size == PartitionSize::Rest);
    for (index, _) in rests.skip(1) {
        let path = format!("{at}/{index}/size");
        let message = format!(
            "{} is a second 100%. 100% means the space that the other partitions leave, \
             so only one partition can have it; set a size or a share such as 50% here.",
            display(&path)
        );
        errors.push(FieldError::new(&path, "rest_twice", message));
    }
}

fn percent_sum(at: &str, layout: &[Partition], errors: &mut Vec<FieldError>) {
    let sum: u32 = layout
        .iter()
        .map(|part| if let PartitionSize::Percent(percent) = part.size { u32::from(percent) } else { 0 })
        .sum();
    let rest = layout.iter().any(|part| part.size == PartitionSize::Rest);
    let shown = display(at);
    let message = if sum > 100 {
        format!("The shares in {shown} add up to {sum}%; they are shares of the whole disk, at most 100%.")
    } else if sum == 100 && rest {
        format!(
            "The shares in {shown} add up to 100% of the disk and leave nothing for the partition of size 100%, \
             which means the rest."
        )
    } else {
        return;
    };
    errors.push(FieldError::new(at, "percent_sum", message));
}
