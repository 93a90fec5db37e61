//! The trial system: the smallest image that can be installed, made from the packages of the medium.
//!
//! ```text
//!   packages of `fetch` ──► /boot/vmlinuz-RELEASE      the kernel
//!                           /boot/initrd.img-RELEASE   busybox, drivers of disks, a script that mounts the root and goes there
//!                           /usr/bin/busybox, sh       the programs
//!                           /usr/sbin/init             a script: what was installed, then a prompt
//!                           shim and GRUB, signed      what starts by UEFI
//!                               └──► one layer ──► OCI image layout with the tag 1
//! ```
//!
//! It shows on a virtual machine, or on a server that is to be tried, that an installation works from power to prompt. It has no
//! users and no network: any name at the prompt opens a shell on the console.
//!
//! Invariants: the same packages give the same bytes; nothing is taken that is not in a package, except the two scripts. It starts
//! by UEFI only: GRUB's installer for BIOS is in none of the packages of the medium.
//!
//! Specification: OCI image-spec, `image-layout.md`.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::build::Sources;
use crate::cpio::{Archive, Entry};
use crate::error::Error;
use crate::modules::{self, Kernel};

/// The tag of the image in its layout.
const TAG: &str = "1";
/// Drivers of the disks that a trial meets. One that the kernel does not have as a module is passed over.
const DRIVERS: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_scsi",
    "ahci",
    "nvme",
    "sd_mod",
    "ext4",
    "crc32c_generic",
    "usbhid",
    "hid_generic",
    "xhci_pci",
];
const BUSYBOX: &str = "usr/bin/busybox";
const SHIM: &str = "usr/lib/shim/shimx64.efi.signed";
const GRUB: &str = "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed";
/// The folders of the root file system that no package of the image has.
const FOLDERS: &[&str] = &["dev", "etc", "proc", "root", "run", "sys", "tmp", "var/lib", "usr/lib64"];
/// The first process of the initramfs.
const EARLY: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /disk
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules); do /bin/busybox insmod "/$module"; done
root=$(/bin/busybox sed 's/.*root=UUID=\([^ ]*\).*/\1/' /proc/cmdline)
until disk=$(/bin/busybox findfs "UUID=$root") && /bin/busybox mount "$disk" /disk; do /bin/busybox sleep 1; done
/bin/busybox mount -o move /dev /disk/dev
/bin/busybox umount /proc /sys
exec /bin/busybox switch_root /disk /usr/sbin/init
"#;
/// The first process of the installed system.
const INIT: &str = r#"#!/usr/bin/busybox sh
export PATH=/usr/sbin:/usr/bin HOME=/root TERM=linux
/usr/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
echo
echo "Shoal trial system, kernel $(uname -r)"
grep ' / ' /proc/mounts
for file in /var/lib/cloud/seed/nocloud/*; do echo "$file: $(wc -c <"$file") bytes"; done
while true; do
    echo
    echo "This system has no users: any name opens a shell."
    printf 'trial login: '
    if read -r name; then cd /root && sh; else sleep 1000000; fi
done
"#;

/// Writes the trial system as an OCI image layout into the folder `layout`, which is created. Returns the bytes of its layer.
/// `progress` receives a sentence before each long step.
///
/// # Errors
/// [`Error`] when a package cannot be read or is missing, or a file cannot be written.
pub fn write_trial_image(
    packages: &Path,
    layout: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<u64, Error> {
    progress("reading packages");
    let mut sources = Sources::read(packages)?;
    progress("making the trial system");
    let root = root(&mut sources).map_err(Error::Incomplete)?;
    let layer =
        tar(&root).map_err(|why| Error::Incomplete(format!("cannot pack the trial system: {why}")))?;
    write_layout(&layer, layout).map_err(Error::file(layout))
}

/// The root file system.
fn root(sources: &mut Sources) -> Result<Archive, String> {
    let kernel = Kernel::read(&sources.tree)?;
    let release = kernel.release.clone();
    let busybox = sources.take(BUSYBOX, "busybox-static")?;
    let image = sources.take(&format!("boot/vmlinuz-{release}"), &format!("linux-image-{release}"))?;
    let initramfs = initramfs(sources, &kernel, busybox.clone())?;
    let mut root = Archive::default();
    for folder in ["bin", "sbin", "lib", "lib64"] {
        root.add(folder, Entry::Link(format!("usr/{folder}")))?;
    }
    for folder in FOLDERS {
        root.add(folder, Entry::Directory)?;
    }
    let program = |text: &str| Entry::File(text.as_bytes().to_vec(), true);
    let text = |text: &str| Entry::File(text.as_bytes().to_vec(), false);
    root.add(BUSYBOX, Entry::File(busybox, true))?;
    root.add("usr/bin/sh", Entry::Link("busybox".to_owned()))?;
    root.add("usr/sbin/init", program(INIT))?;
    root.add(SHIM, Entry::File(sources.take(SHIM, "shim-signed")?, false))?;
    root.add(GRUB, Entry::File(sources.take(GRUB, "grub-efi-amd64-signed")?, false))?;
    root.add(&format!("boot/vmlinuz-{release}"), Entry::File(image, false))?;
    root.add(&format!("boot/initrd.img-{release}"), Entry::File(initramfs, false))?;
    // Debian's GRUB looks for its configuration in EFI/debian.
    root.add("etc/os-release", text("ID=debian\nNAME=\"Shoal trial\"\nPRETTY_NAME=\"Shoal trial\"\n"))?;
    // A kernel on a busy emulator stops at the check of its timer.
    root.add(
        "etc/default/grub",
        text("GRUB_CMDLINE_LINUX=\"console=tty0 console=ttyS0,115200 no_timer_check\"\n"),
    )?;
    Ok(root)
}

/// The initramfs of the trial system: it finds the disk and starts the system on it.
fn initramfs(sources: &Sources, kernel: &Kernel, busybox: Vec<u8>) -> Result<Vec<u8>, String> {
    let selection = kernel.select(DRIVERS.iter().map(|name| (*name, false)), &sources.tree)?;
    let mut archive = Archive::default();
    archive.add("dev/console", Entry::Device(5, 1))?;
    archive.add("bin/busybox", Entry::File(busybox, true))?;
    archive.add("init", Entry::File(EARLY.as_bytes().to_vec(), true))?;
    let mut order = String::new();
    for (path, name) in &selection.files {
        archive.add(name, Entry::File(modules::contents(&sources.tree, path)?, false))?;
        order.push_str(name);
        order.push('\n');
    }
    archive.add("modules", Entry::File(order.into_bytes(), false))?;
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    let written = archive.write_to(&mut packed).and_then(|()| packed.finish());
    written.map_err(|why| format!("cannot pack the initramfs: {why}"))
}

/// The layer as tar. Owners and times are 0, so that equal content gives equal bytes.
fn tar(root: &Archive) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, entry) in root.entries() {
        let mut header = tar::Header::new_ustar();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match entry {
            Entry::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                archive.append_data(&mut header, format!("{path}/"), io::empty())?;
            }
            Entry::File(content, executable) => {
                header.set_size(content.len() as u64);
                header.set_mode(if *executable { 0o755 } else { 0o644 });
                archive.append_data(&mut header, path, content.as_slice())?;
            }
            Entry::Link(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                archive.append_link(&mut header, path, target)?;
            }
            // Device files are made by the kernel.
            Entry::Device(..) => {}
        }
    }
    archive.into_inner()
}

/// Writes blobs, index and marker of a layout.
fn write_layout(layer: &[u8], layout: &Path) -> io::Result<u64> {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let store = |bytes: &[u8], kind: &str| -> io::Result<Value> {
        let digest = hex::encode(Sha256::digest(bytes));
        fs::write(blobs.join(&digest), bytes)?;
        let media_type = format!("application/vnd.oci.image.{kind}");
        Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
    };
    let diff_id = format!("sha256:{}", hex::encode(Sha256::digest(layer)));
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    packed.write_all(layer)?;
    let layer = store(&packed.finish()?, "layer.v1.tar+gzip")?;
    let bytes = layer["size"].as_u64().unwrap_or_default();
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    });
    let config = store(config.to_string().as_bytes(), "config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer],
    });
    let mut entry = store(manifest.to_string().as_bytes(), "manifest.v1+json")?;
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": TAG });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::test_kit::{Member, deb, deb_packed, gzip, module};

    /// A folder with the packages of a trial system, without that of one name.
    fn packages(without: &str) -> tempfile::TempDir {
        let file = |path, content: &[u8]| Member::File(path, content.to_vec());
        let kernel = [
            file("./boot/vmlinuz-6.1", b"kernel"),
            file("./lib/modules/6.1/modules.builtin", b"kernel/fs/ext4.ko\n"),
            Member::File("./lib/modules/6.1/kernel/virtio_blk.ko", module(&["depends=virtio"])),
            Member::File("./lib/modules/6.1/kernel/virtio.ko", module(&["depends="])),
        ];
        let control = "Package: linux-image-6.1\nVersion: 6.1.1-1\nArchitecture: amd64\n";
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("linux-image", deb_packed(control, &kernel, gzip)),
            ("busybox-static", deb("busybox-static", &[file("./bin/busybox", b"busybox")])),
            ("shim-signed", deb("shim-signed", &[file("./usr/lib/shim/shimx64.efi.signed", b"shim")])),
            (
                "grub-efi-amd64-signed",
                deb(
                    "grub-efi-amd64-signed",
                    &[file("./usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", b"grub")],
                ),
            ),
        ] {
            if name != without {
                fs::write(folder.path().join(format!("{name}.deb")), bytes).unwrap();
            }
        }
        folder
    }

    /// The files of the image below a folder.
    fn made(packages: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
        let layout = tempfile::tempdir().unwrap();
        write_trial_image(packages, layout.path(), &mut |_| {}).unwrap();
        let blob = |digest: &Value| {
            let digest = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = fs::read(layout.path().join("blobs/sha256").join(digest)).unwrap();
            assert_eq!(hex::encode(Sha256::digest(&bytes)), digest, "a blob has the name of its bytes");
            bytes
        };
        let document = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let index = document(&fs::read(layout.path().join("index.json")).unwrap());
        assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "1");
        let manifest = document(&blob(&index["manifests"][0]["digest"]));
        let mut tar = Vec::new();
        let packed = blob(&manifest["layers"][0]["digest"]);
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut tar).unwrap();
        let config = document(&blob(&manifest["config"]["digest"]));
        let diff_id = format!("sha256:{}", hex::encode(Sha256::digest(&tar)));
        assert_eq!(config["rootfs"]["diff_ids"], json!([diff_id]));
        let mut files = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(&tar[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            if let Some(target) = entry.link_name().unwrap() {
                bytes = target.to_str().unwrap().as_bytes().to_vec();
            }
            files.insert(entry.path().unwrap().to_str().unwrap().to_owned(), bytes);
        }
        files
    }

    #[test]
    fn the_trial_system_has_a_kernel_its_initramfs_a_first_process_and_what_starts_by_uefi() {
        let folder = packages("");
        let files = made(folder.path());
        assert_eq!(files["boot/vmlinuz-6.1"], b"kernel");
        assert_eq!((&files[BUSYBOX][..], &files["bin"][..]), (&b"busybox"[..], &b"usr/bin"[..]));
        assert_eq!((&files[SHIM][..], &files[GRUB][..]), (&b"shim"[..], &b"grub"[..]));
        assert!(String::from_utf8_lossy(&files["usr/sbin/init"]).contains("login: "));
        let archive = crate::unpack::unpack_all(&files["boot/initrd.img-6.1"][..], 1 << 20).unwrap();
        let at = |text: &str| archive.windows(text.len()).position(|part| part == text.as_bytes());
        assert!(at("virtio.ko\nvirtio_blk.ko\n").is_some(), "drivers in the order of loading");
        assert!(at("switch_root").is_some());
        assert_eq!(files, made(folder.path()), "the same packages give the same image");
    }

    #[test]
    fn a_missing_package_is_named() {
        for name in ["linux-image", "busybox-static", "shim-signed", "grub-efi-amd64-signed"] {
            let layout = tempfile::tempdir().unwrap();
            let error = write_trial_image(packages(name).path(), layout.path(), &mut |_| {}).unwrap_err();
            assert!(error.to_string().contains(name), "{name}: {error}");
        }
    }
}
