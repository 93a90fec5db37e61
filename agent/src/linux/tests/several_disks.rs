//! Installations over several disks, arrays and volume groups: what is made is compared with `golden/agent-plans.txt`.

use std::fmt::Write as _;

use super::*;
use crate::test_kit::cut::{Cut, CutHost, Room};

const BOTH: &[(&str, &str)] = &[
    ("usr/sbin/mdadm", "x"),
    ("usr/sbin/lvm", "x"),
    ("usr/sbin/update-initramfs", "x"),
    ("etc/mdadm/README", "x"),
];
const BIOS: &[(&str, &str)] = &[("usr/sbin/grub-install", "x"), ("usr/lib/grub/i386-pc/boot.img", "x")];

fn disk(name: &str) -> Value {
    json!({"disk_hints": {"serial": format!("SER-{name}")}})
}

/// A mirror of two disks with LVM on it, each disk with its own EFI system and BIOS boot partition.
pub(in crate::linux) fn mirror() -> Value {
    json!({
        "task_target": "install-linux.target",
        "oci_url": "c.test:1/os/root:1",
        "disk_hints": {"serial": "SER-sda"},
        "more_disks": [disk("sdb")],
        "partition_layout": [
            {"size": "100M", "type_guid": "ef00", "format": "vfat"},
            {"size": "1M", "type_guid": "21686148-6449-6e6f-744e-656564454649"},
            {"size": "200M", "type_guid": "fd00", "member_of": "boot"},
            {"size": "100%", "type_guid": "fd00", "member_of": "system"},
        ],
        "arrays": [
            {"name": "boot", "level": 1, "format": "ext4", "mount": "/boot", "label": "boot"},
            {"name": "system", "level": 1, "member_of": "vg0"},
        ],
        "volume_groups": [{"name": "vg0", "volumes": [
            {"name": "rest", "size": "100%", "format": "xfs", "mount": "/srv"},
            {"name": "root", "size": "400M", "format": "ext4", "mount": "/", "label": "root"},
            {"name": "log", "size": "25%", "format": "btrfs", "mount": "/var/log"},
        ]}],
    })
}

fn stripes(level: u8, members: usize) -> Value {
    let names = ["sdb", "sdc", "sdd"];
    json!({
        "task_target": "install-linux.target",
        "oci_url": "c.test:1/os/root:1",
        "disk_hints": {"serial": "SER-sda"},
        "more_disks": names[..members - 1].iter().map(|name| disk(name)).collect::<Vec<_>>(),
        "partition_layout": [
            {"size": "100M", "type_guid": "ef00", "format": "vfat"},
            {"size": "100%", "type_guid": "fd00", "member_of": "all"},
        ],
        "arrays": [{"name": "all", "level": level, "format": "ext4", "mount": "/", "label": "root"}],
    })
}

/// LVM over a part of the first disk and the whole of the second one, which has its own layout.
fn group() -> Value {
    json!({
        "task_target": "install-linux.target",
        "oci_url": "c.test:1/os/root:1",
        "disk_hints": {"serial": "SER-sda"},
        "more_disks": [{
            "disk_hints": {"serial": "SER-sdb"},
            "partition_layout": [{"size": "100%", "type_guid": "8300", "member_of": "data"}],
        }],
        "partition_layout": [
            {"size": "100M", "type_guid": "ef00", "format": "vfat"},
            {"size": "600M", "type_guid": "8300", "format": "ext4", "mount": "/", "label": "root"},
            {"size": "100%", "type_guid": "8300", "member_of": "data"},
        ],
        "volume_groups": [{"name": "data", "volumes": [{"name": "srv", "size": "1200M", "format": "xfs", "mount": "/srv"}]}],
    })
}

fn layers() -> Vec<Vec<u8>> {
    vec![layer(SYSTEM), layer(LOADER), layer(BOTH), layer(BIOS)]
}

fn room(disks: usize) -> Room {
    Room::new(&vec![GIB; disks])
}

#[test]
fn what_is_made_on_several_disks_matches_the_golden_file() {
    let mut text = String::new();
    for (name, disks, recipe) in [
        ("a mirror with LVM on it", 2, mirror()),
        ("level 0 over two disks", 2, stripes(0, 2)),
        ("level 10 over four disks", 4, stripes(10, 4)),
        ("level 5 over three disks", 3, stripes(5, 3)),
        ("level 6 over four disks", 4, stripes(6, 4)),
        ("a volume group over two disks", 2, group()),
    ] {
        let (room, host) = (room(disks + 1), FakeHost::new(true));
        let outcome = room.run(&controller(layers()), &host, &recipe, &Cut::never());
        assert_eq!(outcome, Outcome::Success, "{name}");
        room.assert_untouched(disks);
        writeln!(text, "# {name}").unwrap();
        for index in 0..disks {
            let table = Table::read(&FileDisk::open(room.path(index), 512).unwrap()).unwrap().unwrap();
            for (number, entry) in table.entries.iter().flatten().enumerate() {
                let (first, last) = (entry.first_lba, entry.last_lba);
                writeln!(text, "disk {} partition {}: {first} to {last}", index + 1, number + 1).unwrap();
            }
        }
        let folder = host.folder.path().to_str().unwrap().to_owned();
        writeln!(text, "modules: {}", host.modules.lock().unwrap().join(" ")).unwrap();
        for program in host.programs() {
            writeln!(text, "{}", program.replace(&folder, "/dev")).unwrap();
        }
        for path in ["etc/fstab", "etc/mdadm/mdadm.conf", "boot/grub/grub.cfg"] {
            if host.has(path) {
                writeln!(text, "/{path}:\n{}", host.read(path)).unwrap();
            }
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/agent-plans.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "what is made changed; review it and run with UPDATE_GOLDEN=1\n{text}");
}

#[test]
fn every_disk_of_a_mirror_starts_the_system_on_both_kinds_of_firmware() {
    let (room, host) = (room(2), FakeHost::new(true));
    let http = controller(layers());
    assert_eq!(room.run(&http, &host, &mirror(), &Cut::never()), Outcome::Success);
    for folder in ["boot/efi", "boot/efi2"] {
        assert_eq!(host.read(&format!("{folder}/EFI/BOOT/BOOTX64.EFI")), "shim");
    }
    let fstab = host.read("etc/fstab");
    assert_eq!(fstab.matches("umask=0077,nofail").count(), 2, "{fstab}");
    // Two entries and their order.
    assert_eq!(fs::read_dir(host.efi.as_ref().unwrap()).unwrap().count(), 3);
    let menu = host.read("boot/grub/grub.cfg");
    assert!(menu.contains(" rd.md.uuid=") && menu.contains(" rd.lvm.vg=vg0\n"), "{menu}");
    let programs = host.programs();
    let first = programs.iter().position(|program| program.starts_with("update-initramfs")).unwrap();
    assert!(programs[first].contains("-k 6.10.0-1"), "{programs:?}");
    assert_eq!(programs.last().unwrap(), "mdadm --stop /dev/md100", "{programs:?}");

    let bios = FakeHost::new(false);
    let room = super::several_disks::room(2);
    assert_eq!(room.run(&http, &bios, &mirror(), &Cut::never()), Outcome::Success);
    let programs = bios.programs();
    let grub: Vec<_> = programs.iter().filter(|program| program.starts_with("grub-install")).collect();
    assert!(grub.len() == 2 && grub[0].ends_with("/dev/sda") && grub[1].ends_with("/dev/sdb"), "{grub:?}");
}

#[test]
fn a_second_run_starts_the_arrays_of_the_first_one_and_keeps_them() {
    let (room, host) = (room(2), FakeHost::new(true));
    let http = controller(layers());
    assert_eq!(room.run(&http, &host, &mirror(), &Cut::never()), Outcome::Success);
    host.programs.lock().unwrap().clear();
    assert_eq!(room.run(&http, &host, &mirror(), &Cut::never()), Outcome::Success);
    let programs = host.programs();
    assert!(programs[0].starts_with("mdadm --assemble /dev/md100 --uuid="), "{programs:?}");
    assert!(programs.iter().any(|program| program.contains("vgchange") && program.ends_with("-ay vg0")));
    let made = ["--create", "pvcreate", "mke2fs", "mkfs"];
    assert!(!programs.iter().any(|program| made.iter().any(|word| program.contains(word))), "{programs:?}");
}

#[test]
fn a_share_of_a_small_disk_is_refused_when_its_file_system_cannot_be_made_in_it() {
    use recipe::partition::PartitionSize;
    use recipe::{FsFormat, Partition, PartitionType};

    let part = |size, format| Partition::new(size, PartitionType::LINUX_FILESYSTEM, format);
    let root = Partition { mount: Some("/".to_owned()), ..part(PartitionSize::Rest, FsFormat::Ext4) };
    let parts = [root, part(PartitionSize::Percent(20), FsFormat::Xfs)];
    let refused = Layout::new(&parts, 1 << 30, 512, job()).unwrap_err();
    assert_eq!(refused, "partition 2 of disk 1 has 204 MiB, and xfs needs 300 MiB");
    Layout::new(&parts, 2 << 30, 512, job()).unwrap();
}

#[test]
fn nothing_is_written_when_disks_programs_or_sizes_do_not_fit() {
    let mut twice = mirror();
    twice["more_disks"][0] = disk("sda");
    let mut large = mirror();
    large["volume_groups"][0]["volumes"][1]["size"] = json!("2G");
    let mut absent = mirror();
    absent["more_disks"][0] = disk("sdx");
    let mut no_bios = mirror();
    no_bios["more_disks"][0]["partition_layout"] = json!([
        {"size": "200M", "type_guid": "fd00", "member_of": "boot"},
        {"size": "100%", "type_guid": "fd00", "member_of": "system"},
    ]);
    for (recipe, is_efi, lacks, step, word) in [
        (twice, true, vec![], "select-disk.service", "chosen already"),
        (absent, true, vec![], "select-disk.service", "more_disks/0"),
        (large, true, vec![], "partition.service", "the group has"),
        (mirror(), true, vec!["mdadm"], "partition.service", "mdadm is not on this medium"),
        (mirror(), true, vec!["lvm"], "partition.service", "full profile"),
        (mirror(), true, vec!["mkfs.xfs"], "partition.service", "mkfs.xfs is not on this medium"),
        (no_bios, false, vec![], "partition.service", "on disk 2, which has a copy of /boot"),
    ] {
        let room = room(2);
        let host = FakeHost { lacks, ..FakeHost::new(is_efi) };
        let outcome = room.run(&controller(layers()), &host, &recipe, &Cut::never());
        let (failed, message) = failure(outcome);
        assert!(failed == step && message.contains(word), "{failed}: {message}");
        assert!(host.programs().is_empty());
        room.assert_untouched(0);
    }
}

#[test]
fn a_volume_group_of_another_disk_with_the_same_name_is_refused_before_the_first_write() {
    let room = room(2);
    let host =
        FakeHost { groups: "  /dev/sdx2 rhel\n  /dev/sdx3 vg0 \n  /dev/sdx4\n", ..FakeHost::new(true) };
    let (step, message) = failure(room.run(&controller(layers()), &host, &mirror(), &Cut::never()));
    assert!(step == "partition.service" && message.contains("volume group vg0 too"), "{step}: {message}");
    room.assert_untouched(0);
    // Two other names, what is on a disk that is written, and a member that is gone with its disk.
    let groups = "  /dev/sdx2 vg0-old\n  /dev/sdx3 vg00\n  /dev/sda2 vg0\n  /dev/sdb vg0\n  [unknown] vg0\n";
    let host = FakeHost { groups, ..FakeHost::new(true) };
    assert_eq!(room.run(&controller(layers()), &host, &mirror(), &Cut::never()), Outcome::Success);
}

#[test]
fn an_array_of_other_disks_with_the_same_device_is_neither_used_nor_stopped() {
    let members = ["/dev/sdx1", "/dev/sdy1"].map(PathBuf::from).to_vec();
    let arrays = BTreeMap::from([(PathBuf::from("/dev/md100"), members)]);
    let (room, host) = (room(2), FakeHost { arrays, ..FakeHost::new(true) });
    let (step, message) = failure(room.run(&controller(layers()), &host, &mirror(), &Cut::never()));
    assert!(
        step == "partition.service" && message.contains("/dev/md100 is an array with /dev/sdx1"),
        "{step}: {message}"
    );
    let programs = host.programs();
    assert!(!programs.iter().any(|program| program.starts_with("mdadm")), "{programs:?}");
}

#[test]
fn an_image_that_cannot_start_its_arrays_is_refused_in_words() {
    for (files, word) in [
        (vec![("usr/sbin/lvm", "x"), ("usr/sbin/dracut", "x")], "package mdadm"),
        (vec![("usr/sbin/mdadm", "x"), ("usr/sbin/dracut", "x")], "package lvm2"),
        (vec![("usr/sbin/mdadm", "x"), ("usr/sbin/lvm", "x")], "neither update-initramfs nor dracut"),
        ([BOTH, &[("boot/.wh.initrd.img-6.10.0-1", "")]].concat(), "no kernel of the image has an initramfs"),
    ] {
        let (room, host) = (room(2), FakeHost::new(true));
        let http = controller(vec![layer(SYSTEM), layer(LOADER), layer(&files)]);
        let (step, message) = failure(room.run(&http, &host, &mirror(), &Cut::never()));
        assert!(step == "bootloader-linux.service" && message.contains(word), "{step}: {message}");
        assert!(
            host.programs().last().unwrap().starts_with("mdadm --stop"),
            "arrays are stopped after a failure"
        );
    }
    let (room, host) = (room(2), FakeHost::new(true));
    let red_hat = [("usr/sbin/mdadm", "x"), ("usr/sbin/lvm", "x"), ("usr/bin/dracut", "x")];
    let http = controller(vec![layer(SYSTEM), layer(LOADER), layer(&red_hat)]);
    assert_eq!(room.run(&http, &host, &mirror(), &Cut::never()), Outcome::Success);
    assert!(host.read("etc/mdadm.conf").contains("ARRAY /dev/md/boot metadata=1.2 UUID="));
    assert!(host.programs().iter().any(|program| program.starts_with("dracut --force --no-hostonly")));
}

/// Everything that the second run left, for comparison with a run that was not interrupted. Logs differ.
fn files(host: &FakeHost) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![host.root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(host.root()).unwrap().to_str().unwrap().to_owned();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(path),
                _ if name.ends_with("agent.log") => {}
                _ => found.push((name, fs::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

/// The bytes of both copies of the partition table of a disk.
fn tables(room: &Room, index: usize) -> Vec<u8> {
    let disk = FileDisk::open(room.path(index), 512).unwrap();
    let mut all = Vec::new();
    for range in Table::written(&disk) {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
        disk.read_at(range.start, &mut bytes).unwrap();
        all.extend(bytes);
    }
    all
}

#[test]
fn a_table_whose_primary_copy_is_torn_is_written_again() {
    let http = controller(layers());
    for (lost, recipe) in
        [(0..34, recipe_of("sda")), (0..1, recipe_of("sda")), (1..2, mirror()), (2..3, mirror())]
    {
        let (room, host) = (room(3), FakeHost::new(true));
        assert_eq!(room.run(&http, &host, &recipe, &Cut::never()), Outcome::Success);
        let whole = tables(&room, 0);
        FileDisk::open(room.path(0), 512).unwrap().zero(lost.start * 512..lost.end * 512).unwrap();
        assert_eq!(room.run(&http, &host, &recipe, &Cut::never()), Outcome::Success);
        assert!(tables(&room, 0) == whole, "sectors {lost:?}");
    }
}

/// Cuts the power before each effect of an installation in turn, and runs the job again.
fn cut_everywhere(recipe: &Value, disks: usize) -> usize {
    let http = controller(layers());
    let whole = FakeHost::new(true);
    let reference = room(disks + 1);
    assert_eq!(reference.run(&http, &whole, recipe, &Cut::never()), Outcome::Success);
    let mut effects = 0;
    loop {
        let (room, host, cut) = (room(disks + 1), FakeHost::new(true), Cut::after(effects));
        let outcome = room.run(&http, &CutHost { inner: &host, cut: &cut }, recipe, &cut);
        if !cut.is_off() {
            assert_eq!(outcome, Outcome::Success);
            return effects;
        }
        assert_ne!(outcome, Outcome::Success, "effect {effects} was lost without an error");
        let again = room.run(&http, &host, recipe, &Cut::never());
        assert_eq!(again, Outcome::Success, "after a cut before effect {effects}");
        assert_eq!(files(&host), files(&whole), "after a cut before effect {effects}");
        for index in 0..disks {
            assert!(tables(&room, index) == tables(&reference, index), "after a cut before effect {effects}");
        }
        room.assert_untouched(disks);
        effects += 1;
    }
}

#[test]
fn power_lost_at_every_effect_of_a_linux_installation_is_repaired_by_the_second_run() {
    assert!(cut_everywhere(&recipe_of("sda"), 1) > 10);
}

#[test]
fn power_lost_at_every_effect_of_an_installation_on_a_mirror_is_repaired_by_the_second_run() {
    assert!(cut_everywhere(&mirror(), 2) > 40);
}

/// Writes a file system of a disk's first partition, as an interrupted run leaves it.
fn half_made(room: &Room, index: usize) {
    let disk = FileDisk::open(room.path(index), 512).unwrap();
    let part = Table::read(&disk).unwrap().unwrap().range(1).unwrap();
    disk.write_at(part.start + 1024, b"half a file system").unwrap();
}

#[test]
fn power_lost_in_the_second_run_too_is_repaired_by_the_third_one() {
    let http = controller(layers());
    // The first run ends while it makes the arrays.
    let (mut first, mut second) = (0, 0);
    loop {
        let (room, host, cut) = (room(3), FakeHost::new(true), Cut::after(first));
        room.run(&http, &CutHost { inner: &host, cut: &cut }, &mirror(), &cut);
        let made = host.programs().iter().any(|program| program.contains("--create"));
        if !made {
            first += 1;
            continue;
        }
        half_made(&room, 0);
        half_made(&room, 1);
        let cut = Cut::after(second);
        let outcome = room.run(&http, &CutHost { inner: &host, cut: &cut }, &mirror(), &cut);
        if !cut.is_off() {
            assert_eq!(outcome, Outcome::Success);
            break;
        }
        let third = room.run(&http, &host, &mirror(), &Cut::never());
        assert_eq!(third, Outcome::Success, "after cuts before the effects {first} and {second}");
        room.assert_untouched(2);
        second += 1;
    }
    assert!(second > 20, "{second}");
}

#[test]
fn a_second_run_writes_to_no_disk_that_took_the_place_of_one_of_the_first() {
    let http = controller(layers());
    let mut other = mirror();
    other["more_disks"][0] = disk("sdc");
    let (room, host) = (room(3), FakeHost::new(true));
    assert_eq!(room.run(&http, &host, &mirror(), &Cut::never()), Outcome::Success);
    half_made(&room, 0);
    let (step, message) = failure(room.run(&http, &host, &other, &Cut::never()));
    assert!(step == "select-disk.service" && message.contains("sdc beside it"), "{step}: {message}");
    assert!(message.chars().count() <= 256, "{message}");
    room.assert_untouched(2);
    // The disk that the first run wrote has the group of the layout now, and is not the other disk that must be erased.
    let host = FakeHost { groups: "  /dev/sda3 vg0\n  /dev/sdb3 vg0\n", ..host };
    let (step, message) = failure(room.run(&http, &host, &other, &Cut::never()));
    assert!(step == "select-disk.service" && message.contains("sdc beside it"), "{step}: {message}");
    // Another disk for the whole system, while the first one is still there.
    let (step, message) = failure(room.run(&http, &host, &recipe_of("sdc"), &Cut::never()));
    assert!(step == "select-disk.service" && message.contains("wrote sda"), "{step}: {message}");
    room.assert_untouched(2);
}

fn recipe_of(name: &str) -> Value {
    let mut recipe = recipe();
    recipe["disk_hints"] = json!({"serial": format!("SER-{name}")});
    recipe
}

/// The mutant of the harness.
#[test]
fn one_byte_on_a_disk_that_was_not_chosen_is_noticed() {
    let room = room(2);
    room.assert_untouched(0);
    FileDisk::open(room.path(1), 512).unwrap().write_at(GIB / 3, &[1]).unwrap();
    room.assert_untouched(2);
    let noticed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| room.assert_untouched(0)));
    assert!(noticed.is_err());
}
