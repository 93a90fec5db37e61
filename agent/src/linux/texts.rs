//! The texts of the new system: fstab, the configuration of GRUB and of systemd-boot, and what os-release says.
//!
//! Invariant: pure. No text of an image gets into a configuration with a quote, a line break or a `$` in it.

use recipe::FsFormat;

use super::layout::Layout;
use super::members::Place;

/// The name and id of the system of an image, from its `os-release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsRelease {
    /// `ID`, such as `ubuntu`.
    pub id: String,
    /// `NAME`, for people.
    pub name: String,
    /// The folder of the EFI system partition that this system's signed GRUB reads.
    pub efi_folder: String,
}

impl OsRelease {
    /// Reads the text of `os-release`. What is missing is `linux`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))?;
            let plain = line.trim().trim_matches(['"', '\'']);
            Some(plain.to_owned())
        };
        let id = value("ID").unwrap_or_default();
        let id = if is_name(&id) { id } else { "linux".to_owned() };
        let efi_folder = match id.as_str() {
            "rhel" | "ol" => "redhat",
            id if id.starts_with("opensuse") => "opensuse",
            id => id,
        };
        let name = value("PRETTY_NAME").or_else(|| value("NAME")).unwrap_or_default();
        let name = plain(&name);
        Self {
            efi_folder: efi_folder.to_owned(),
            id,
            name: if name.is_empty() { "Linux".to_owned() } else { name },
        }
    }
}

/// Whether a text can name a folder of the EFI system partition.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    (1..=32).contains(&text.len()) && text.chars().all(fits) && !text.starts_with('.')
}

/// Returns at most 64 characters without those that mean something in a configuration.
fn plain(text: &str) -> String {
    let fits = |letter: &char| letter.is_ascii_alphanumeric() || " ._-+()/".contains(*letter);
    text.chars().filter(fits).take(64).collect::<String>().trim().to_owned()
}

/// How the words begin that name disks and volumes of the machine on which the image was made. An initramfs waits for them, and for good.
const OF_ANOTHER_DISK: [&str; 7] =
    ["root=", "rootflags=", "resume=", "resume_offset=", "rd.lvm", "rd.md", "rd.luks"];

/// Returns the words of a kernel command line that a configuration can hold.
pub(super) fn command_line(default_grub: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for key in ["GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"] {
        let mut lines =
            default_grub.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
        if let Some(value) = lines.next_back() {
            words.extend(value.trim().trim_matches(['"', '\'']).split_whitespace());
        }
    }
    let fits = |word: &&str| {
        let letters = |letter: char| letter.is_ascii_alphanumeric() || "._-+,=:/@%".contains(letter);
        word.chars().all(letters) && !OF_ANOTHER_DISK.iter().any(|start| word.starts_with(start))
    };
    words.into_iter().filter(fits).take(64).collect::<Vec<_>>().join(" ")
}

/// Returns `/etc/fstab`.
pub(super) fn fstab(layout: &Layout) -> String {
    let mut text = "# Written by the installer of Shoal. File systems are named by UUID.\n".to_owned();
    // A machine with one on each disk starts when a disk is missing.
    let efi = if layout.efi_systems().count() > 1 { "umask=0077,nofail" } else { "umask=0077" };
    for volume in layout.mounted() {
        let (mount, uuid) = (volume.mount.as_deref().unwrap_or_default(), volume.identity());
        let (options, order) = match (volume.format, mount) {
            (FsFormat::Vfat, _) if volume.is_efi_system => (efi, 2),
            (FsFormat::Vfat, _) => ("umask=0077", 2),
            (FsFormat::Ext4, "/") => ("errors=remount-ro", 1),
            (FsFormat::Ext4, _) => ("defaults", 2),
            // Their check programs do nothing at the start.
            _ => ("defaults", 0),
        };
        text += &format!("UUID={uuid} {mount} {} {options} 0 {order}\n", volume.format.as_str());
    }
    for volume in layout.volumes.iter().filter(|volume| volume.format == FsFormat::Swap) {
        text += &format!("UUID={} none swap sw 0 0\n", volume.identity());
    }
    text
}

/// A kernel with its initramfs, as paths below `/boot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelFiles {
    pub(super) version: String,
    pub(super) kernel: String,
    pub(super) initramfs: Option<String>,
}

/// Returns the kernels of the names in `/boot`: those with an initramfs first, and of these the newest.
pub(super) fn kernels(names: &[String]) -> Vec<KernelFiles> {
    let mut found: Vec<KernelFiles> = names
        .iter()
        .filter_map(|name| {
            let version = name.strip_prefix("vmlinuz-").or_else(|| name.strip_prefix("Image-"))?;
            let safe = |letter: char| letter.is_ascii_alphanumeric() || "._+~-".contains(letter);
            if version.is_empty() || !version.chars().all(safe) || version.contains("rescue") {
                return None;
            }
            let initramfs = ["initrd.img-", "initramfs-", "initrd-"].iter().find_map(|start| {
                let is_of = |name: &String| {
                    let rest = name.strip_prefix(start).and_then(|rest| rest.strip_prefix(version));
                    matches!(rest, Some("" | ".img"))
                };
                names.iter().find(|name| is_of(name))
            });
            Some(KernelFiles {
                version: version.to_owned(),
                kernel: name.clone(),
                initramfs: initramfs.cloned(),
            })
        })
        .collect();
    found.sort_by_key(|kernel| (kernel.initramfs.is_none(), std::cmp::Reverse(numbered(&kernel.version))));
    found
}

/// Splits a version so that 6.10 is newer than 6.9.
fn numbered(version: &str) -> Vec<(u64, String)> {
    let parts = version.split(['.', '-', '_', '+', '~']);
    parts.map(|part| (part.parse().unwrap_or(0), part.to_owned())).collect()
}

/// Returns how a kernel finds its root. Alone, without an initramfs, it reads no file system before the root and knows partitions only.
fn root_word(layout: &Layout, kernel: &KernelFiles) -> String {
    match (kernel.initramfs.is_some(), layout.root().place) {
        (false, Place::Partition { disk, number }) => format!("PARTUUID={}", layout.guid(disk, number)),
        _ => format!("UUID={}", layout.root().identity()),
    }
}

/// Returns the configuration of GRUB that starts the kernels.
pub(super) fn grub_menu(layout: &Layout, system: &OsRelease, kernels: &[KernelFiles], words: &str) -> String {
    let (boot, folder) = layout.boot();
    let mut text = format!(
        "# Written by the installer of Shoal; the system's own tools may write it again.\n\
         set default=0\nset timeout=3\nsearch --no-floppy --fs-uuid --set=root {}\n",
        boot.identity()
    );
    for kernel in kernels {
        text += &format!("menuentry \"{} ({})\" {{\n", system.name, kernel.version);
        text +=
            &format!("    linux {folder}/{} root={} ro {words}\n", kernel.kernel, root_word(layout, kernel));
        if let Some(initramfs) = &kernel.initramfs {
            text += &format!("    initrd {folder}/{initramfs}\n");
        }
        text += "}\n";
    }
    text
}

/// Returns the small configuration on the EFI system partition, which leads to the one in `/boot`.
pub(super) fn grub_stub(layout: &Layout, folder: &str) -> String {
    let (boot, path) = layout.boot();
    format!(
        "search --no-floppy --fs-uuid --set=root {}\nset prefix=($root){path}/{folder}\nconfigfile $prefix/grub.cfg\n",
        boot.identity()
    )
}

/// Returns an entry of systemd-boot; `folder` is that of the kernel on the EFI system partition.
pub(super) fn loader_entry(
    layout: &Layout,
    system: &OsRelease,
    kernel: &KernelFiles,
    folder: &str,
    words: &str,
) -> String {
    let mut text = format!(
        "title {}\nversion {}\noptions root={} ro {words}\nlinux /{folder}/{}\n",
        system.name,
        kernel.version,
        root_word(layout, kernel),
        kernel.kernel
    );
    if let Some(initramfs) = &kernel.initramfs {
        text += &format!("initrd /{folder}/{initramfs}\n");
    }
    text
}
