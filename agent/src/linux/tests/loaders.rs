//! The loaders and kernels of several distributions, as their packages place them in an image.

use super::hostile::SmallRoot;
use super::*;
use crate::layer::{LayerTree, Ownership};
use crate::linux::{loader, texts};

/// Installs these files beside a kernel, by UEFI.
fn installed(id: &str, files: &[(&str, &str)]) -> FakeHost {
    let host = FakeHost::new(true);
    let (_folder, disk) = sparse_disk();
    let release = format!("ID=\"{id}\"\n");
    let layers = vec![layer(SYSTEM), layer(&[("etc/os-release", &release)]), layer(files)];
    assert_eq!(install(&host, &facts(), &disk, &controller(layers), &recipe()), Outcome::Success);
    host
}

#[test]
fn the_shim_of_suse_finds_grub_and_mok_manager_by_the_names_that_it_was_built_with() {
    let host = installed(
        "opensuse-leap",
        &[
            ("usr/share/efi/x86_64/shim.efi", "shim"),
            ("usr/share/efi/x86_64/grub.efi", "grub"),
            ("usr/share/efi/x86_64/MokManager.efi", "mok"),
        ],
    );
    assert_eq!(host.read("boot/efi/EFI/BOOT/BOOTX64.EFI"), "shim");
    for folder in ["BOOT", "opensuse"] {
        assert_eq!(host.read(&format!("boot/efi/EFI/{folder}/grub.efi")), "grub", "{folder}");
        assert_eq!(host.read(&format!("boot/efi/EFI/{folder}/MokManager.efi")), "mok", "{folder}");
        assert!(host.read(&format!("boot/efi/EFI/{folder}/grub.cfg")).contains("configfile"));
    }
}

#[test]
fn the_folder_of_a_signed_grub_is_the_one_of_the_image_when_it_has_another_name_than_the_system() {
    for (id, folder, within) in [
        ("ol", "redhat", "boot/efi/EFI"),
        ("ol", "redhat", "usr/lib/bootupd/updates/EFI"),
        ("nobara", "fedora", "boot/efi/EFI"),
        ("fedora", "fedora", "boot/efi/EFI"),
    ] {
        let (shim, grub) =
            (format!("{within}/{folder}/shimx64.efi"), format!("{within}/{folder}/grubx64.efi"));
        let host = installed(id, &[(&shim, "shim"), (&grub, "grub")]);
        for (name, content) in [("shimx64.efi", "shim"), ("grubx64.efi", "grub")] {
            assert_eq!(host.read(&format!("boot/efi/EFI/{folder}/{name}")), content, "{id}");
        }
        assert!(host.read(&format!("boot/efi/EFI/{folder}/grub.cfg")).contains("configfile"));
        assert_eq!(host.read("boot/efi/EFI/BOOT/BOOTX64.EFI"), "shim", "{id}");
    }
}

#[test]
fn a_kernel_with_an_initramfs_comes_before_a_newer_one_without() {
    let kernels = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let found = texts::kernels(&names);
        found.into_iter().map(|kernel| (kernel.version, kernel.initramfs)).collect::<Vec<_>>()
    };
    for initramfs in ["initramfs-lts", "initrd-lts.img", "initrd.img-lts", "initramfs-lts.img"] {
        let found = kernels(&["vmlinuz-lts", initramfs]);
        assert_eq!(found, [("lts".to_owned(), Some(initramfs.to_owned()))]);
    }
    let found = kernels(&["vmlinuz-6.10.0", "vmlinuz-6.9.0", "initrd.img-6.9.0", "vmlinuz-6.11.0"]);
    let versions: Vec<&str> = found.iter().map(|(version, _)| version.as_str()).collect();
    assert_eq!(versions, ["6.9.0", "6.11.0", "6.10.0"]);
}

#[test]
fn systemd_boot_has_no_entry_of_a_kernel_without_an_initramfs_beside_one_with() {
    let host = installed("x", &[("usr/lib/systemd/boot/efi/systemd-bootx64.efi", "sd")]);
    let entries = fs::read_dir(host.root().join("boot/efi/loader/entries")).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["x-6.10.0-1.conf"]);
}

#[test]
fn a_kernel_without_an_initramfs_is_a_warning_for_a_partition() {
    let host = FakeHost::new(true);
    let (_folder, disk) = sparse_disk();
    let system: Vec<_> = SYSTEM.iter().copied().filter(|(path, _)| !path.contains("initrd")).collect();
    let http = controller(vec![layer(&system), layer(LOADER)]);
    assert_eq!(install(&host, &facts(), &disk, &http, &recipe()), Outcome::Success);
    let log = host.read("var/log/shoal-install/agent.log");
    assert!(log.contains("warning: no kernel of the image has an initramfs"), "{log}");
    assert!(!installed("x", LOADER).read("var/log/shoal-install/agent.log").contains("warning: no kernel"));
}

/// A root with `/boot` and a kernel beside its modules.
fn root_with_modules() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("usr/lib/modules/6.4")).unwrap();
    fs::create_dir(folder.path().join("boot")).unwrap();
    fs::write(folder.path().join("usr/lib/modules/6.4/vmlinuz"), "kernel").unwrap();
    folder
}

/// Links the kernel into `/boot`, and returns whether it is still a link after the kernels were looked for.
fn stays_a_link(root: &Path) -> bool {
    let kernel = root.join("boot/vmlinuz-6.4");
    std::os::unix::fs::symlink("../usr/lib/modules/6.4/vmlinuz", &kernel).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("boot/vmlinuz-6.5")).unwrap();
    let found = loader::kernels_of(&LayerTree::open(root, Ownership::Ignore).unwrap()).unwrap();
    let versions: Vec<&str> = found.iter().map(|kernel| kernel.version.as_str()).collect();
    assert_eq!(versions, ["6.4"], "a link to nowhere is no kernel");
    assert_eq!(fs::read(&kernel).unwrap(), b"kernel");
    fs::symlink_metadata(&kernel).unwrap().is_symlink()
}

#[test]
fn a_kernel_that_is_a_link_inside_of_its_volume_stays_one() {
    assert!(stays_a_link(root_with_modules().path()));
}

#[test]
#[ignore = "needs root; run by .ci/run"]
fn a_kernel_that_is_a_link_out_of_the_volume_of_boot_becomes_a_file_that_grub_reads() {
    let folder = root_with_modules();
    let _boot = SmallRoot::mount(&folder.path().join("boot"));
    assert!(!stays_a_link(folder.path()));
    drop(_boot);
    // The same with /usr as a volume of its own.
    let folder = root_with_modules();
    let _usr = SmallRoot::mount(&folder.path().join("usr"));
    fs::create_dir_all(folder.path().join("usr/lib/modules/6.4")).unwrap();
    fs::write(folder.path().join("usr/lib/modules/6.4/vmlinuz"), "kernel").unwrap();
    assert!(!stays_a_link(folder.path()));
}
