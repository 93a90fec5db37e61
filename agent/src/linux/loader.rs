//! The boot loader of the new system: found in its own root file system and put where firmware starts it.
//!
//! ```text
//! shim + GRUB (signed, or GRUB alone)   EFI/<id>/ and EFI/BOOT/{BOOTX64.EFI, grubx64.efi, mmx64.efi}, grub.cfg in both;
//!                                       beside a shim of SUSE also grub.efi and MokManager.efi
//! systemd-boot                          EFI/systemd/ and EFI/BOOT/BOOTX64.EFI, kernel and initramfs beside, loader/entries
//! neither                               an error: the system could not start
//! ```
//!
//! `EFI/BOOT` is what every firmware starts without an entry of its own. `fbx64.efi` is not put there: with firmware that
//! resets its entries it restarts the machine again and again.
//!
//! Invariant: everything is read from the new root and written into it; nothing comes from the medium.

use std::io::Read as _;

use super::layout::Layout;
use super::texts::{self, KernelFiles, OsRelease};
use crate::layer::LayerTree;

/// The suffix of EFI programs of this architecture.
#[cfg(target_arch = "aarch64")]
pub(super) const ARCH: &str = "aa64";
/// The suffix of EFI programs of this architecture.
#[cfg(not(target_arch = "aarch64"))]
pub(super) const ARCH: &str = "x64";

/// The folders in which packages place the programs of a vendor, each in a folder of its own.
const VENDOR_FOLDERS: [&str; 2] = ["boot/efi/EFI", "usr/lib/bootupd/updates/EFI"];
const MAX_PROGRAM: u64 = 64 << 20;
const MAX_CONFIGURATION: u64 = 256 * 1024;

/// A boot loader of an image, as paths in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BootLoader {
    /// GRUB, with shim if it is signed.
    Grub { shim: Option<String>, grub: String, mok_manager: Option<String> },
    /// systemd-boot.
    SystemdBoot { program: String },
}

/// Finds the loader of the new system. Signed programs come first.
pub(super) fn find(tree: &LayerTree, system: &OsRelease) -> Option<BootLoader> {
    let first = |candidates: &[String]| candidates.iter().find(|path| tree.has_file(path)).cloned();
    let upper = if ARCH == "aa64" { "arm64" } else { "x86_64" };
    let [vendor, bootupd] = VENDOR_FOLDERS.map(|folder| format!("{folder}/{}", system.efi_folder));
    let suse = format!("usr/share/efi/{}", if ARCH == "aa64" { "aarch64" } else { "x86_64" });
    let shim = first(&[
        format!("usr/lib/shim/shim{ARCH}.efi.signed.latest"),
        format!("usr/lib/shim/shim{ARCH}.efi.signed"),
        // Before the vendor's folder, into which an earlier run copied it under another name.
        format!("{suse}/shim.efi"),
        format!("{vendor}/shim{ARCH}.efi"),
        format!("{bootupd}/shim{ARCH}.efi"),
    ]);
    let grub = first(&[
        format!("usr/lib/grub/{upper}-efi-signed/grub{ARCH}.efi.signed"),
        format!("{vendor}/grub{ARCH}.efi"),
        format!("{suse}/grub.efi"),
        format!("{bootupd}/grub{ARCH}.efi"),
    ]);
    let mok_manager = first(&[
        format!("usr/lib/shim/mm{ARCH}.efi.signed"),
        format!("usr/lib/shim/mm{ARCH}.efi"),
        format!("{vendor}/mm{ARCH}.efi"),
        format!("{suse}/MokManager.efi"),
    ]);
    let monolithic = || first(&[format!("usr/lib/grub/{upper}-efi/monolithic/grub{ARCH}.efi")]);
    match (shim, grub) {
        (shim, Some(grub)) => Some(BootLoader::Grub { shim, grub, mok_manager }),
        (_, None) => {
            let systemd = first(&[
                format!("usr/lib/systemd/boot/efi/systemd-boot{ARCH}.efi.signed"),
                format!("usr/lib/systemd/boot/efi/systemd-boot{ARCH}.efi"),
            ]);
            match (systemd, monolithic()) {
                (Some(program), _) => Some(BootLoader::SystemdBoot { program }),
                (None, Some(grub)) => Some(BootLoader::Grub { shim: None, grub, mok_manager: None }),
                (None, None) => None,
            }
        }
    }
}

/// Installs a loader on the EFI system partition, which is mounted at `efi` in the tree. Returns the path of the program for
/// the firmware's entry, with backslashes.
pub(super) fn install(
    tree: &LayerTree,
    efi: &str,
    loader: &BootLoader,
    layout: &Layout,
    system: &OsRelease,
    kernels: &[KernelFiles],
    words: &str,
) -> Result<String, String> {
    let upper = ARCH.to_uppercase();
    let fallback = format!("{efi}/EFI/BOOT/BOOT{upper}.EFI");
    match loader {
        BootLoader::Grub { shim, grub, mok_manager } => {
            let id = &system.efi_folder;
            let own = format!("{efi}/EFI/{id}");
            let boot = format!("{efi}/EFI/BOOT");
            let stub = texts::grub_stub(layout, grub_folder(tree));
            let started = match shim {
                Some(shim) => {
                    copy(tree, shim, &format!("{own}/shim{ARCH}.efi"))?;
                    copy(tree, shim, &fallback)?;
                    copy(tree, grub, &format!("{boot}/grub{ARCH}.efi"))?;
                    // SUSE builds its shim with these names of the programs that it starts.
                    if shim.ends_with("/shim.efi") {
                        for folder in [&own, &boot] {
                            copy(tree, grub, &format!("{folder}/grub.efi"))?;
                            if let Some(mok_manager) = mok_manager {
                                copy(tree, mok_manager, &format!("{folder}/MokManager.efi"))?;
                            }
                        }
                    }
                    format!("shim{ARCH}.efi")
                }
                None => {
                    copy(tree, grub, &fallback)?;
                    format!("grub{ARCH}.efi")
                }
            };
            copy(tree, grub, &format!("{own}/grub{ARCH}.efi"))?;
            if let Some(mok_manager) = mok_manager {
                for folder in [&own, &boot] {
                    copy(tree, mok_manager, &format!("{folder}/mm{ARCH}.efi"))?;
                }
            }
            for folder in [&own, &boot] {
                write(tree, &format!("{folder}/grub.cfg"), &stub)?;
            }
            Ok(format!("\\EFI\\{id}\\{started}"))
        }
        BootLoader::SystemdBoot { program } => {
            copy(tree, program, &format!("{efi}/EFI/systemd/systemd-boot{ARCH}.efi"))?;
            copy(tree, program, &fallback)?;
            let folder = system.id.as_str();
            // systemd-boot starts the newest entry: one without an initramfs must not be it.
            let is_whole = |kernel: &&KernelFiles| kernel.initramfs.is_some();
            let has_whole = kernels.iter().any(|kernel| is_whole(&kernel));
            for kernel in kernels.iter().filter(|kernel| is_whole(kernel) || !has_whole) {
                for file in [Some(&kernel.kernel), kernel.initramfs.as_ref()].into_iter().flatten() {
                    copy(tree, &format!("boot/{file}"), &format!("{efi}/{folder}/{file}"))?;
                }
                let entry = texts::loader_entry(layout, system, kernel, folder, words);
                write(tree, &format!("{efi}/loader/entries/{folder}-{}.conf", kernel.version), &entry)?;
            }
            write(tree, &format!("{efi}/loader/loader.conf"), "timeout 3\n")?;
            Ok(format!("\\EFI\\systemd\\systemd-boot{ARCH}.efi"))
        }
    }
}

/// Writes GRUB's menu into `/boot`.
pub(super) fn write_menu(
    tree: &LayerTree,
    layout: &Layout,
    system: &OsRelease,
    kernels: &[KernelFiles],
    words: &str,
) -> Result<(), String> {
    let path = format!("boot/{}/grub.cfg", grub_folder(tree));
    write(tree, &path, &texts::grub_menu(layout, system, kernels, words))
}

/// Returns the folder of GRUB below `/boot`.
pub(super) fn grub_folder(tree: &LayerTree) -> &'static str {
    let second = ["usr/sbin/grub2-install", "usr/bin/grub2-install"].iter().any(|path| tree.has_file(path));
    if second || !tree.list("boot/grub2").is_empty() { "grub2" } else { "grub" }
}

/// Reads what the image says of itself.
pub(super) fn system_of(tree: &LayerTree) -> OsRelease {
    let read = |path: &str| tree.read_file(path, MAX_CONFIGURATION).ok();
    let bytes = read("etc/os-release").or_else(|| read("usr/lib/os-release")).unwrap_or_default();
    let mut system = OsRelease::parse(&String::from_utf8_lossy(&bytes));
    // A derivative with the signed GRUB of another distribution has its folder, which that GRUB reads.
    let mut folders = Vec::new();
    for within in VENDOR_FOLDERS {
        folders.extend(tree.list(within).into_iter().filter(|folder| {
            texts::is_name(folder) && tree.has_file(&format!("{within}/{folder}/grub{ARCH}.efi"))
        }));
    }
    folders.retain(|folder| !folder.eq_ignore_ascii_case("BOOT"));
    folders.dedup();
    if let [folder] = &folders[..] {
        system.efi_folder.clone_from(folder);
    }
    system
}

/// Returns the words of the kernel's command line that the image sets.
pub(super) fn words_of(tree: &LayerTree) -> String {
    let bytes = tree.read_file("etc/default/grub", MAX_CONFIGURATION).unwrap_or_default();
    texts::command_line(&String::from_utf8_lossy(&bytes))
}

/// Returns the kernels in `/boot`. Kernels that the image keeps beside their modules are copied there first. A run that continues after a
/// loss of power copies what is missing: a kernel is there only whole, and after its initramfs.
pub(super) fn kernels_of(tree: &LayerTree) -> Result<Vec<KernelFiles>, String> {
    for version in tree.list("usr/lib/modules") {
        let folder = format!("usr/lib/modules/{version}");
        let kernel = format!("boot/vmlinuz-{version}");
        if tree.has_file(&format!("{folder}/vmlinuz")) && !tree.has_file(&kernel) {
            if tree.has_file(&format!("{folder}/initramfs.img")) {
                copy(tree, &format!("{folder}/initramfs.img"), &format!("boot/initramfs-{version}.img"))?;
            }
            copy(tree, &format!("{folder}/vmlinuz"), &kernel)?;
        }
    }
    let mut names = tree.list("boot");
    names.retain(|name| tree.has_file(&format!("boot/{name}")));
    let found = texts::kernels(&names);
    if found.is_empty() {
        return Err("the image has no kernel: neither /boot/vmlinuz-VERSION nor \
             /usr/lib/modules/VERSION/vmlinuz; install one in it"
            .to_owned());
    }
    for name in found.iter().flat_map(|kernel| std::iter::once(&kernel.kernel).chain(&kernel.initramfs)) {
        let path = format!("boot/{name}");
        let leads_out = tree.leads_out(&path).map_err(|source| format!("reading /{path}: {source}"))?;
        // GRUB follows a link inside of the volume of /boot only.
        if leads_out {
            replace(tree, &path, &path)?;
        }
    }
    Ok(found)
}

/// Copies a file inside of the new root.
fn copy(tree: &LayerTree, from: &str, to: &str) -> Result<(), String> {
    if from == to { Ok(()) } else { replace(tree, from, to) }
}

/// Writes the content of a file to a path. Onto itself, a link becomes a file.
fn replace(tree: &LayerTree, from: &str, to: &str) -> Result<(), String> {
    let copied =
        tree.open_file(from).and_then(|file| tree.copy_into(to, &mut file.take(MAX_PROGRAM * 16), None));
    copied.map_err(|source| format!("copying /{from} to /{to}: {source}"))
}

fn write(tree: &LayerTree, path: &str, text: &str) -> Result<(), String> {
    tree.write_file(path, text.as_bytes(), None).map_err(|source| format!("writing /{path}: {source}"))
}
