//! Advice about valid recipes: values that are probably not intended. Advice never refuses a recipe.

use serde::Serialize;

use super::partition::{FsFormat, Partition, PartitionSize, PartitionType};
use super::schemas::FIRST_ID;
use super::{Recipe, TaskTarget, storage};

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lint {
    /// JSON Pointer to the value.
    pub path: String,
    /// The advice; never shows payloads.
    pub message: String,
}

/// The beginnings of base64 text that encodes `#!/`, `#cloud-config`, `Content-Type` or gzip.
const BASE64_STARTS: [&str; 4] = ["IyEv", "I2Nsb3VkLWNvbmZpZ", "Q29udGVudC1UeXBl", "H4sI"];

pub(super) fn lints(recipe: &Recipe) -> Vec<Lint> {
    let mut lints = Lints(Vec::new());
    lints.layout(recipe);
    lints.disk(recipe);
    match recipe.task_target {
        // A recipe without a layout has the default one, which needs no advice.
        TaskTarget::InstallLinux if recipe.partition_layout.is_empty() => {}
        TaskTarget::InstallLinux => lints.linux(recipe),
        TaskTarget::InstallWindows => lints.windows(&recipe.partition_layout),
        TaskTarget::InstallEsxi => lints.esxi(recipe),
        TaskTarget::Rescue => lints.rescue(recipe),
        TaskTarget::InstallImage
        | TaskTarget::SupermicroUpdate
        | TaskTarget::Erase
        | TaskTarget::Inventory => lints.unused_layout(recipe),
    }
    lints.network(recipe);
    lints.user_data(recipe);
    lints.0
}

struct Lints(Vec<Lint>);

impl Lints {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Lint { path: path.into(), message: message.into() });
    }

    fn layout(&mut self, recipe: &Recipe) {
        let layout = &recipe.partition_layout;
        for (index, part) in layout.iter().enumerate() {
            let at = |field: &str| format!("/partition_layout/{index}/{field}");
            if part.size == PartitionSize::Rest && index + 1 < layout.len() {
                self.add(
                    at("size"),
                    "100% is not the last partition. Shoal gives it the space that the others leave; tools that \
                     create partitions in order would leave no space for the later ones.",
                );
            }
            if let PartitionSize::Bytes(bytes) = part.size
                && bytes < 1024 * 1024
            {
                let message = format!(
                    "The size is {bytes} bytes. A number without unit counts bytes; was {bytes}M meant?"
                );
                self.add(at("size"), message);
            }
            if let (Some(label), Some(limit)) = (&part.label, part.format.label_bytes())
                && label.len() > limit
            {
                let message = format!(
                    "The label is {} bytes long, {} holds {limit}; the file system gets no label or a shortened one.",
                    label.len(),
                    part.format.as_str()
                );
                self.add(at("label"), message);
            } else if part.label.as_ref().is_some_and(|label| !part.format.holds_label(label)) {
                let message = "The label has letters that vfat does not hold; the file system gets no label. \
                               Use letters from A to Z, digits, dashes and underscores.";
                self.add(at("label"), message);
            }
            if part.type_guid == PartitionType::MICROSOFT_RESERVED && part.format != FsFormat::Raw {
                self.add(at("format"), "A Microsoft reserved partition (0c01) is never formatted; use raw.");
            }
            if part.type_guid == PartitionType::EFI_SYSTEM && part.format != FsFormat::Vfat {
                self.add(at("format"), "Firmware reads an EFI system partition (ef00) only as vfat.");
            }
        }
    }

    /// Advice for recipes of version 2 and newer: version 1 has no other way to name a disk.
    fn disk(&mut self, recipe: &Recipe) {
        let bare = recipe.target_disk.as_deref().filter(|disk| !disk.starts_with("/dev/disk/"));
        if let Some(disk) = bare.filter(|_| recipe.schema_id != FIRST_ID && recipe.disk_hints.is_none()) {
            let message = format!(
                "{disk} can be another disk after every boot; it is used only if it is the machine's only disk. Give \
                 disk_hints or a path below /dev/disk."
            );
            self.add("/target_disk", message);
        }
    }

    fn rescue(&mut self, recipe: &Recipe) {
        self.unused_layout(recipe);
        if recipe.ssh_authorized_keys.is_empty() {
            self.add(
                "/ssh_authorized_keys",
                "Without a key the rescue system has no login over the network, only the shell on its console.",
            );
        }
    }

    fn unused_layout(&mut self, recipe: &Recipe) {
        if !recipe.partition_layout.is_empty() {
            let message = format!("{} does not use the layout.", recipe.task_target);
            self.add("/partition_layout", message);
        }
    }

    fn network(&mut self, recipe: &Recipe) {
        let Some(network) = &recipe.network else { return };
        let cards = network.ethernets.values().map(|link| &link.addressing);
        let bonds = network.bonds.values().map(|link| &link.addressing);
        let vlans = network.vlans.values().map(|link| &link.addressing);
        if cards.chain(bonds).chain(vlans).all(|addressing| addressing.is_silent()) {
            self.add("/network", "No link gets an address; the installer cannot reach the controller.");
        }
        if recipe.task_target == TaskTarget::InstallEsxi {
            self.add("/network", "The ESXi installer does not use it; set the network in the kickstart.");
        }
    }

    fn linux(&mut self, recipe: &Recipe) {
        let layout = &recipe.partition_layout[..];
        self.one_efi_system(layout);
        let root = |part: &Partition| {
            part.type_guid.is_linux_root() && !matches!(part.format, FsFormat::Swap | FsFormat::Vfat)
        };
        let mounted = storage::slots(recipe).iter().any(|slot| slot.mount == Some("/"));
        if !mounted && !layout.iter().any(root) {
            self.add(
                "/partition_layout",
                "No partition looks like a Linux root (type 8300, a Linux file system).",
            );
        }
    }

    fn windows(&mut self, layout: &[Partition]) {
        if layout.is_empty() {
            self.add(
                "/partition_layout",
                "Without a layout the maintenance OS decides how the disk is partitioned.",
            );
            return;
        }
        self.one_efi_system(layout);
        if !layout.iter().any(|part| part.type_guid == PartitionType::MICROSOFT_RESERVED) {
            self.add("/partition_layout", "Windows expects a Microsoft reserved partition (0c01, 16M, raw).");
        }
        let system = |part: &Partition| {
            part.type_guid == PartitionType::MICROSOFT_BASIC_DATA && part.format == FsFormat::Ntfs
        };
        if !layout.iter().any(system) {
            self.add("/partition_layout", "Windows needs a partition of type 0700 with ntfs for its system.");
        }
    }

    fn esxi(&mut self, recipe: &Recipe) {
        if recipe.ks_cfg.as_ref().is_some_and(|kickstart| kickstart.is_empty()) {
            self.add("/ks_cfg", "The kickstart is empty; the ESXi installer will stop and ask.");
        }
        if !recipe.partition_layout.is_empty() {
            self.add(
                "/partition_layout",
                "The ESXi installer partitions the disk itself; the layout is not used.",
            );
        }
    }

    fn one_efi_system(&mut self, layout: &[Partition]) {
        match layout.iter().filter(|part| part.type_guid == PartitionType::EFI_SYSTEM).count() {
            1 => {}
            0 => self.add(
                "/partition_layout",
                "No EFI system partition (ef00): UEFI firmware has nothing to boot.",
            ),
            many => {
                let message = format!("{many} EFI system partitions (ef00); firmware and tools expect one.");
                self.add("/partition_layout", message);
            }
        }
    }

    fn user_data(&mut self, recipe: &Recipe) {
        let Some(user_data) = &recipe.user_data else {
            for (name, payload) in
                [("network_config", &recipe.network_config), ("vendor_data", &recipe.vendor_data)]
            {
                if payload.is_some() {
                    self.add(
                        format!("/{name}"),
                        "cloud-init reads this only together with user_data; add user_data, which may be empty.",
                    );
                }
            }
            return;
        };
        if BASE64_STARTS.iter().any(|start| user_data.as_bytes().starts_with(start.as_bytes())) {
            self.add(
                "/user_data",
                "This looks like base64 and is passed on verbatim; set \"user_data_encoding\" to \"base64\" to have it \
                 decoded.",
            );
        }
    }
}
