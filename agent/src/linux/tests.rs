//! The steps without root: a host whose mounts are folders, whose programs are a list, and whose partitions are files.

use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsRawFd as _, BorrowedFd},
    path::{Path, PathBuf},
    sync::Mutex,
};

use proptest::prelude::*;
use recipe::partition::default_linux_layout;
use recipe::{FsFormat, Partition, PartitionSize, PartitionType};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::*;
use crate::device::{Disk, FileDisk};
use crate::discovery::read_medium;
use crate::facts::DiskFacts;
use crate::gpt::Table;
use crate::log::Log;
use crate::outcome::Outcome;
use crate::run::{Machine, run};
use crate::test_kit::{FakeHttp, VirtualClock, disk_image, is_filled, job_json, task_image};

mod hostile;
mod loaders;
mod loop_device;
mod several_disks;

const JOB: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const GIB: u64 = 1 << 30;

fn job() -> Uuid {
    JOB.parse().unwrap()
}

fn layout() -> Layout {
    Layout::new(&default_linux_layout(), 4 * GIB, 512, job()).unwrap()
}

/// A host without root.
struct FakeHost {
    folder: tempfile::TempDir,
    root: PathBuf,
    efi: Option<PathBuf>,
    programs: Mutex<Vec<Program>>,
    modules: Mutex<Vec<String>>,
    /// The paths that were flushed, each with whether the stamp was there.
    flushed: Mutex<Vec<(PathBuf, bool)>>,
    /// Programs that the medium does not have.
    lacks: Vec<&'static str>,
    /// The physical volumes of the machine with their groups, as `lvm pvs` prints them.
    groups: &'static str,
    /// The block devices that the kernel makes of others before the run.
    arrays: BTreeMap<PathBuf, Vec<PathBuf>>,
    /// Making a file system with this label makes an empty root.
    root_label: String,
}

impl FakeHost {
    fn new(is_efi: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let efi = folder.path().join("efivars");
        fs::create_dir(&efi).unwrap();
        Self {
            efi: is_efi.then_some(efi),
            root,
            folder,
            programs: Mutex::default(),
            modules: Mutex::default(),
            flushed: Mutex::default(),
            lacks: Vec::new(),
            groups: "",
            root_label: "root".to_owned(),
            arrays: BTreeMap::new(),
        }
    }

    fn programs(&self) -> Vec<String> {
        let programs = self.programs.lock().unwrap();
        programs.iter().map(|program| format!("{} {}", program.name, program.arguments.join(" "))).collect()
    }

    fn read(&self, path: &str) -> String {
        let path = self.folder.path().join("root").join(path);
        fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    }

    fn has(&self, path: &str) -> bool {
        self.folder.path().join("root").join(path).exists()
    }
}

impl Host for FakeHost {
    fn partitions(&self, disk: &str, expected: &[(u64, u64)]) -> Result<Vec<PathBuf>, String> {
        let device = |(index, (_, sectors)): (usize, &(u64, u64))| {
            let path = self.folder.path().join(format!("{disk}{}", index + 1));
            fs::File::create(&path).unwrap().set_len(sectors * 512).unwrap();
            path
        };
        Ok(expected.iter().enumerate().map(device).collect())
    }

    fn partition(&self, disk: &str, number: usize, (_, sectors): (u64, u64)) -> Result<PathBuf, String> {
        let path = self.folder.path().join(format!("{disk}{number}"));
        fs::File::create(&path).unwrap().set_len(sectors * 512).unwrap();
        Ok(path)
    }

    fn has_program(&self, name: &str) -> bool {
        !self.lacks.contains(&name)
    }

    fn load_modules(&self, names: &[&str]) {
        self.modules.lock().unwrap().extend(names.iter().map(|name| (*name).to_owned()));
    }

    fn block_device(&self, device: &Path) -> Result<PathBuf, String> {
        Ok(device.to_owned())
    }

    fn run(&self, program: &Program) -> Result<(), String> {
        if program.name == "mke2fs" && program.arguments.iter().any(|word| word == &self.root_label) {
            fs::remove_dir_all(self.root()).unwrap();
            fs::create_dir(self.root()).unwrap();
        }
        self.programs.lock().unwrap().push(program.clone());
        Ok(())
    }

    fn output(&self, program: &Program) -> Result<String, String> {
        assert_eq!((program.name.as_str(), program.arguments[0].as_str()), ("lvm", "pvs"));
        Ok(self.groups.to_owned())
    }

    fn members(&self, device: &Path) -> Vec<PathBuf> {
        self.arrays.get(device).cloned().unwrap_or_default()
    }

    fn mount(&self, _: &Path, kind: &str, data: &str, at: &Path) -> std::io::Result<()> {
        // FAT has no owners: without the option it refuses those of an image.
        assert_eq!(kind == "vfat", data.split(',').any(|word| word == "quiet"), "{kind}: {data}");
        assert!(at == self.root() || at.starts_with("/proc/self/fd"), "{}", at.display());
        Ok(())
    }

    fn bind_kernel(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn unmount_all(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn flush(&self, folder: BorrowedFd<'_>) -> std::io::Result<()> {
        let folder = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
        let has_stamp = self.root.join(super::install::STAMP).exists();
        self.flushed.lock().unwrap().push((folder, has_stamp));
        Ok(())
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn efi_variables(&self) -> Option<&Path> {
        self.efi.as_deref()
    }

    fn is_privileged(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

pub(super) fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

const SYSTEM: &[(&str, &str)] = &[
    ("etc/os-release", "ID=ubuntu\nPRETTY_NAME=\"Ubuntu \\\" 22.04\"\n"),
    ("etc/fstab", "old\n"),
    ("etc/machine-id", "copied\n"),
    ("etc/default/grub", "GRUB_CMDLINE_LINUX=\"console=ttyS0 $(x)\"\n"),
    ("boot/vmlinuz-6.9.0-1", "kernel"),
    ("boot/vmlinuz-6.10.0-1", "kernel"),
    ("boot/initrd.img-6.10.0-1", "initramfs"),
];
const LOADER: &[(&str, &str)] = &[
    ("usr/lib/shim/shimx64.efi.signed", "shim"),
    ("usr/lib/shim/mmx64.efi", "mok"),
    ("usr/lib/shim/fbx64.efi", "fallback"),
    ("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "grub"),
];

/// A registry with an image of these layers, and a controller that takes reports.
pub(super) fn controller(layers: Vec<Vec<u8>>) -> FakeHttp {
    let digest = |bytes: &[u8]| format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    let ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    let config = json!({"rootfs": {"type": "layers", "diff_ids": ids}}).to_string().into_bytes();
    let described: Vec<Value> = layers
        .iter()
        .map(|layer| json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(layer), "size": layer.len()}))
        .collect();
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config), "size": config.len()},
        "layers": described,
    });
    let mut blobs: Vec<(String, Vec<u8>)> =
        layers.into_iter().chain([config]).map(|blob| (digest(&blob), blob)).collect();
    blobs.sort();
    FakeHttp::new(move |request| {
        if request.url.ends_with("/v2/os/root/manifests/1") {
            return Ok((200, Vec::new(), manifest.to_string().into_bytes()));
        }
        if let Some((_, blob)) = blobs.iter().find(|(digest, _)| request.url.ends_with(digest.as_str())) {
            return Ok((200, Vec::new(), blob.clone()));
        }
        Ok((if request.url.contains("/status-webhook/") { 200 } else { 404 }, Vec::new(), Vec::new()))
    })
}

fn recipe() -> Value {
    json!({"task_target": "install-linux.target", "oci_url": "c.test:1/os/root:1", "disk_hints": {"serial": "SER"}})
}

/// Installs onto an image file; another disk beside it may not change.
pub(super) fn install(
    host: &dyn Host,
    disk: &DiskFacts,
    path: &Path,
    http: &FakeHttp,
    recipe: &Value,
) -> Outcome {
    let recipe = serde_json::to_vec(recipe).unwrap();
    let image = task_image(
        &job_json("SN1", "2026-01-02T03:04:05Z"),
        "",
        &[
            ("recipe.json", &recipe),
            ("user-data", b"#cloud-config\npackages: []\n"),
            ("network-config", b"version: 2\n"),
        ],
    );
    let found = read_medium("sr0", image).unwrap().remove(0);
    let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
    let (_folder, other) = disk_image(8 << 20, 0xee);
    let other_facts =
        DiskFacts { name: "sdz".to_owned(), bytes: 8 << 20, sector: 512, ..DiskFacts::default() };
    let machine = Machine {
        http,
        foreign_http: http,
        clock: &clock,
        log: &log,
        disks: &|| vec![disk.clone(), other_facts.clone()],
        media: vec!["sr0".to_owned()],
        open: &|facts| {
            let path = if facts.name == "sdz" { &other } else { path };
            Ok(Box::new(FileDisk::open(path, facts.sector)?) as Box<dyn Disk>)
        },
        peek: &|facts| {
            let path = if facts.name == "sdz" { &other } else { path };
            Ok(Box::new(FileDisk::open_to_read(path, facts.sector)?) as Box<dyn Disk>)
        },
        drivers: &crate::stable_disks::DriverLoads::default,
        linux: host,
        inventory: &|| crate::inventory::read(Path::new("/nowhere"), Path::new("/nowhere")),
        medium: &crate::medium::open_medium,
        rescue: &crate::rescue::NoRescue,
        report_limit: None,
    };
    let (outcome, _) = run(&machine, &found);
    assert!(is_filled(&fs::read(&other).unwrap(), 0xee), "another disk was written");
    outcome
}

fn facts() -> DiskFacts {
    let serial = Some("SER".to_owned());
    DiskFacts { name: "sda".to_owned(), bytes: 2 * GIB, sector: 512, serial, ..DiskFacts::default() }
}

fn sparse_disk() -> (tempfile::TempDir, PathBuf) {
    disk_image(2 * GIB, 0)
}

fn failure(outcome: Outcome) -> (String, String) {
    match outcome {
        Outcome::Failed { step, message } => (step, message),
        Outcome::Success | Outcome::Reachable(_) => panic!("it succeeded"),
    }
}

#[test]
fn a_system_is_installed_with_its_own_loader_and_a_second_run_keeps_what_is_there() {
    let host = FakeHost::new(true);
    let (_folder, disk) = sparse_disk();
    let http =
        controller(vec![layer(SYSTEM), layer(LOADER), layer(&[("etc/late", "1"), ("etc/.wh.fstab", "")])]);
    assert_eq!(install(&host, &facts(), &disk, &http, &recipe()), Outcome::Success);
    let table = Table::read(&FileDisk::open(&disk, 512).unwrap()).unwrap().unwrap();
    assert_eq!(table.entries.len(), 3);
    assert_eq!(flag_of_protective_mbr(&disk), 0, "UEFI wants it");
    let programs = host.programs();
    assert_eq!(programs.len(), 2, "{programs:?}");
    assert!(
        programs[0].starts_with("mkfs.vfat -i ")
            && programs[1].contains("-O ^metadata_csum_seed,^orphan_file")
    );
    for (path, content) in [
        ("boot/efi/EFI/BOOT/BOOTX64.EFI", "shim"),
        ("boot/efi/EFI/BOOT/grubx64.efi", "grub"),
        ("boot/efi/EFI/BOOT/mmx64.efi", "mok"),
        ("boot/efi/EFI/ubuntu/shimx64.efi", "shim"),
        ("etc/machine-id", ""),
        ("etc/late", "1"),
        ("var/lib/cloud/seed/nocloud/user-data", "#cloud-config\npackages: []\n"),
        ("var/lib/cloud/seed/nocloud/network-config", "version: 2\n"),
        ("var/lib/cloud/seed/nocloud/meta-data", &format!("instance-id: {JOB}\n")),
    ] {
        assert_eq!(host.read(path), content, "{path}");
    }
    assert!(!host.has("boot/efi/EFI/BOOT/fbx64.efi"));
    let stub = host.read("boot/efi/EFI/BOOT/grub.cfg");
    assert!(
        stub.contains("configfile $prefix/grub.cfg") && stub == host.read("boot/efi/EFI/ubuntu/grub.cfg")
    );
    let menu = host.read("boot/grub/grub.cfg");
    assert!(menu.find("6.10.0").unwrap() < menu.find("6.9.0").unwrap(), "the newest kernel is the first");
    assert!(
        menu.contains(" ro console=ttyS0\n") && !menu.contains("$(x)") && !menu.contains("\\\""),
        "{menu}"
    );
    assert!(host.read("etc/fstab").contains(" / ext4 "));
    assert!(host.has("var/log/shoal-install/agent.log"));
    assert_eq!(fs::read_dir(host.efi.as_ref().unwrap()).unwrap().count(), 2);
    let root = fs::canonicalize(host.root()).unwrap();
    let flushed = host.flushed.lock().unwrap().clone();
    assert_eq!(
        flushed,
        [false, true].map(|stamp| [(root.clone(), stamp), (root.join("boot/efi"), stamp)]).concat(),
        "every volume, before the stamp and at the end"
    );

    fs::write(host.root().join("etc/kept"), "by the second run").unwrap();
    assert_eq!(install(&host, &facts(), &disk, &http, &recipe()), Outcome::Success);
    assert_eq!((host.programs().len(), host.has("etc/kept")), (2, true));
    // An installation that ended before its stamp begins again.
    fs::remove_file(host.root().join("var/lib/shoal/installed.json")).unwrap();
    assert_eq!(install(&host, &facts(), &disk, &http, &recipe()), Outcome::Success);
    assert_eq!((host.programs().len(), host.has("etc/kept")), (4, false));
}

#[test]
fn a_firmware_that_takes_no_boot_entry_is_a_warning_because_the_fallback_path_starts_the_system() {
    // No file can be made there, as in a memory of the firmware that is full.
    let host = FakeHost { efi: Some(PathBuf::from("/proc/self")), ..FakeHost::new(true) };
    let (_folder, disk) = sparse_disk();
    let http = controller(vec![layer(SYSTEM), layer(LOADER)]);
    assert_eq!(install(&host, &facts(), &disk, &http, &recipe()), Outcome::Success);
    assert!(host.has("boot/efi/EFI/BOOT/BOOTX64.EFI"));
    let log = host.read("var/log/shoal-install/agent.log");
    assert!(log.contains("boot entry") && log.contains("fallback"), "{log}");
}

#[test]
fn an_image_that_cannot_start_is_a_failure_of_the_boot_loader_in_words() {
    for (is_efi, layers, word) in [
        (true, vec![layer(SYSTEM)], "no boot loader for UEFI"),
        (false, vec![layer(SYSTEM), layer(LOADER)], "no boot loader for BIOS"),
        (true, vec![layer(&[("etc/os-release", "ID=x\n")]), layer(LOADER)], "no kernel"),
    ] {
        let (_folder, disk) = sparse_disk();
        let outcome = install(&FakeHost::new(is_efi), &facts(), &disk, &controller(layers), &recipe());
        let (step, message) = failure(outcome);
        assert_eq!(step, "bootloader-linux.service");
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn a_machine_that_starts_by_bios_gets_grub_from_inside_of_the_new_system() {
    let host = FakeHost::new(false);
    let (_folder, disk) = sparse_disk();
    let bios = layer(&[("usr/sbin/grub-install", "x"), ("usr/lib/grub/i386-pc/boot.img", "x")]);
    let http = controller(vec![layer(SYSTEM), bios]);
    assert_eq!(install(&host, &facts(), &disk, &http, &recipe()), Outcome::Success);
    let programs = host.programs.lock().unwrap();
    let last = programs.last().unwrap();
    assert_eq!((last.name.as_str(), last.in_root), ("grub-install", true));
    assert_eq!(last.arguments.last().unwrap(), "/dev/sda");
    assert_eq!(flag_of_protective_mbr(&disk), 0x80, "some BIOSes start only a disk with an active entry");
}

/// The flag of the first entry of an MBR.
fn flag_of_protective_mbr(disk: &Path) -> u8 {
    let mut mbr = [0; 512];
    FileDisk::open(disk, 512).unwrap().read_at(0, &mut mbr).unwrap();
    assert_eq!(mbr[450], 0xee);
    mbr[446]
}

#[test]
fn a_layout_without_a_place_for_the_loader_of_the_firmware_is_refused_before_the_first_write() {
    for (is_efi, word) in [(false, "BIOS boot partition"), (true, "ef00")] {
        let host = FakeHost::new(is_efi);
        let (_folder, disk) = disk_image(4 << 20, 0xdd);
        let facts = DiskFacts { bytes: 4 << 20, ..facts() };
        let mut recipe = recipe();
        recipe["partition_layout"] = json!([{"size": "100%", "type_guid": "8300", "format": "ext4"}]);
        let http = controller(vec![layer(SYSTEM), layer(LOADER)]);
        let (step, message) = failure(install(&host, &facts, &disk, &http, &recipe));
        assert!(step == "partition.service" && message.contains(word), "{message}");
        assert!(message.contains("nothing was written"), "{message}");
        assert!(host.programs().is_empty());
        assert!(is_filled(&fs::read(&disk).unwrap(), 0xdd), "nothing was written");
    }
}

#[test]
fn a_disk_with_sectors_of_4096_bytes_is_refused_on_bios_before_the_first_write() {
    let host = FakeHost::new(false);
    let (_folder, disk) = sparse_disk();
    let facts = DiskFacts { sector: 4096, ..facts() };
    let http = controller(vec![layer(SYSTEM), layer(LOADER)]);
    let (step, message) = failure(install(&host, &facts, &disk, &http, &recipe()));
    assert!(step == "partition.service" && message.contains("sectors of 4096 bytes"), "{message}");
    assert!(host.programs().is_empty());
}

#[test]
fn systemd_boot_gets_kernels_and_entries_on_the_partition_that_it_can_read() {
    let host = FakeHost::new(true);
    let (_folder, disk) = sparse_disk();
    let program = layer(&[("usr/lib/systemd/boot/efi/systemd-bootx64.efi", "sd")]);
    let outcome = install(&host, &facts(), &disk, &controller(vec![layer(SYSTEM), program]), &recipe());
    assert_eq!(outcome, Outcome::Success);
    assert_eq!(host.read("boot/efi/EFI/BOOT/BOOTX64.EFI"), "sd");
    let entry = host.read("boot/efi/loader/entries/ubuntu-6.10.0-1.conf");
    assert!(
        entry.contains("linux /ubuntu/vmlinuz-6.10.0-1\ninitrd /ubuntu/initrd.img-6.10.0-1\n"),
        "{entry}"
    );
    assert_eq!(host.read("boot/efi/ubuntu/vmlinuz-6.10.0-1"), "kernel");
}

#[test]
fn nothing_is_written_when_image_or_layout_cannot_be_used() {
    let mut too_large = recipe();
    too_large["partition_layout"] = json!([{"size": "4G", "type_guid": "8300", "format": "ext4"}]);
    let mut no_root = recipe();
    no_root["partition_layout"] = json!([{"size": "1G", "type_guid": "ef00", "format": "vfat"}]);
    let mut no_image = recipe();
    no_image["oci_url"] = json!("c.test:1/os/other:1");
    for (recipe, expected) in
        [(too_large, "partition.service"), (no_root, "partition.service"), (no_image, "image-linux.service")]
    {
        let (_folder, disk) = disk_image(4 << 20, 0xdd);
        let facts = DiskFacts { bytes: 4 << 20, ..facts() };
        let http = controller(vec![layer(SYSTEM)]);
        let (step, message) = failure(install(&FakeHost::new(true), &facts, &disk, &http, &recipe));
        assert_eq!(step, expected, "{message}");
        assert!(is_filled(&fs::read(&disk).unwrap(), 0xdd));
    }
}

#[test]
fn the_root_is_the_named_one_or_the_first_that_can_be_one() {
    let part = |format, mount: Option<&str>| Partition {
        mount: mount.map(str::to_owned),
        ..Partition::new(PartitionSize::Bytes(GIB), PartitionType::LINUX_FILESYSTEM, format)
    };
    let root =
        |parts: &[Partition]| Layout::new(parts, 8 * GIB, 512, job()).map(|layout| layout.root().place);
    let second = Ok(Place::Partition { disk: 0, number: 2 });
    assert_eq!(
        root(&[part(FsFormat::Swap, None), part(FsFormat::Xfs, None), part(FsFormat::Ext4, None)]),
        second
    );
    assert_eq!(root(&[part(FsFormat::Xfs, Some("/srv")), part(FsFormat::Ext4, None)]), second);
    assert_eq!(root(&[part(FsFormat::Xfs, None), part(FsFormat::Ext4, Some("/"))]), second);
    assert!(root(&[part(FsFormat::Vfat, None)]).is_err());
    let nested = [
        part(FsFormat::Xfs, Some("/var/log")),
        part(FsFormat::Xfs, Some("/var")),
        part(FsFormat::Ext4, None),
    ];
    let layout = Layout::new(&nested, 8 * GIB, 512, job()).unwrap();
    let mounts: Vec<_> = layout.mounted().iter().filter_map(|volume| volume.mount.as_deref()).collect();
    assert_eq!(mounts, ["/", "/var", "/var/log"]);
}

#[test]
fn identifiers_are_those_of_the_job_and_fstab_names_them() {
    assert_eq!(layout(), layout());
    let other = Layout::new(&default_linux_layout(), 4 * GIB, 512, Uuid::nil()).unwrap();
    assert_ne!(other.root().uuid, layout().root().uuid);
    let fstab = super::texts::fstab(&layout());
    let root = layout().root().uuid;
    assert!(fstab.contains(&format!("UUID={root} / ext4 errors=remount-ro 0 1\n")), "{fstab}");
    let efi = layout().efi_system().unwrap().identity();
    assert!(
        efi.len() == 9 && fstab.contains(&format!("UUID={efi} /boot/efi vfat umask=0077 0 2\n")),
        "{fstab}"
    );
    let program = layout().efi_system().unwrap().mkfs(Path::new("/dev/sda1")).unwrap();
    assert_eq!(program.arguments[1], efi.replace('-', "").to_lowercase());
}

#[test]
fn options_of_a_recipe_keep_the_settings_that_the_loader_needs() {
    let mut parts = default_linux_layout();
    parts[2].mkfs_options = ["-O", "^has_journal", "-m", "1"].map(str::to_owned).into();
    let layout = Layout::new(&parts, 4 * GIB, 512, job()).unwrap();
    let words = layout.root().mkfs(Path::new("/dev/sda3")).unwrap().arguments.join(" ");
    assert!(words.ends_with("-m 1 -O ^metadata_csum_seed,^orphan_file,^has_journal /dev/sda3"), "{words}");
    parts[2].format = FsFormat::Xfs;
    parts[2].mkfs_options.clear();
    let layout = Layout::new(&parts, 4 * GIB, 512, job()).unwrap();
    let words = layout.root().mkfs(Path::new("/dev/sda3")).unwrap().arguments.join(" ");
    assert!(words.contains("-i sparse=1,nrext64=0"), "{words}");
}

#[test]
fn a_boot_entry_is_written_once_first_in_the_order_and_entries_of_the_old_disk_go() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(format!("{name}-8be4df61-93ca-11d2-aa0d-00e098032b8c"));
    let entry = |guid: u128, name: &str| NvramEntry {
        description: name.to_owned(),
        partition: 1,
        first_lba: 2048,
        sectors: 1 << 20,
        guid: Uuid::from_u128(guid),
        file: "\\EFI\\ubuntu\\shimx64.efi".to_owned(),
    };
    let variable = |data: &[u8]| [&7_u32.to_le_bytes()[..], data].concat();
    fs::write(file("Boot0000"), variable(&entry(1, "old").encode())).unwrap();
    fs::write(file("Boot0003"), variable(&entry(2, "another disk").encode())).unwrap();
    fs::write(file("Boot0004"), variable(b"\x01\0\0\0\x04\0P\0X\0E\0\0\0\x7f\xff\x04\0")).unwrap();
    fs::write(file("BootOrder"), variable(&[0, 0, 9, 0, 4, 0, 3, 0])).unwrap();
    let nvram = Nvram::new(folder.path());
    let order = || fs::read(file("BootOrder")).unwrap()[4..10].to_vec();
    for _ in 0..2 {
        assert_eq!(nvram.install(&entry(7, "new"), &[Uuid::from_u128(1)]).unwrap(), 0);
        assert_eq!(order(), [0, 0, 4, 0, 3, 0]);
        assert_eq!(fs::read(file("Boot0000")).unwrap()[4..], entry(7, "new").encode());
    }
    assert_eq!(partition_of(&entry(7, "new").encode()), Some(Uuid::from_u128(7)));
    fs::remove_file(file("BootOrder")).unwrap();
    fs::create_dir(file("BootOrder")).unwrap();
    assert!(nvram.install(&entry(8, "x"), &[]).is_err(), "an order that cannot be read is not written");
}

#[test]
fn a_swap_area_has_its_header_and_needs_room() {
    let (_folder, path) = disk_image(1 << 20, 0);
    let disk = FileDisk::open(&path, 512).unwrap();
    super::swap::make(&disk, job(), Some("swap")).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(&bytes[4086..4096], b"SWAPSPACE2");
    assert_eq!((bytes[1024], bytes[1028], &bytes[1036..1052]), (1, 255, &job().as_bytes()[..]));
    let (_folder, small) = disk_image(8192, 0);
    assert!(super::swap::make(&FileDisk::open(&small, 512).unwrap(), job(), None).is_err());
}

#[test]
fn a_program_is_bounded_in_time_and_its_error_is_shown() {
    let host = LinuxHost::default();
    let run = |script: &str, limit: u64| {
        host.run(&Program {
            name: "sh".to_owned(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            in_root: false,
            limit: std::time::Duration::from_millis(limit),
        })
    };
    assert_eq!(run("exit 0", 60_000), Ok(()));
    let failed =
        run("head -c 100000 /dev/zero | tr '\\0' x; echo the reason >&2; exit 3", 60_000).unwrap_err();
    assert!(failed.ends_with("the reason") && failed.len() < 5000, "{failed}");
    assert!(run("sleep 600", 50).unwrap_err().contains("did not end"));
    let missing = Program {
        name: "no-such-program".to_owned(),
        arguments: vec![],
        in_root: false,
        limit: std::time::Duration::from_secs(1),
    };
    assert!(host.run(&missing).unwrap_err().contains("not on this medium"));
}

#[test]
fn a_program_that_leaves_another_one_behind_is_not_waited_for() {
    let host = LinuxHost::default();
    let shell = |script: &str, seconds| Program {
        name: "sh".to_owned(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        in_root: false,
        limit: std::time::Duration::from_secs(seconds),
    };
    let begun = std::time::Instant::now();
    // The background program holds the pipes for a minute.
    let failed = host.run(&shell("echo the reason >&2; sleep 60 & exit 1", 60)).unwrap_err();
    assert!(failed.contains("the reason"), "{failed}");
    let ended = std::time::Instant::now();
    assert_eq!(host.run(&shell("sleep 60 & exit 0", 60)), Ok(()));
    // The time for a killed program is not spent on one that succeeded.
    assert!(ended.elapsed() < std::time::Duration::from_secs(8), "{:?}", ended.elapsed());
    let long = host.output(&shell("echo first; yes 0123456789 | head -n 9000", 60)).unwrap();
    assert!(long.starts_with("first\n") && long.len() == 6 + 9000 * 11, "{} bytes", long.len());
    let cut = host.output(&shell("yes 0123456789 | head -n 100000", 60)).unwrap_err();
    assert!(cut.contains("more than 1048576 bytes"), "{cut}");
    assert!(host.run(&shell("sleep 60", 0)).unwrap_err().contains("did not end within 0 s"));
    assert!(begun.elapsed() < std::time::Duration::from_secs(50));
}

#[test]
fn words_that_name_the_disks_of_another_machine_are_left_out() {
    let words = "GRUB_CMDLINE_LINUX=\"rd.lvm.lv=rhel/root rd.md.uuid=1:2 rd.luks.uuid=x resume=/dev/mapper/rhel-swap \
                 rootflags=subvol=@ root=UUID=x console=ttyS0 quiet\"\n";
    assert_eq!(super::texts::command_line(words), "console=ttyS0 quiet");
}

proptest! {
    #[test]
    fn any_bytes_as_a_load_option_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = partition_of(&bytes);
    }

    #[test]
    fn any_text_of_an_image_leaves_a_menu_without_quotes_and_variables(name in "\\PC{0,80}", words in "\\PC{0,80}") {
        let system = OsRelease::parse(&format!("ID={name}\nNAME=\"{name}\"\n"));
        prop_assert!(!system.id.contains(['/', '\\']) && !system.id.starts_with('.'));
        let words = super::texts::command_line(&format!("GRUB_CMDLINE_LINUX=\"{words}\"\n"));
        let menu = super::texts::grub_menu(&layout(), &system, &[], &words);
        prop_assert!(!words.contains(['$', '"', '\'', '\n', ';']) && !menu.contains('`'));
    }

    #[test]
    fn any_layout_that_fits_has_volumes_inside_the_disk_and_one_root(
        sizes in proptest::collection::vec(1_u64..2000, 1..8),
        sector in prop::sample::select(vec![512_u64, 4096]),
    ) {
        let part = |mib: &u64| Partition::new(PartitionSize::Bytes(mib << 20), PartitionType::LINUX_FILESYSTEM, FsFormat::Ext4);
        let parts: Vec<_> = sizes.iter().map(part).collect();
        if let Ok(layout) = Layout::new(&parts, 8 * GIB, sector, job()) {
            prop_assert_eq!(layout.mounted().len(), 1);
            prop_assert!(layout.disks[0].placed.iter().all(|part| (part.last_lba + 1) * sector <= 8 * GIB));
        }
    }
}
