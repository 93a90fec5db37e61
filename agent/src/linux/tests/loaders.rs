//! The loaders and kernels of several distributions, as their packages place them in an image.

use super::*;

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
