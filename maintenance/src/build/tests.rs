//! Images of synthetic packages.

use iso9660::{CheckOptions, Image, Severity, check};

use super::*;
use crate::test_kit::{Member, deb, deb_packed, module, program, tar, xz, zstd};

const COPYRIGHT: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2\n";

/// A folder with packages and an agent.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(packages: &[(String, Vec<u8>)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::create_dir(folder.0.path().join("debs")).unwrap();
        fs::write(folder.0.path().join("agent"), program(None, &[])).unwrap();
        for (name, bytes) in packages {
            fs::write(folder.0.path().join("debs").join(name), bytes).unwrap();
        }
        folder
    }

    fn inputs(&self) -> Inputs {
        Inputs {
            packages: self.0.path().join("debs"),
            kernel: None,
            agent: self.0.path().join("agent"),
            profile: ImageProfile::Small,
            command_line: String::new(),
        }
    }

    fn build(&self) -> Result<Vec<u8>, Error> {
        build(&self.inputs(), &mut |_| {}).map(|medium| bytes(&medium))
    }

    fn failure(&self) -> String {
        self.build().err().unwrap().to_string()
    }
}

fn bytes(medium: &Medium) -> Vec<u8> {
    let mut bytes = Vec::new();
    medium.plan.write_to(&mut bytes).unwrap();
    bytes
}

/// The drivers that the small profile requires, as modules or as names of a kernel that has them built in.
fn required() -> Vec<&'static str> {
    crate::drivers::drivers(ImageProfile::Small)
        .filter(|(_, required)| *required)
        .map(|(name, _)| name)
        .collect()
}

fn kernel(pack: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let required = required();
    let builtin: String = required[2..].iter().map(|name| format!("kernel/drivers/{name}.ko\n")).collect();
    let control =
        "Package: linux-image-6.1\nSource: linux-signed (6.1-1)\nVersion: 6.1.1-1\nArchitecture: amd64\n";
    let members = [
        Member::File("./boot/vmlinuz-6.1", b"kernel".to_vec()),
        Member::File("./lib/modules/6.1/modules.builtin", builtin.into_bytes()),
        Member::File("./lib/modules/6.1/kernel/drivers/scsi/sr_mod.ko", module(&["depends=scsi_mod"])),
        Member::File(
            "./lib/modules/6.1/kernel/drivers/scsi/sd_mod.ko",
            module(&["depends=scsi_mod", "alias=scsi:t-0x00*"]),
        ),
        Member::File("./lib/modules/6.1/kernel/drivers/scsi/scsi_mod.ko", module(&["depends="])),
        Member::File("./usr/share/doc/linux-image-6.1/copyright", COPYRIGHT.as_bytes().to_vec()),
    ];
    deb_packed(control, &members, pack)
}

fn packages() -> Vec<(String, Vec<u8>)> {
    let dynamic = program(Some("/lib64/ld-linux-x86-64.so.2"), &["libc.so.6"]);
    let file = |path, content: &[u8]| Member::File(path, content.to_vec());
    let mut mbr = vec![0x90; 432];
    mbr[0] = 0xeb;
    [
        ("linux.deb", kernel(xz)),
        (
            "e2fsprogs.deb",
            deb(
                "e2fsprogs",
                &[
                    file("./sbin/mke2fs", &dynamic),
                    Member::Hard("./sbin/mkfs.ext3", "./sbin/mke2fs"),
                    Member::Link("./sbin/mkfs.ext4", "mke2fs"),
                    file("./etc/mke2fs.conf", b"[defaults]\n"),
                    file("./usr/share/man/man8/mke2fs.8.gz", b"not taken"),
                ],
            ),
        ),
        (
            "dosfstools.deb",
            deb(
                "dosfstools",
                &[file("./usr/sbin/mkfs.fat", &dynamic), Member::Link("./usr/sbin/mkfs.vfat", "mkfs.fat")],
            ),
        ),
        (
            "libc6.deb",
            deb(
                "libc6",
                &[
                    file("./lib/x86_64-linux-gnu/libc.so.6", &program(None, &[])),
                    file("./lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", &program(None, &[])),
                    Member::Link(
                        "./lib64/ld-linux-x86-64.so.2",
                        "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
                    ),
                ],
            ),
        ),
        ("shim.deb", deb("shim-signed", &[file("./usr/lib/shim/shimx64.efi.signed", b"shim")])),
        (
            "grub.deb",
            deb(
                "grub-efi-amd64-signed",
                &[file("./usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed", b"grub")],
            ),
        ),
        (
            "isolinux.deb",
            deb(
                "isolinux",
                &[
                    file("./usr/lib/ISOLINUX/isolinux.bin", &[7; 4096]),
                    file("./usr/lib/ISOLINUX/isohdpfx.bin", &mbr),
                ],
            ),
        ),
        (
            "syslinux.deb",
            deb("syslinux-common", &[file("./usr/lib/syslinux/modules/bios/ldlinux.c32", b"c32")]),
        ),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

fn replaced(name: &str, bytes: Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let mut packages = packages();
    packages.iter_mut().find(|(other, _)| other == name).unwrap().1 = bytes;
    packages
}

fn without(name: &str) -> Vec<(String, Vec<u8>)> {
    let mut packages = packages();
    packages.retain(|(other, _)| other != name);
    packages
}

#[test]
fn an_image_has_everything_that_boots_and_its_record() {
    let folder = Folder::new(&packages());
    let image = folder.build().unwrap();
    let report = check(&image, &CheckOptions::default()).unwrap();
    assert_eq!(report.count(Severity::Error), 0);
    let path = folder.0.path().join("m.iso");
    fs::write(&path, &image).unwrap();
    let record = crate::inspect(&path).unwrap();
    assert_eq!((&*record.profile, &*record.kernel, record.epoch), ("small", "6.1", 1_700_000_000));
    assert_eq!(record.modules, ["scsi_mod", "sr_mod", "sd_mod"]);
    let names: Vec<_> = record.packages.iter().map(|package| &*package.name).collect();
    assert_eq!(
        names,
        [
            "dosfstools",
            "e2fsprogs",
            "grub-efi-amd64-signed",
            "isolinux",
            "libc6",
            "linux-image-6.1",
            "shim-signed",
            "syslinux-common"
        ]
    );
    let kernel = record.packages.iter().find(|package| package.name == "linux-image-6.1").unwrap();
    assert_eq!((&*kernel.source, &kernel.licences[..]), ("linux-signed (6.1-1)", &["GPL-2".to_owned()][..]));

    let image = Image::open(image).unwrap();
    assert_eq!(image.boot_images().unwrap().len(), 2);
    assert_eq!(image.read("boot/vmlinuz", 100).unwrap(), b"kernel");
    let cfg = String::from_utf8(image.read("boot/grub/grub.cfg", 10_000).unwrap()).unwrap();
    let marker = cfg.split("--set=root ").nth(1).unwrap().lines().next().unwrap();
    assert!(image.lookup(marker).unwrap().is_file(), "{marker}");

    let initrd = image.read("boot/initrd", 1 << 20).unwrap();
    assert_eq!(initrd[..8], *b"\xfd7zXZ\0\0\x01", "the kernel takes CRC32 only");
    let archive = crate::unpack::unpack_all(&*initrd, 1 << 22).unwrap();
    let has = |name: &str| {
        archive
            .windows(name.len() + 1)
            .any(|part| &part[..name.len()] == name.as_bytes() && part[name.len()] == 0)
    };
    for name in [
        "init",
        "dev/console",
        "usr/sbin/mkfs.ext4",
        "usr/sbin/mke2fs",
        "usr/lib64/ld-linux-x86-64.so.2",
        "usr/lib/x86_64-linux-gnu/libc.so.6",
        "usr/lib/modules/6.1/shoal.index",
        "usr/lib/modules/6.1/scsi_mod.ko",
    ] {
        assert!(has(name), "{name}");
    }
    assert!(!has("usr/sbin/mkfs.ext3"), "what nothing needs is not taken");
}

#[test]
fn equal_packages_give_equal_bytes_whatever_their_file_names_and_order() {
    let first = Folder::new(&packages()).build().unwrap();
    let mut other = packages();
    other.reverse();
    for (number, (name, _)) in other.iter_mut().enumerate() {
        *name = format!("{number}-{name}");
    }
    other.push(("unused.deb".to_owned(), deb("unused", &[Member::File("./usr/bin/unused", vec![1])])));
    other.push(("notes.txt".to_owned(), b"no package".to_vec()));
    assert!(first == Folder::new(&other).build().unwrap());
}

#[test]
fn the_packing_of_a_package_changes_its_digest_only() {
    let image = |pack| {
        let folder = Folder::new(&replaced("linux.deb", kernel(pack)));
        build(&folder.inputs(), &mut |_| {}).unwrap().record
    };
    let (mut one, other) = (image(xz), image(zstd));
    let number = one.packages.iter().position(|package| package.name == "linux-image-6.1").unwrap();
    assert_ne!(one.packages[number].sha256, other.packages[number].sha256);
    one.packages[number].sha256.clone_from(&other.packages[number].sha256);
    assert_eq!(one, other);
}

#[test]
fn whatever_is_missing_is_named() {
    for (name, expected) in [
        ("linux.deb", "linux-image"),
        ("e2fsprogs.deb", "e2fsprogs"),
        ("libc6.deb", "libc6"),
        ("shim.deb", "shim-signed"),
        ("grub.deb", "grub-efi-amd64-signed"),
        ("isolinux.deb", "isolinux"),
        ("syslinux.deb", "syslinux-common"),
    ] {
        let reason = Folder::new(&without(name)).failure();
        assert!(reason.contains(expected), "{name}: {reason}");
    }
    assert!(Folder::new(&[]).failure().contains("no package"));
}

#[test]
fn an_agent_that_needs_libraries_is_refused() {
    let folder = Folder::new(&packages());
    fs::write(folder.0.path().join("agent"), program(Some("/lib64/ld.so"), &["libc.so.6"])).unwrap();
    assert!(folder.failure().contains("static"));
    fs::write(folder.0.path().join("agent"), "#!/bin/sh\n").unwrap();
    assert!(folder.failure().contains("no program"));
}

#[test]
fn a_package_that_climbs_out_or_takes_a_path_of_another_is_refused() {
    let file = |path| Member::File(path, b"x".to_vec());
    let long = format!("./usr/bin/{}", "x/".repeat(2000));
    for (members, expected) in [
        (vec![file("../../etc/passwd")], "leaves its folder"),
        (vec![file("./usr/bin/../../../x")], "leaves its folder"),
        (vec![Member::Link("./usr/bin/x", "y"), file("./sbin/mke2fs")], "exists already"),
        (vec![Member::Hard("./usr/bin/x", "../../etc/passwd")], "leaves its folder"),
        (vec![Member::Hard("./usr/bin/x", "./usr/bin/gone")], "does not come before"),
        (vec![file(&long)], "bytes"),
    ] {
        let mut all = packages();
        all.push(("zz.deb".to_owned(), deb("zz", &members)));
        let reason = Folder::new(&all).failure();
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

#[test]
fn links_in_a_circle_and_out_of_the_packages_are_refused() {
    for (target, expected) in [("mkfs.ext4", "mkfs.ext4"), ("../../../etc/shadow", "out of the tree")] {
        let dynamic = program(None, &[]);
        let members = [
            Member::File("./sbin/mke2fs", dynamic),
            Member::Link("./sbin/mkfs.ext4", "loop"),
            Member::Link("./sbin/loop", target),
            Member::File("./etc/mke2fs.conf", Vec::new()),
        ];
        let reason = Folder::new(&replaced("e2fsprogs.deb", deb("e2fsprogs", &members))).failure();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_cut_or_damaged_package_is_named() {
    let whole = kernel(xz);
    for bytes in [whole[..whole.len() / 2].to_vec(), b"!<arch>\n".to_vec(), Vec::new(), tar(&[])] {
        let reason = Folder::new(&replaced("linux.deb", bytes)).failure();
        assert!(reason.contains("linux.deb"), "{reason}");
    }
    let mut flipped = whole.clone();
    let middle = whole.len() * 2 / 3;
    flipped[middle] ^= 0x40;
    assert!(Folder::new(&replaced("linux.deb", flipped)).build().is_err());
}

#[test]
fn two_versions_and_another_architecture_are_refused() {
    let mut two = packages();
    two.push(("libc6-old.deb".to_owned(), deb("libc6", &[])));
    assert!(Folder::new(&two).failure().contains("libc6 twice"));
    let mut arm = packages();
    let control = "Package: other\nVersion: 1\nArchitecture: arm64\n";
    arm.push(("arm.deb".to_owned(), deb_packed(control, &[], xz)));
    assert!(Folder::new(&arm).failure().contains("arm64"));
}

#[test]
fn a_kernel_and_a_folder_of_modules_can_replace_the_package() {
    let folder = Folder::new(&without("linux.deb"));
    let modules = folder.0.path().join("6.9-own");
    fs::create_dir_all(modules.join("kernel")).unwrap();
    let builtin: String = required()[1..].iter().map(|name| format!("kernel/{name}.ko\n")).collect();
    fs::write(modules.join("modules.builtin"), builtin).unwrap();
    fs::write(modules.join("kernel/sr_mod.ko.xz"), xz(&module(&[]))).unwrap();
    std::os::unix::fs::symlink("/", modules.join("build")).unwrap();
    fs::write(folder.0.path().join("vmlinuz"), b"own kernel").unwrap();
    let mut inputs = folder.inputs();
    inputs.kernel = Some(KernelSource { image: folder.0.path().join("vmlinuz"), modules });
    let medium = build(&inputs, &mut |_| {}).unwrap();
    assert_eq!((&*medium.record.kernel, &medium.record.modules[..]), ("6.9-own", &["sr_mod".to_owned()][..]));
    assert_eq!(Image::open(bytes(&medium)).unwrap().read("boot/vmlinuz", 99).unwrap(), b"own kernel");
}

#[test]
fn the_image_of_the_synthetic_packages_is_the_golden_one() {
    let folder = Folder::new(&replaced("linux.deb", kernel(<[u8]>::to_vec)));
    let medium = build(&folder.inputs(), &mut |_| {}).unwrap();
    let digest = hex::encode(Sha256::digest(bytes(&medium)));
    let record = serde_json::to_string_pretty(&medium.record).unwrap();
    let initrd = Image::open(bytes(&medium)).unwrap().read("boot/initrd", 1 << 20).unwrap();
    let archive = crate::unpack::unpack_all(&*initrd, 1 << 22).unwrap();
    let index = archive.windows(16).position(|part| part == b"shoal-modules 1\n").unwrap();
    let index = archive[index..].split(|byte| *byte == 0).next().unwrap();
    let text = format!("sha256:{digest}\n\n{}\n{record}\n", String::from_utf8_lossy(index));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/maintenance/image.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        text,
        fs::read_to_string(&path).unwrap(),
        "UPDATE_GOLDEN=1 writes golden/maintenance/image.txt anew"
    );
}
