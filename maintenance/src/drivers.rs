//! The drivers, programs and firmware files of an image: the data of the two profiles.
//!
//! Names are those of the kernel's modules. A driver that the kernel has built in is present. Each list is closed over what its
//! modules need; nothing else of the kernel is taken.

use crate::profile::ImageProfile;

/// Drivers without which a machine cannot find its medium or its disk. A kernel without one of them ends the build.
const REQUIRED: &[&str] = &[
    // The medium: CD or USB stick, as a BMC shows it.
    "sr_mod",
    "sd_mod",
    "usb_storage",
    "uas",
    "xhci_pci",
    "ehci_pci",
    "isofs",
    "vfat",
    "nls_cp437",
    "nls_iso8859_1",
    "nls_utf8",
    "nls_ascii",
    "loop",
    // The console of a BMC types as a USB keyboard.
    "usbhid",
    "hid_generic",
    // Virtual machines, and the disks of ordinary ones.
    "virtio_pci",
    "virtio_blk",
    "virtio_scsi",
    "virtio_net",
    "ahci",
    "nvme",
    "ext4",
    "efivarfs",
];

/// More drivers of both profiles. One that the kernel does not have is recorded.
const COMMON: &[&str] = &[
    "ohci_pci",
    "uhci_hcd",
    "ata_piix",
    "ata_generic",
    "e1000",
    "e1000e",
    "igb",
    "tg3",
    "r8169",
    "crc32c_intel",
    "crc32c_generic",
    "virtio_rng",
    "virtio_console",
    "button",
    "evdev",
];

/// Drivers of the default profile only.
const ALL: &[&str] = &[
    // File systems and what lies between them and a disk.
    "xfs",
    "btrfs",
    "fuse",
    "ntfs3",
    "udf",
    "md_mod",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
    "dm_mod",
    "dm_mirror",
    "dm_snapshot",
    "dm_thin_pool",
    "dm_crypt",
    "bcache",
    // Virtual machines of other makers.
    "vmw_pvscsi",
    "vmxnet3",
    "hv_vmbus",
    "hv_storvsc",
    "hv_netvsc",
    "hv_utils",
    "hid_hyperv",
    "xen_blkfront",
    "xen_netfront",
    // Disk controllers.
    "vmd",
    "isci",
    "mpt3sas",
    "mpi3mr",
    "megaraid_sas",
    "hpsa",
    "smartpqi",
    "aacraid",
    "arcmsr",
    "mvsas",
    "mptsas",
    "mptspi",
    "sata_nv",
    "sata_sil24",
    "qla2xxx",
    "lpfc",
    "bfa",
    "fnic",
    // Network cards.
    "igc",
    "ixgbe",
    "ixgbevf",
    "i40e",
    "iavf",
    "ice",
    "bnx2",
    "bnx2x",
    "bnxt_en",
    "mlx4_en",
    "mlx5_core",
    "atlantic",
    "qede",
    "cxgb4",
    "enic",
    "be2net",
    "sfc",
    "nfp",
    "ena",
    "igbvf",
    "cdc_ether",
    "cdc_ncm",
    "rndis_host",
    "bonding",
    "8021q",
    // The machine itself.
    "ipmi_si",
    "ipmi_devintf",
    "ipmi_ssif",
    "iTCO_wdt",
    "sp5100_tco",
    "wdat_wdt",
    "i6300esb",
    "softdog",
    "tpm_tis",
    "tpm_crb",
];

/// Modules that the agent loads at the start: no device asks for them by an alias.
/// Without `modprobe` the kernel cannot load the driver of a file system when it is mounted.
pub(crate) const START: &[&str] = &[
    "sr_mod",
    "sd_mod",
    "isofs",
    "vfat",
    "nls_cp437",
    "nls_iso8859_1",
    "nls_ascii",
    "nls_utf8",
    "loop",
    "efivarfs",
    "ext4",
    "xfs",
    "btrfs",
];

/// Drivers that another one asks `modprobe` for by name, which a medium does not have: the devices of the second need the first too.
/// Linux 6.1 loads the Ethernet part of ConnectX-3 so; later kernels give it an alias of its own.
pub(crate) const FOLLOWS: &[(&str, &str)] = &[("mlx4_en", "mlx4_core")];

/// A driver's firmware that is taken when a package has it.
pub(crate) struct Firmware {
    pub(crate) module: &'static str,
    /// The loss of the card without the firmware, in words.
    pub(crate) without: &'static str,
}

/// The drivers whose firmware files are taken. Others work without, or their files are too large: those of one network card
/// alone have 147 MB.
pub(crate) const FIRMWARE: &[Firmware] = &[
    Firmware { module: "bnx2", without: "the card does not work" },
    Firmware { module: "bnx2x", without: "the card does not work" },
    Firmware { module: "qed", without: "the card (qede) does not work" },
    Firmware { module: "qla2xxx", without: "some cards find no disk" },
    Firmware { module: "ice", without: "the card works in its slow safe mode" },
    Firmware { module: "tg3", without: "some cards have no TCP offload" },
    Firmware { module: "r8169", without: "some cards have an unstable link" },
];

/// A program of the image.
pub(crate) struct Program {
    /// The path of the program.
    pub(crate) path: &'static str,
    /// The package that has the program, for messages.
    pub(crate) package: &'static str,
    /// Whether the build ends without the program.
    pub(crate) required: bool,
    /// Whether the small profile has the program.
    pub(crate) small: bool,
}

const fn program(path: &'static str, package: &'static str, required: bool, small: bool) -> Program {
    Program { path, package, required, small }
}

/// The programs and data files of an image.
const PROGRAMS: &[Program] = &[
    program("usr/sbin/mke2fs", "e2fsprogs", true, true),
    program("usr/sbin/mkfs.ext4", "e2fsprogs", true, true),
    program("usr/sbin/e2fsck", "e2fsprogs", true, false),
    program("usr/sbin/resize2fs", "e2fsprogs", true, false),
    program("etc/mke2fs.conf", "e2fsprogs", true, true),
    program("usr/sbin/mkfs.fat", "dosfstools", true, true),
    program("usr/sbin/mkfs.vfat", "dosfstools", true, true),
    program("usr/sbin/mkfs.xfs", "xfsprogs", true, false),
    program("usr/sbin/xfs_growfs", "xfsprogs", true, false),
    program("usr/share/xfsprogs/mkfs/lts_5.10.conf", "xfsprogs", false, false),
    program("usr/sbin/mkfs.btrfs", "btrfs-progs", true, false),
    program("usr/bin/btrfs", "btrfs-progs", true, false),
    program("usr/sbin/mdadm", "mdadm", true, false),
    program("usr/sbin/lvm", "lvm2", true, false),
    program("etc/lvm/lvm.conf", "lvm2", false, false),
    program("usr/sbin/mkntfs", "ntfs-3g", false, false),
    program("usr/sbin/mkfs.ntfs", "ntfs-3g", false, false),
    program("usr/sbin/ntfsresize", "ntfs-3g", false, false),
    program("usr/bin/ntfs-3g", "ntfs-3g", false, false),
    program("usr/sbin/blkid", "util-linux", true, false),
    program("usr/bin/busybox", "busybox-static", true, false),
    // The SSH server of `rescue.target`.
    program("usr/sbin/dropbear", "dropbear-bin", false, false),
    program("usr/bin/dropbearkey", "dropbear-bin", false, false),
];

/// The drivers of a profile; with each, whether the build ends without it.
pub(crate) fn drivers(profile: ImageProfile) -> impl Iterator<Item = (&'static str, bool)> {
    let more = if profile == ImageProfile::Full { ALL } else { &[] };
    let optional = COMMON.iter().chain(more).map(|name| (*name, false));
    REQUIRED.iter().map(|name| (*name, true)).chain(optional)
}

/// The programs and data files of a profile.
pub(crate) fn programs(profile: ImageProfile) -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(move |program| profile == ImageProfile::Full || program.small)
}
