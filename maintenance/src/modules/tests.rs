//! The closure, the index and hostile kernels.

use super::*;
use crate::profile::ImageProfile;
use crate::test_kit::{module, xz};

fn tree(modules: &[(&str, &[&str])], builtin: &str) -> Tree {
    let mut tree = Tree::new().unwrap();
    tree.add_file("usr/lib/modules/6.1/modules.builtin", builtin.as_bytes(), false, 0).unwrap();
    for (path, pairs) in modules {
        let file = module(pairs);
        let file = if path.ends_with(".xz") { xz(&file) } else { file };
        tree.add_file(&format!("usr/lib/modules/6.1/kernel/{path}"), &*file, false, 0).unwrap();
    }
    tree
}

fn wanted(names: &[&'static str]) -> impl Iterator<Item = (&'static str, bool)> {
    names.iter().map(|name| (*name, true)).collect::<Vec<_>>().into_iter()
}

#[test]
fn a_driver_brings_what_it_needs_in_the_order_of_loading() {
    let tree = tree(
        &[
            ("drivers/sd-mod.ko", &["depends=scsi_mod,t10-pi", "alias=scsi:t-0x00*"]),
            ("drivers/scsi_mod.ko.xz", &["depends=scsi_common"]),
            ("drivers/scsi_common.ko", &["depends="]),
            ("lib/t10-pi.ko", &["depends=crc64"]),
            ("drivers/other.ko", &["depends="]),
            ("fs/ext4.ko", &["depends=mbcache", "softdep=pre: crc32c"]),
            ("fs/mbcache.ko", &[]),
            ("crypto/crc32c_generic.ko", &["alias=crypto-crc32c", "alias=crc32c"]),
            ("crypto/crc32c-intel.ko", &["alias=crypto-crc32c", "alias=crc32c"]),
        ],
        "kernel/lib/crc64.ko\n",
    );
    let kernel = Kernel::read(&tree).unwrap();
    let found = kernel.select(wanted(&["sd_mod", "ext4", "crc64"]), &tree).unwrap();
    assert_eq!(
        found.index,
        "shoal-modules 1\nkernel 6.1\nbuiltin crc64\nstart sd_mod\nstart ext4\n\
         module t10_pi t10_pi.ko\n\
         module scsi_common scsi_common.ko\n\
         module scsi_mod scsi_mod.ko\nneed scsi_common\n\
         module sd_mod sd_mod.ko\nneed t10_pi\nneed scsi_common\nneed scsi_mod\nalias scsi:t-0x00*\n\
         module crc32c_generic crc32c_generic.ko\nalias crc32c\nalias crypto-crc32c\n\
         module mbcache mbcache.ko\n\
         module ext4 ext4.ko\nsoft crc32c_generic\nneed mbcache\n"
    );
    assert_eq!(found.files.len(), 7);
    assert_eq!(
        contents(&tree, "usr/lib/modules/6.1/kernel/drivers/scsi_mod.ko.xz").unwrap(),
        module(&["depends=scsi_common"])
    );
}

#[test]
fn a_driver_that_is_asked_for_by_name_has_the_devices_of_the_one_that_asks() {
    let tree = tree(
        &[
            ("mlx4_core.ko", &["depends=", "alias=pci:v000015B3d00001003sv*sd*bc*sc*i*"]),
            ("mlx4_en.ko", &["depends=mlx4_core"]),
        ],
        "",
    );
    let kernel = Kernel::read(&tree).unwrap();
    assert_eq!(
        kernel.select(wanted(&["mlx4_en"]), &tree).unwrap().index,
        "shoal-modules 1\nkernel 6.1\n\
         module mlx4_core mlx4_core.ko\nalias pci:v000015B3d00001003sv*sd*bc*sc*i*\n\
         module mlx4_en mlx4_en.ko\nneed mlx4_core\nalias pci:v000015B3d00001003sv*sd*bc*sc*i*\n"
    );
}

#[test]
fn a_required_driver_that_is_missing_is_named() {
    let tree = tree(&[("a.ko", &["depends=gone"])], "");
    let kernel = Kernel::read(&tree).unwrap();
    let reason = |names| kernel.select(wanted(names), &tree).err().unwrap();
    assert!(reason(&["nvme"]).contains("no driver nvme"));
    assert!(reason(&["a"]).contains("a needs gone"));
    let optional = kernel.select([("nvme", false)].into_iter(), &tree).unwrap();
    assert_eq!(optional.missing_drivers, ["nvme"]);
}

#[test]
fn modules_in_a_circle_are_refused_and_a_soft_circle_is_not() {
    let hard = tree(&[("a.ko", &["depends=b"]), ("b.ko", &["depends=c"]), ("c.ko", &["depends=b"])], "");
    let kernel = Kernel::read(&hard).unwrap();
    assert!(kernel.select(wanted(&["a"]), &hard).err().unwrap().contains("needs itself"));
    let soft = tree(&[("a.ko", &["depends=b"]), ("b.ko", &["softdep=pre: c"]), ("c.ko", &["depends=a"])], "");
    let kernel = Kernel::read(&soft).unwrap();
    assert_eq!(kernel.select(wanted(&["a"]), &soft).unwrap().files.len(), 2);
}

#[test]
fn a_chain_of_many_modules_needs_no_deep_stack() {
    let names: Vec<[String; 2]> =
        (0..300).map(|n| [format!("m{n}.ko"), format!("depends=m{}", n + 1)]).collect();
    let pairs: Vec<[&str; 1]> = names.iter().map(|[_, depends]| [depends.as_str()]).collect();
    let mut modules: Vec<(&str, &[&str])> =
        names.iter().zip(&pairs).map(|([path, _], pairs)| (path.as_str(), &pairs[..])).collect();
    modules.push(("m300.ko", &[]));
    let tree = tree(&modules, "");
    let kernel = Kernel::read(&tree).unwrap();
    assert_eq!(kernel.select(wanted(&["m0"]), &tree).unwrap().files.len(), 301);
}

#[test]
fn more_modules_than_any_kernel_needs_are_refused() {
    let names: Vec<String> = (0..=MOST_MODULES).map(|n| format!("m{n}.ko")).collect();
    let all =
        format!("depends={}", (0..=MOST_MODULES).map(|n| format!("m{n}")).collect::<Vec<_>>().join(","));
    let pairs = [all.as_str()];
    let mut modules: Vec<(&str, &[&str])> = names.iter().map(|path| (path.as_str(), &[][..])).collect();
    modules.push(("all.ko", &pairs));
    let tree = tree(&modules, "");
    let kernel = Kernel::read(&tree).unwrap();
    assert!(kernel.select(wanted(&["all"]), &tree).err().unwrap().contains("more than"));
}

#[test]
fn firmware_of_the_listed_drivers_is_taken_or_reported() {
    let mut tree = tree(
        &[("bnx2.ko", &["firmware=bnx2/a.fw", "firmware=bnx2/b.fw"]), ("nfp.ko", &["firmware=netronome/x"])],
        "",
    );
    tree.add_file("usr/lib/firmware/bnx2/a.fw", &b"firmware"[..], false, 0).unwrap();
    let kernel = Kernel::read(&tree).unwrap();
    let found = kernel.select(wanted(&["bnx2", "nfp"]), &tree).unwrap();
    assert_eq!(found.firmware, ["bnx2/a.fw"]);
    assert!(found.index.ends_with("module nfp nfp.ko\n"));
    let missing = ("bnx2".to_owned(), "bnx2/b.fw".to_owned(), "the card does not work".to_owned());
    assert_eq!(found.missing_firmware, [missing]);
}

#[test]
fn hostile_names_do_not_reach_the_index() {
    for pairs in [&["depends=a\nalias x"][..], &["depends=../x"], &["firmware=../../etc/x"]] {
        let tree = tree(&[("a.ko", pairs)], "");
        assert!(Kernel::read(&tree).is_err(), "{pairs:?}");
    }
    let tree = tree(
        &[("a.ko", &["alias=x\nmodule evil evil.ko", "alias=ok", "softdep=pre: platform:leds-gpio"])],
        "",
    );
    let kernel = Kernel::read(&tree).unwrap();
    assert_eq!(
        kernel.select(wanted(&["a"]), &tree).unwrap().index,
        "shoal-modules 1\nkernel 6.1\nmodule a a.ko\nalias ok\n"
    );
}

#[test]
fn several_kernels_and_none_are_refused() {
    let mut two = tree(&[], "");
    two.add_file("usr/lib/modules/6.2/modules.builtin", &b""[..], false, 0).unwrap();
    assert!(Kernel::read(&two).err().unwrap().contains("6.1, 6.2"));
    assert!(Kernel::read(&Tree::new().unwrap()).err().unwrap().contains("linux-image"));
}

#[test]
fn every_required_driver_is_a_name_that_a_kernel_can_have() {
    for profile in [ImageProfile::Small, ImageProfile::Full] {
        let mut names = BTreeSet::new();
        for (name, _) in drivers::drivers(profile) {
            assert_eq!(canonical(name).as_deref(), Ok(name));
            assert!(names.insert(name), "{name} is listed twice");
        }
        // The small profile has neither XFS nor Btrfs, and starts what it has.
        let missing: Vec<_> = drivers::START.iter().filter(|name| !names.contains(*name)).collect();
        assert!(
            missing.iter().all(|name| profile == ImageProfile::Small && ["xfs", "btrfs"].contains(*name)),
            "{missing:?}"
        );
    }
}
