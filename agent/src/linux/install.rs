//! The steps of `install-linux.target` on its disks.
//!
//! ```text
//! open all disks (exclusive) --is_partitioned--> [wipe, GPT] --closed--> partitions shown by the kernel
//!   --observe: arrays and groups start, root mounts and has the stamp of this job--> keep
//!   : arrays, groups and file systems made, mounted, layers, fstab, stamp
//!   --> initramfs, boot loader --> seed --> log, flush, unmount, arrays and groups stopped
//! ```
//!
//! Invariant: the stamp is written after everything of the image is on the medium, so it is never there without the image.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io::Read,
    ops::Range,
    os::fd::{AsFd as _, AsRawFd as _},
    path::{Path, PathBuf},
    time::Duration,
};

use recipe::FsFormat;
use serde_json::json;
use uuid::Uuid;

use super::host::{Host, Program};
use super::layout::{Layout, LayoutVolume};
use super::loader::{self, BootLoader};
use super::members::Place;
use super::nvram::{Nvram, NvramEntry};
use super::storage::Devices;
use super::texts::KernelFiles;
use super::{storage, swap, texts};
use crate::device::{Disk, FileDisk};
use crate::gpt::Table;
use crate::job::Job;
use crate::layer::{self, LayerTree, Ownership};
use crate::log::Log;
use crate::select::is_partition_of;
use crate::task::unit;
use crate::wipe;

pub(super) const STAMP: &str = "var/lib/shoal/installed.json";
const SEED: &str = "var/lib/cloud/seed/nocloud";
const LOG_FILE: &str = "var/log/shoal-install/agent.log";
const GRUB_LIMIT: Duration = Duration::from_secs(600);

/// A disk of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxTarget {
    /// The kernel's name.
    pub name: String,
    /// The sector size.
    pub sector: u64,
}

/// One installation.
pub struct Installation<'run> {
    /// The machine.
    pub host: &'run dyn Host,
    /// The log.
    pub log: &'run Log,
    /// The job.
    pub job: &'run Job,
    /// The disks, in the order of the layout.
    pub disks: Vec<LinuxTarget>,
    /// The volumes.
    pub layout: Layout,
    /// The digest of the image, which the stamp names.
    pub image: String,
    partitions: Vec<Vec<PathBuf>>,
    gone: Vec<Uuid>,
    /// The programs that stop arrays and groups, the last started one last.
    stops: RefCell<Vec<Program>>,
    /// Whether the new root has the devices of this machine.
    is_bound: Cell<bool>,
}

impl<'run> Installation<'run> {
    /// Creates the installation of a layout.
    #[must_use]
    pub fn new(
        host: &'run dyn Host,
        log: &'run Log,
        job: &'run Job,
        disks: Vec<LinuxTarget>,
        layout: Layout,
        image: String,
    ) -> Self {
        Self {
            host,
            log,
            job,
            disks,
            layout,
            image,
            partitions: Vec::new(),
            gone: Vec::new(),
            stops: RefCell::default(),
            is_bound: Cell::new(false),
        }
    }

    /// Checks that the medium has the programs of the layout, and loads its drivers. Nothing is written.
    ///
    /// # Errors
    /// Returns a sentence that names the first program that is missing.
    pub fn prepare_host(&self) -> Result<(), String> {
        let missing =
            storage::needed_programs(&self.layout).into_iter().find(|name| !self.host.has_program(name));
        if let Some(name) = missing {
            return Err(format!(
                "{name} is not on this medium; use a medium of the full profile; nothing was written"
            ));
        }
        self.host.load_modules(&storage::modules(&self.layout));
        Ok(())
    }

    /// Checks that no other disk has a volume group with a name of the layout: LVM starts neither of two groups with one name, and the new
    /// system would not find its root. Nothing is written.
    ///
    /// # Errors
    /// Returns a sentence with the name of the group.
    pub fn check_groups(&self) -> Result<(), String> {
        if self.layout.groups.is_empty() {
            return Ok(());
        }
        let found = match self.host.output(&Devices::all_volumes()) {
            Ok(found) => found,
            Err(reason) => {
                self.log.line(unit::PARTITION, format!("the groups of other disks are not known: {reason}"));
                return Ok(());
            }
        };
        // The volumes of the chosen disks end with this installation. A volume without a device is one that a group misses: no group
        // of it is started, and there is no disk to erase.
        let volumes = found.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
        let others: Vec<&str> =
            volumes.filter(|(volume, _)| self.is_other(volume)).map(|(_, group)| group.trim()).collect();
        match self.layout.groups.iter().find(|group| others.contains(&group.name.as_str())) {
            None => Ok(()),
            Some(group) => Err(format!(
                "another disk of this machine has a volume group {} too, and LVM starts neither of two with one name; nothing was \
                 written. Erase that disk, or give the group another name",
                group.name
            )),
        }
    }

    /// Checks that no array of other disks has a device of the layout, which would be stopped at the end: it may be one of the system that
    /// runs here. Nothing is written.
    ///
    /// # Errors
    /// Returns a sentence with the device and a member.
    pub fn check_arrays(&self) -> Result<(), String> {
        for index in 0..self.layout.arrays.len() {
            let device = storage::md_device(index);
            let members = self.host.members(Path::new(&device));
            if let Some(foreign) = members.iter().find(|member| self.is_other(&member.to_string_lossy())) {
                return Err(format!(
                    "{device} is an array with {} on this machine already; nothing was written. Stop it (mdadm --stop {device}), or \
                     start the machine from the maintenance medium",
                    foreign.display()
                ));
            }
        }
        Ok(())
    }

    /// Whether a device is neither a disk of the layout nor a partition of one.
    fn is_other(&self, device: &str) -> bool {
        device.strip_prefix("/dev/").is_some_and(|name| {
            !self.disks.iter().any(|disk| name == disk.name || is_partition_of(name, &disk.name))
        })
    }

    /// Returns whether every disk has exactly the table of this job, and the kernel reads it: power that is lost between the two copies
    /// leaves a backup only.
    ///
    /// # Errors
    /// Returns the error of the disk.
    pub fn is_partitioned(&self, disks: &[Box<dyn Disk>]) -> Result<bool, String> {
        for (index, disk) in disks.iter().enumerate() {
            // A damaged table is one that is written again.
            let Ok(Some(found)) = Table::read(&**disk) else { return Ok(false) };
            let wanted = self.table(index, &**disk)?;
            let is_wanted = found.disk_guid == wanted.disk_guid && found.entries == wanted.entries;
            if !is_wanted
                || !wanted.is_primary_of(&**disk).map_err(|source| crate::discovery::chain(&source))?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a disk has a table of this job, for any place of the layout.
    #[must_use]
    pub fn is_of_job(&self, disk: &dyn Disk) -> bool {
        let Ok(Some(found)) = Table::read(disk) else { return false };
        (0..self.disks.len()).any(|index| (self.layout.guids(index))() == found.disk_guid)
    }

    /// Checks that no disk took the place of another one that an earlier run of this job wrote. All disks are wiped before the first
    /// table is written, so beside a disk with a table of this job each other one has its table too, or nothing but a torn table.
    ///
    /// # Errors
    /// Returns a sentence with both disks, or the error of a disk.
    pub fn check_former(&self, disks: &[Box<dyn Disk>]) -> Result<(), String> {
        let is_of_job: Vec<bool> = disks.iter().map(|disk| self.is_of_job(&**disk)).collect();
        let Some(former) = is_of_job.iter().position(|is| *is) else { return Ok(()) };
        for (index, disk) in disks.iter().enumerate().filter(|(index, _)| !is_of_job[*index]) {
            let is_foreign = matches!(Table::read(&**disk), Ok(Some(_)));
            let failed = |source| format!("reading {}: {source}", self.disks[index].name);
            if is_foreign || !wipe::is_wiped(&**disk, &self.new_partitions(index)).map_err(failed)? {
                let (former, other) = (&self.disks[former].name, &self.disks[index].name);
                return Err(format!(
                    "an earlier run of this job wrote {former}, and {other} beside it was not written by it; nothing was written. \
                     Connect the disk that was, or create a new job"
                ));
            }
        }
        Ok(())
    }

    /// Remembers the partitions of a table that is about to be replaced: boot entries of theirs are deleted later.
    pub fn remember_old(&mut self, disk: &dyn Disk) {
        if let Ok(Some(old)) = Table::read(disk) {
            self.gone.extend(old.entries.iter().flatten().map(|entry| entry.unique_guid));
        }
    }

    /// Returns the bytes of the new partitions of a disk: what lies there now can have signatures that no old table names.
    #[must_use]
    pub fn new_partitions(&self, disk: usize) -> Vec<Range<u64>> {
        let sector = self.disks.get(disk).map_or(512, |disk| disk.sector);
        let placed = self.layout.disks.get(disk).map_or(&[][..], |disk| &disk.placed);
        placed.iter().map(|part| part.first_lba * sector..(part.last_lba + 1) * sector).collect()
    }

    /// Writes the table of a disk.
    ///
    /// # Errors
    /// Returns a sentence when the disk refuses it.
    pub fn write_table(&self, index: usize, disk: &dyn Disk) -> Result<(), String> {
        let table = self.table(index, disk)?;
        table.write(disk).map_err(|source| crate::discovery::chain(&source))
    }

    fn table(&self, index: usize, disk: &dyn Disk) -> Result<Table, String> {
        let layout = self.layout.disks.get(index).ok_or("the layout has fewer disks")?;
        let mut table = Table::new(disk, &layout.placed, self.layout.guids(index))
            .map_err(|source| crate::discovery::chain(&source))?;
        if layout.has_bios_boot && self.host.efi_variables().is_none() {
            table.set_active();
        }
        Ok(table)
    }

    /// Finds the devices of the partitions.
    ///
    /// # Errors
    /// Returns a sentence when the kernel does not show them.
    pub fn find_devices(&mut self) -> Result<(), String> {
        let mut partitions = Vec::with_capacity(self.disks.len());
        for (disk, layout) in self.disks.iter().zip(&self.layout.disks) {
            let unit = disk.sector / 512;
            let placed = layout.placed.iter();
            let expected: Vec<(u64, u64)> = placed
                .map(|part| (part.first_lba * unit, (part.last_lba + 1 - part.first_lba) * unit))
                .collect();
            partitions.push(self.host.partitions(&disk.name, &expected)?);
        }
        self.partitions = partitions;
        Ok(())
    }

    fn devices(&self) -> Devices<'_> {
        Devices { layout: &self.layout, partitions: &self.partitions }
    }

    /// Makes the arrays and volume groups.
    ///
    /// # Errors
    /// Returns a sentence when a program fails.
    pub fn make_storage(&self) -> Result<(), String> {
        self.run_storage(self.devices().make())?;
        for array in &self.layout.arrays {
            let (level, members) = (array.level.number(), array.members.len());
            let text = format!("array {} has level {level} and {members} members", array.name);
            self.log.line(unit::PARTITION, text);
        }
        Ok(())
    }

    /// Starts the arrays and volume groups that an earlier run of this job made.
    fn start_storage(&self) -> Result<(), String> {
        self.run_storage(self.devices().start())
    }

    fn run_storage(&self, programs: Vec<(Program, Option<Program>)>) -> Result<(), String> {
        for (program, stop) in programs {
            // A program that fails can leave what must be stopped.
            self.stops.borrow_mut().extend(stop);
            self.host.run(&program)?;
        }
        Ok(())
    }

    fn stop_storage(&self) -> Result<(), String> {
        let mut outcome = Ok(());
        let stops: Vec<Program> = self.stops.borrow_mut().drain(..).rev().collect();
        for stop in stops {
            outcome = outcome.and(self.host.run(&stop));
        }
        outcome
    }

    /// Mounts the file systems and returns whether they hold the whole image of this job. If not, nothing stays mounted.
    ///
    /// # Errors
    /// Returns a sentence when the root cannot be unmounted.
    pub fn is_installed(&self) -> Result<bool, String> {
        self.unmount()?;
        let installed = self.start_storage().and_then(|()| self.mount()).is_ok_and(|tree| {
            let stamp = tree.read_file(STAMP, 4096).unwrap_or_default();
            stamp == self.stamp()
        });
        if installed {
            return Ok(true);
        }
        // What never started cannot be stopped: the disks that are opened next show whether something stayed.
        if let Err(reason) = self.unmount() {
            self.log.line(unit::PARTITION, reason);
        }
        Ok(false)
    }

    fn stamp(&self) -> Vec<u8> {
        let mut text = json!({"job_id": self.job.job_id, "image": self.image}).to_string().into_bytes();
        text.push(b'\n');
        text
    }

    /// Makes the file systems.
    ///
    /// # Errors
    /// Returns a sentence when a program fails.
    pub fn make_file_systems(&self) -> Result<(), String> {
        let sector = self.disks.iter().map(|disk| disk.sector).max().unwrap_or(512);
        for volume in &self.layout.volumes {
            let device = self.device(volume)?;
            let shown = volume.shown(&self.layout);
            if volume.format == FsFormat::Swap {
                let made = FileDisk::open(&device, sector)
                    .and_then(|disk| swap::make(&disk, volume.uuid, volume.label.as_deref()));
                made.map_err(|source| format!("making swap on {}: {source}", device.display()))?;
                self.log.line(unit::PARTITION, format!("{shown} is swap"));
            } else if let Some(program) = volume.mkfs(&device) {
                self.host.run(&program)?;
                self.log.line(unit::PARTITION, format!("{shown} is {}", volume.format.as_str()));
            }
        }
        Ok(())
    }

    /// Returns the device of a volume, which the kernel shows.
    fn device(&self, volume: &LayoutVolume) -> Result<PathBuf, String> {
        let device = self.devices().at(volume.place);
        let device = device.ok_or_else(|| format!("{} has no device", volume.shown(&self.layout)))?;
        self.host.block_device(&device)
    }

    /// Mounts all file systems. Returns the root.
    ///
    /// # Errors
    /// Returns a sentence when one cannot be mounted.
    pub fn mount(&self) -> Result<LayerTree, String> {
        let mut tree = None;
        for volume in self.layout.mounted() {
            let device = self.device(volume)?;
            let mount = volume.mount.as_deref().unwrap_or_default();
            // Files of an image have owners, and FAT has none: `quiet` ignores them.
            let data = if volume.format == FsFormat::Vfat { "umask=0077,quiet" } else { "" };
            let failed = |source: std::io::Error| {
                let hint = match source.raw_os_error() {
                    // ENODEV
                    Some(19) => "; the kernel of this medium has no driver for it",
                    _ => "",
                };
                let kind = volume.format.as_str();
                format!("mounting {} as {kind} at {mount}: {source}{hint}", device.display())
            };
            match &tree {
                None => {
                    self.host
                        .mount(&device, volume.format.as_str(), data, self.host.root())
                        .map_err(failed)?;
                    let ownership =
                        if self.host.is_privileged() { Ownership::Keep } else { Ownership::Ignore };
                    tree = Some(LayerTree::open(self.host.root(), ownership).map_err(failed)?);
                }
                Some(root) => {
                    // The open directory is the mount point: a link of the image cannot lead elsewhere.
                    let folder = root.make_folder(mount).map_err(failed)?;
                    let at = format!("/proc/self/fd/{}", folder.as_raw_fd());
                    self.host.mount(&device, volume.format.as_str(), data, Path::new(&at)).map_err(failed)?;
                }
            }
        }
        tree.ok_or_else(|| "the layout has no root".to_owned())
    }

    /// Opens the root that is mounted.
    ///
    /// # Errors
    /// Returns a sentence when it cannot be opened.
    pub fn tree(&self) -> Result<LayerTree, String> {
        let ownership = if self.host.is_privileged() { Ownership::Keep } else { Ownership::Ignore };
        LayerTree::open(self.host.root(), ownership)
            .map_err(|source| format!("opening the new root: {source}"))
    }

    /// Applies one layer.
    ///
    /// # Errors
    /// Returns a sentence when the layer is damaged or the file system refuses it.
    pub fn apply(
        &self,
        tree: &LayerTree,
        layer: impl Read,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), String> {
        let applied =
            layer::apply(layer, tree, progress).map_err(|source| crate::discovery::chain(&source))?;
        let mut text = format!("{} members, {} bytes of files", applied.members, applied.bytes);
        if applied.skipped_attributes > 0 {
            text += &format!("; {} attributes are not supported here", applied.skipped_attributes);
        }
        self.log.line(unit::IMAGE_LINUX, text);
        Ok(())
    }

    /// Writes fstab, flushes, and writes the stamp.
    ///
    /// # Errors
    /// Returns a sentence when the file system refuses it, or when the image is no root file system.
    pub fn finish_image(&self, tree: &LayerTree) -> Result<(), String> {
        if tree.list("etc").is_empty() {
            return Err("the image is no root file system: it has no /etc".to_owned());
        }
        let failed = |source: std::io::Error| format!("writing to the new root: {source}");
        tree.write_file("etc/fstab", texts::fstab(&self.layout).as_bytes(), Some(0o644)).map_err(failed)?;
        // The stamp says that all volumes are complete: a run after a loss of power trusts it.
        self.flush(tree)?;
        tree.write_file(STAMP, &self.stamp(), Some(0o600)).map_err(failed)
    }

    /// Writes every volume to its disk. Each is a file system of its own, which reports the failed writes of its own disk.
    fn flush(&self, tree: &LayerTree) -> Result<(), String> {
        for volume in self.layout.mounted() {
            let mount = volume.mount.as_deref().unwrap_or_default();
            let failed =
                |source: std::io::Error| format!("writing {mount} of the new system to its disk: {source}");
            let folder = tree.make_folder(mount).map_err(failed)?;
            self.host.flush(folder.as_fd()).map_err(failed)?;
        }
        Ok(())
    }

    /// Installs the boot loader of the image.
    ///
    /// # Errors
    /// Returns a sentence when the image has none that starts on this machine's firmware.
    pub fn install_boot_loader(&self, tree: &LayerTree) -> Result<(), String> {
        let system = loader::system_of(tree);
        let mut words = loader::words_of(tree);
        let kernels = self.make_initramfs(tree, loader::kernels_of(tree)?)?;
        if kernels.iter().all(|kernel| kernel.initramfs.is_none()) {
            if !matches!(self.layout.root().place, Place::Partition { .. }) {
                return Err("no kernel of the image has an initramfs (/boot/initrd.img-VERSION, /boot/initramfs-VERSION.img), \
                     and none finds a root in an array or a volume group without one"
                    .to_owned());
            }
            self.log.line(
                unit::BOOTLOADER,
                "warning: no kernel of the image has an initramfs; each starts only with the drivers of the disk and of its file \
                 system built in",
            );
        }
        let more = storage::command_line(&self.layout);
        if !more.is_empty() {
            words = format!("{words} {more}").trim().to_owned();
        }
        let found = loader::find(tree, &system);
        let variables = self.host.efi_variables();
        if variables.is_none() || !matches!(found, Some(BootLoader::SystemdBoot { .. })) {
            loader::write_menu(tree, &self.layout, &system, &kernels, &words)?;
        }
        match (&found, self.layout.efi_system()) {
            (Some(found), Some(_)) => {
                // The last one that is written is the first of the firmware.
                for volume in self.layout.efi_systems().rev() {
                    let mount = volume.mount.as_deref().unwrap_or_default().trim_start_matches('/');
                    let file = loader::install(tree, mount, found, &self.layout, &system, &kernels, &words)?;
                    let text =
                        format!("{} is started by {file} of {}", system.name, volume.shown(&self.layout));
                    self.log.line(unit::BOOTLOADER, text);
                    if let Some(folder) = variables {
                        self.write_boot_entry(folder, volume, &system.name, file);
                    }
                }
            }
            (None, _) if variables.is_some() => {
                return Err(
                    "the image has no boot loader for UEFI: neither shim and GRUB nor systemd-boot; \
                     install one in it"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if variables.is_none() {
            self.install_for_bios(tree)?;
        }
        Ok(())
    }

    /// Makes an initramfs for each kernel that starts the arrays and groups, if there are any. Returns the kernels with their files.
    fn make_initramfs(
        &self,
        tree: &LayerTree,
        kernels: Vec<KernelFiles>,
    ) -> Result<Vec<KernelFiles>, String> {
        let programs = storage::prepare(tree, &self.layout, &kernels)?;
        if programs.is_empty() {
            return Ok(kernels);
        }
        self.bind_kernel()?;
        for program in &programs {
            self.host.run(program)?;
            self.log.line(
                unit::BOOTLOADER,
                format!("{} made an initramfs for the arrays and groups", program.name),
            );
        }
        loader::kernels_of(tree)
    }

    fn bind_kernel(&self) -> Result<(), String> {
        if !self.is_bound.get() {
            let bound = self.host.bind_kernel();
            bound.map_err(|source| format!("showing /dev to the new system: {source}"))?;
            self.is_bound.set(true);
        }
        Ok(())
    }

    fn write_boot_entry(&self, folder: &Path, volume: &LayoutVolume, name: &str, file: String) {
        let Place::Partition { disk, number } = volume.place else { return };
        let placed = self.layout.disks.get(disk).and_then(|disk| disk.placed.get(number - 1));
        let Some(part) = placed else { return };
        let entry = NvramEntry {
            description: if disk == 0 { name.to_owned() } else { format!("{name} (disk {})", disk + 1) },
            partition: u32::try_from(number).unwrap_or(u32::MAX),
            first_lba: part.first_lba,
            sectors: part.last_lba + 1 - part.first_lba,
            guid: self.layout.guid(disk, number),
            file,
        };
        let text = match Nvram::new(folder).install(&entry, &self.gone) {
            Ok(number) => format!("boot entry {number:04X} is the first of the firmware"),
            Err(reason) => format!(
                "warning: the firmware refused the boot entry: {reason}; the system starts by the fallback path, /EFI/BOOT"
            ),
        };
        self.log.line(unit::BOOTLOADER, text);
    }

    fn install_for_bios(&self, tree: &LayerTree) -> Result<(), String> {
        let names = ["grub-install", "grub2-install"];
        let folders = ["usr/sbin", "usr/bin"];
        let name = names
            .into_iter()
            .find(|name| folders.iter().any(|folder| tree.has_file(&format!("{folder}/{name}"))));
        let modules = tree.list("usr/lib/grub/i386-pc");
        let Some(name) = name.filter(|_| !modules.is_empty()) else {
            return Err("the image has no boot loader for BIOS, by which this machine starts: it needs \
                 grub-install and the modules i386-pc (package grub-pc-bin, grub2-pc)"
                .to_owned());
        };
        self.bind_kernel()?;
        let bootable = self.disks.iter().zip(&self.layout.disks).filter(|(_, layout)| layout.has_bios_boot);
        for (disk, _) in bootable {
            self.host.run(&Program {
                name: name.to_owned(),
                arguments: vec![
                    "--target=i386-pc".to_owned(),
                    "--boot-directory=/boot".to_owned(),
                    format!("/dev/{}", disk.name),
                ],
                in_root: true,
                limit: GRUB_LIMIT,
            })?;
        }
        Ok(())
    }

    /// Writes the seed of cloud-init and what the first start of a copy needs.
    ///
    /// # Errors
    /// Returns a sentence when the file system refuses it.
    pub fn write_seed(&self, tree: &LayerTree, files: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        let meta_data = format!("instance-id: {}\n", self.job.job_id).into_bytes();
        let write = |name: &str, bytes: &[u8]| {
            let path = format!("{SEED}/{name}");
            tree.write_file(&path, bytes, Some(0o600)).map_err(|source| format!("writing /{path}: {source}"))
        };
        write("meta-data", files.get("meta-data").unwrap_or(&meta_data))?;
        write("user-data", files.get("user-data").map_or(b"#cloud-config\n", Vec::as_slice))?;
        for name in ["network-config", "vendor-data"] {
            if let Some(bytes) = files.get(name) {
                write(name, bytes)?;
            }
        }
        let other = |path: &str, bytes: &[u8], mode| {
            tree.write_file(path, bytes, Some(mode)).map_err(|source| format!("writing /{path}: {source}"))
        };
        // An empty file makes systemd create an id at the first start; a copied one would be on two machines.
        other("etc/machine-id", b"", 0o444)?;
        if tree.has_file("etc/selinux/config") {
            // Layers have no labels. The system sets them at its first start.
            other(".autorelabel", b"-F\n", 0o644)?;
        }
        Ok(())
    }

    /// Copies the log into the new system, flushes and unmounts everything.
    ///
    /// # Errors
    /// Returns a sentence when the disk refuses it.
    pub fn finish(&self, tree: LayerTree) -> Result<(), String> {
        let log = self.log.tail(crate::log::RING_BYTES);
        tree.write_file(LOG_FILE, log.as_bytes(), Some(0o600))
            .map_err(|source| format!("writing /{LOG_FILE}: {source}"))?;
        self.flush(&tree)?;
        drop(tree);
        rustix::fs::sync();
        self.unmount()
    }

    /// Unmounts everything, and stops arrays and groups that this run started.
    ///
    /// # Errors
    /// Returns a sentence when something stays in use.
    pub fn unmount(&self) -> Result<(), String> {
        self.is_bound.set(false);
        self.host.unmount_all().map_err(|source| format!("unmounting the new root: {source}"))?;
        self.stop_storage()
    }
}
