//! A small system onto an image file with real programs and real mounts: each partition is a loop device. Foreign programs
//! check the result.

use std::process::Command;

use super::*;

/// [`LinuxHost`] over loop devices. Kernels without FAT are common in test machines: the EFI system partition is made, and
/// its files go into a plain folder.
struct LoopHost {
    inner: LinuxHost,
    image: PathBuf,
    devices: Mutex<Vec<PathBuf>>,
}

fn tool(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|why| panic!("{program}: {why}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text.trim().to_owned()
}

impl LoopHost {
    fn detach(&self) {
        for device in self.devices.lock().unwrap().drain(..) {
            tool("losetup", &["-d", device.to_str().unwrap()]);
        }
    }
}

impl Drop for LoopHost {
    fn drop(&mut self) {
        let _ = self.inner.unmount_all();
        for device in self.devices.lock().unwrap().drain(..) {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
    }
}

impl Host for LoopHost {
    fn partitions(&self, _: &str, expected: &[(u64, u64)]) -> Result<Vec<PathBuf>, String> {
        self.detach();
        let image = self.image.to_str().unwrap();
        let attach = |(start, sectors): &(u64, u64)| {
            let (offset, limit) = ((start * 512).to_string(), (sectors * 512).to_string());
            PathBuf::from(tool("losetup", &["--find", "--show", "-o", &offset, "--sizelimit", &limit, image]))
        };
        let devices: Vec<PathBuf> = expected.iter().map(attach).collect();
        self.devices.lock().unwrap().clone_from(&devices);
        Ok(devices)
    }

    fn partition(&self, _: &str, _: usize, place: (u64, u64)) -> Result<PathBuf, String> {
        Ok(self.partitions("", &[place])?.remove(0))
    }

    fn run(&self, program: &Program) -> Result<(), String> {
        self.inner.run(program)
    }

    fn output(&self, program: &Program) -> Result<String, String> {
        self.inner.output(program)
    }

    fn has_program(&self, name: &str) -> bool {
        self.inner.has_program(name)
    }

    fn load_modules(&self, names: &[&str]) {
        self.inner.load_modules(names);
    }

    fn block_device(&self, device: &Path) -> Result<PathBuf, String> {
        self.inner.block_device(device)
    }

    fn members(&self, device: &Path) -> Vec<PathBuf> {
        self.inner.members(device)
    }

    fn mount(&self, device: &Path, kind: &str, data: &str, at: &Path) -> std::io::Result<()> {
        if kind == "vfat" { Ok(()) } else { self.inner.mount(device, kind, data, at) }
    }

    fn bind_kernel(&self) -> std::io::Result<()> {
        self.inner.bind_kernel()
    }

    fn unmount_all(&self) -> std::io::Result<()> {
        self.inner.unmount_all()
    }

    fn root(&self) -> &Path {
        self.inner.root()
    }

    fn efi_variables(&self) -> Option<&Path> {
        Some(Path::new("/nowhere/efivars"))
    }

    fn is_privileged(&self) -> bool {
        true
    }
}

#[test]
#[ignore = "needs root, loop devices, the programs of the full medium and sfdisk, blkid, e2fsck, xfs_repair, fsck.vfat; run by .ci/run"]
fn a_small_system_on_real_file_systems_passes_the_checks_of_foreign_programs() {
    let (folder, disk) = sparse_disk();
    let host = LoopHost {
        inner: LinuxHost::at(&folder.path().join("mounted")),
        image: disk.clone(),
        devices: Mutex::default(),
    };
    let mut recipe = recipe();
    recipe["partition_layout"] = json!([
        {"size": "512M", "type_guid": "ef00", "format": "vfat", "label": "EFI"},
        {"size": "64M", "type_guid": "8200", "format": "swap", "label": "swap"},
        {"size": "400M", "type_guid": "8300", "format": "xfs", "mount": "/var/log", "label": "log"},
        {"size": "200M", "type_guid": "8300", "format": "btrfs", "mount": "/srv"},
        {"size": "100%", "type_guid": "8300", "format": "ext4", "mount": "/", "label": "root", "mkfs_options": ["-m", "1", "-O", "^has_journal"]},
    ]);
    let http = controller(vec![
        layer(SYSTEM),
        layer(LOADER),
        layer(&[("var/log/old", "log"), ("srv/data", "data")]),
    ]);
    for _ in 0..2 {
        assert_eq!(install(&host, &facts(), &disk, &http, &recipe), Outcome::Success);
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(host.root().to_str().unwrap()), "something stayed mounted");
    }
    let path = |text: &PathBuf| text.to_str().unwrap().to_owned();
    assert!(tool("sfdisk", &["--verify", &path(&disk)]).contains("No errors detected"));
    let devices = host.devices.lock().unwrap().iter().map(path).collect::<Vec<_>>();
    tool("fsck.vfat", &["-n", &devices[0]]);
    tool("xfs_repair", &["-n", &devices[2]]);
    tool("btrfs", &["check", "--readonly", &devices[3]]);
    tool("e2fsck", &["-fn", &devices[4]]);
    let features = tool("dumpe2fs", &["-h", &devices[4]]);
    assert!(
        !features.contains("has_journal")
            && !features.contains("orphan_file")
            && !features.contains("metadata_csum_seed")
    );
    let layout = {
        let task =
            crate::task::Task::parse(&[("recipe.json".to_owned(), recipe.to_string().into_bytes())].into());
        let crate::task::Target::InstallLinux(task) = task.unwrap().target else { panic!() };
        Layout::new(&task.layout, 2 * GIB, 512, job()).unwrap()
    };
    for (volume, device) in layout.volumes.iter().zip(&devices) {
        let found = tool("blkid", &["-p", "-o", "value", "-s", "UUID", device]);
        assert_eq!(found, volume.identity(), "{device}");
    }
    assert_eq!(tool("blkid", &["-p", "-o", "value", "-s", "TYPE", &devices[1]]), "swap");
}

#[test]
#[ignore = "needs root, loop devices and the programs of the full medium; run by .ci/run"]
fn file_systems_that_were_made_smaller_than_their_partition_are_grown_and_read_back() {
    use crate::file_system::{Found, Grown, grow, read};

    for (program, words) in [
        ("mke2fs", vec!["-q", "-F", "-t", "ext4"]),
        ("mkfs.xfs", vec!["-q", "-f"]),
        ("mkfs.btrfs", vec!["-q", "-f"]),
    ] {
        let (folder, disk) = sparse_disk();
        let small = folder.path().join("small");
        fs::File::create(&small).unwrap().set_len(400 << 20).unwrap();
        tool(program, &[&words[..], &[small.to_str().unwrap()]].concat());
        let host = LoopHost {
            inner: LinuxHost::at(&folder.path().join("mounted")),
            image: disk.clone(),
            devices: Mutex::default(),
        };
        let (from, to) = (1 << 20, 1025 << 20);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (of, onto) = (format!("if={}", text(&small)), format!("of={}", text(&disk)));
        tool("dd", &[&of, &onto, "bs=1M", "seek=1", "conv=notrunc", "status=none"]);
        let grown = Grown { number: 1, range: from..to };
        let open = || Ok(Box::new(FileDisk::open(&disk, 512)?) as Box<dyn Disk>);
        let found = read(&*open().unwrap(), &grown.range).unwrap();
        assert!(matches!(found, Found::Growable { bytes, .. } if bytes <= 400 << 20), "{program}: {found:?}");
        let said = grow(&host, "loop", &grown, found, &open).unwrap();
        assert!(said.contains("grew from"), "{program}: {said}");
        let again =
            grow(&host, "loop", &grown, read(&*open().unwrap(), &grown.range).unwrap(), &open).unwrap();
        assert!(again.contains("all of it"), "{program}: {again}");
    }
}
