//! Power lost before every effect of the targets that write a whole disk, and the job run again. Installations of Linux are in
//! `linux/tests/several_disks.rs`.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use beacon::Message;
use serde_json::json;

use super::media_tests::{heard, medium, volume};
use super::tests::controller;
use crate::device::{Disk as _, FileDisk};
use crate::discovery::{FoundTask, read_medium};
use crate::gpt::Table;
use crate::linux::{Host, LinuxHost, Program};
use crate::medium::Medium;
use crate::outcome::Outcome;
use crate::test_kit::cut::{Cut, CutHost, Room};
use crate::test_kit::{FakeHttp, bootable_image};

const MIB: u64 = 1 << 20;
/// Where the partition of [`bootable_image`] of 4 MiB is.
const PARTITION: std::ops::Range<u64> = MIB..3 * MIB;

/// Runs the job with the power cut before each effect in turn, and then again. `never` sees the disk after each cut, `check` after
/// the second run. Returns the number of effects.
fn cut_everywhere(
    run: &dyn Fn(&Room, &Cut) -> Outcome,
    check: &dyn Fn(&FileDisk),
    never: &dyn Fn(&FileDisk),
) -> usize {
    let mut effects = 0;
    loop {
        let (room, cut) = (Room::new(&[14 * MIB, 14 * MIB]), Cut::after(effects));
        let outcome = run(&room, &cut);
        let disk = FileDisk::open(room.path(0), 512).unwrap();
        if !cut.is_off() {
            assert_eq!(outcome, Outcome::Success);
            check(&disk);
            room.assert_untouched(1);
            return effects;
        }
        assert_ne!(outcome, Outcome::Success, "effect {effects} was lost without an error");
        never(&disk);
        room.assert_untouched(1);
        assert_eq!(run(&room, &Cut::never()), Outcome::Success, "effect {effects}");
        check(&disk);
        room.assert_untouched(1);
        effects += 1;
    }
}

/// Whether the partition of the image is on the disk.
fn holds(disk: &FileDisk, image: &[u8]) -> bool {
    let mut bytes = vec![0; (PARTITION.end - PARTITION.start) as usize];
    disk.read_at(PARTITION.start, &mut bytes).unwrap();
    bytes == image[PARTITION.start as usize..PARTITION.end as usize]
}

fn assert_no_half_image(disk: &FileDisk, image: &[u8]) {
    if Table::read(disk).unwrap().is_some() {
        assert!(holds(disk, image), "a table leads to an image that is not whole");
    }
}

#[test]
fn power_lost_at_every_effect_of_an_image_leaves_no_half_image_that_boots_and_the_second_run_completes_it() {
    let image = bootable_image(4 * MIB, 512);
    let recipe = json!({
        "task_target": "install-image.target", "oci_url": "c.test:1/os/disk:1", "disk_hints": {"serial": "SER-sda"},
    });
    let http = controller(image.clone(), "application/octet-stream");
    let run = |room: &Room, cut: &Cut| room.run(&http, &LinuxHost::default(), &recipe, cut);
    let check = |disk: &FileDisk| {
        let table = Table::read(disk).unwrap().unwrap();
        assert!(holds(disk, &image) && table.range(1).unwrap() == (MIB..13 * MIB));
    };
    assert!(cut_everywhere(&run, &check, &|disk| assert_no_half_image(disk, &image)) > 5);
}

#[test]
fn power_lost_at_every_effect_of_an_image_from_the_medium_is_repaired_by_the_second_run_which_says_success() {
    let image = bootable_image(4 * MIB, 512);
    let http = FakeHttp::statuses([]);
    let run = |room: &Room, cut: &Cut| {
        let medium = Arc::new(medium("", volume(&image, &image)));
        let found = read_medium("sr0", Arc::clone(&medium.image)).unwrap().remove(0);
        let open = |_: &FoundTask| Ok(Arc::clone(&medium) as Arc<dyn Medium>);
        let outcome = room.run_found(&http, &LinuxHost::default(), (&found, &open), cut);
        let said = heard(&medium, "");
        assert_eq!(outcome == Outcome::Success, said.last() == Some(&Message::Success), "{said:?}");
        outcome
    };
    let check = |disk: &FileDisk| {
        let table = Table::read(disk).unwrap().unwrap();
        assert!(holds(disk, &image) && table.range(1).unwrap() == (MIB..13 * MIB));
    };
    assert!(cut_everywhere(&run, &check, &|disk| assert_no_half_image(disk, &image)) > 5);
    assert!(http.requests().is_empty(), "a machine without a network sent a request");
}

/// The NTFS of a prepared image, which a program mounts. What was not unmounted before the power was lost is not on the disk.
struct WindowsHost {
    folder: tempfile::TempDir,
    root: PathBuf,
}

impl WindowsHost {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("ntfs/Windows/System32")).unwrap();
        Self { root: folder.path().join("root"), folder }
    }

    fn answer(&self) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("ntfs/Windows/Panther/unattend.xml")).ok()
    }
}

impl Host for WindowsHost {
    fn partitions(&self, _: &str, _: &[(u64, u64)]) -> Result<Vec<PathBuf>, String> {
        Err("no target of a whole disk asks for all partitions".to_owned())
    }

    fn partition(&self, disk: &str, number: usize, place: (u64, u64)) -> Result<PathBuf, String> {
        assert_eq!(place, (PARTITION.start / 512, (PARTITION.end - PARTITION.start) / 512));
        Ok(PathBuf::from(format!("/dev/{disk}{number}")))
    }

    fn run(&self, program: &Program) -> Result<(), String> {
        assert_eq!((program.name.as_str(), program.arguments[0].as_str()), ("ntfs-3g", "/dev/sda1"));
        std::fs::remove_dir(&self.root).unwrap();
        std::fs::rename(self.folder.path().join("ntfs"), &self.root).unwrap();
        Ok(())
    }

    fn output(&self, program: &Program) -> Result<String, String> {
        Err(format!("{} is not on this medium", program.name))
    }

    fn has_program(&self, name: &str) -> bool {
        name == "ntfs-3g"
    }

    fn load_modules(&self, _: &[&str]) {}

    fn block_device(&self, device: &Path) -> Result<PathBuf, String> {
        Ok(device.to_owned())
    }

    fn members(&self, _: &Path) -> Vec<PathBuf> {
        Vec::new()
    }

    fn mount(&self, _: &Path, kind: &str, _: &str, _: &Path) -> io::Result<()> {
        Err(io::Error::other(format!("no driver for {kind}")))
    }

    fn bind_kernel(&self) -> io::Result<()> {
        Ok(())
    }

    fn unmount_all(&self) -> io::Result<()> {
        std::fs::rename(&self.root, self.folder.path().join("ntfs"))
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn efi_variables(&self) -> Option<&Path> {
        None
    }

    fn is_privileged(&self) -> bool {
        false
    }
}

#[test]
fn power_lost_at_every_effect_of_windows_leaves_no_half_image_and_the_second_run_has_the_answer_file_too() {
    let mut image = bootable_image(4 * MIB, 512);
    image[MIB as usize + 3..][..8].copy_from_slice(b"NTFS    ");
    let recipe = json!({
        "task_target": "install-windows.target", "oci_url": "c.test:1/os/disk:1", "disk_hints": {"serial": "SER-sda"},
        "unattend_xml": "<unattend/>",
    });
    let http = controller(image.clone(), "application/octet-stream");
    let run = |room: &Room, cut: &Cut| {
        // Each run writes the image again, and with it the NTFS as it was taken.
        let host = WindowsHost::new();
        let outcome = room.run(&http, &CutHost { inner: &host, cut }, &recipe, cut);
        if outcome == Outcome::Success {
            assert_eq!(host.answer().as_deref(), Some("<unattend/>"), "a success without an answer file");
        }
        outcome
    };
    let check = |disk: &FileDisk| {
        let table = Table::read(disk).unwrap().unwrap();
        assert!(
            holds(disk, &image) && table.range(1).unwrap() == PARTITION,
            "Windows extends its partition itself"
        );
        let mut last = [0; 8];
        disk.read_at(disk.size() - 512, &mut last).unwrap();
        assert_eq!(&last, b"EFI PART", "the backup of the table is at the end of the disk");
    };
    let effects = cut_everywhere(&run, &check, &|disk| assert_no_half_image(disk, &image));
    // Beside those of an image: two mounts, and as many times unmounted.
    assert!(effects > 9, "{effects}");
}

#[test]
fn power_lost_at_every_effect_of_an_erase_is_repaired_by_the_second_run() {
    let http = controller(Vec::new(), "application/octet-stream");
    for mode in ["quick", "secure"] {
        let recipe =
            json!({"task_target": "erase.target", "erase_mode": mode, "disk_hints": {"serial": "SER-sda"}});
        let check = |disk: &FileDisk| {
            let mut bytes = vec![0; 14 * MIB as usize];
            disk.read_at(0, &mut bytes).unwrap();
            let ends = [&bytes[..4 << 20], &bytes[10 << 20..]];
            assert!(ends.iter().all(|end| crate::disk_image::is_zero(end)));
            assert!(mode == "quick" || crate::disk_image::is_zero(&bytes));
        };
        let run = |room: &Room, cut: &Cut| room.run(&http, &LinuxHost::default(), &recipe, cut);
        assert!(cut_everywhere(&run, &check, &|_| ()) > 0, "{mode}");
    }
}
