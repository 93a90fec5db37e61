//! Power lost before every effect of the targets that write a whole disk, and the job run again. Installations of Linux are in
//! `linux/tests/several_disks.rs`.

use serde_json::{Value, json};

use super::tests::controller;
use crate::device::{Disk as _, FileDisk};
use crate::gpt::Table;
use crate::linux::LinuxHost;
use crate::outcome::Outcome;
use crate::test_kit::cut::{Cut, Room};
use crate::test_kit::{FakeHttp, bootable_image};

const MIB: u64 = 1 << 20;

/// Cuts the power before each effect in turn and runs the job again. `never` sees the disk after each cut, `check` after the second
/// run. Returns the number of effects.
fn cut_everywhere(
    http: &FakeHttp,
    recipe: &Value,
    check: &dyn Fn(&FileDisk),
    never: &dyn Fn(&FileDisk),
) -> usize {
    let mut effects = 0;
    loop {
        let (room, cut, host) = (Room::new(&[14 * MIB, 14 * MIB]), Cut::after(effects), LinuxHost::default());
        let outcome = room.run(http, &host, recipe, &cut);
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
        assert_eq!(room.run(http, &host, recipe, &Cut::never()), Outcome::Success, "effect {effects}");
        check(&disk);
        room.assert_untouched(1);
        effects += 1;
    }
}

#[test]
fn power_lost_at_every_effect_of_an_image_leaves_no_half_image_that_boots_and_the_second_run_completes_it() {
    let image = bootable_image(4 * MIB, 512);
    let recipe = json!({
        "task_target": "install-image.target", "oci_url": "c.test:1/os/disk:1", "disk_hints": {"serial": "SER-sda"},
    });
    let http = controller(image.clone(), "application/octet-stream");
    let data = MIB as usize..3 * MIB as usize;
    let holds_image = |disk: &FileDisk| {
        let mut bytes = vec![0; data.len()];
        disk.read_at(MIB, &mut bytes).unwrap();
        bytes == image[data.clone()]
    };
    let check = |disk: &FileDisk| {
        let table = Table::read(disk).unwrap().unwrap();
        assert!(holds_image(disk) && table.range(1).unwrap() == (MIB..13 * MIB));
    };
    let never = |disk: &FileDisk| {
        if Table::read(disk).unwrap().is_some() {
            assert!(holds_image(disk), "a table leads to an image that is not whole");
        }
    };
    assert!(cut_everywhere(&http, &recipe, &check, &never) > 5);
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
        assert!(cut_everywhere(&http, &recipe, &check, &|_| ()) > 0, "{mode}");
    }
}
