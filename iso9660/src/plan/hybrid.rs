//! The partition tables of a hybrid image.
//!
//! ```text
//! sector of 512 bytes     with a UEFI image                             without
//!   0    MBR              code, address of the boot file, identifier    code, address, identifier
//!                         1: EE, all sectors but the first              1: 17 active, all sectors
//!                         2: 00 active, one sector, if there is code
//!   1    GPT header       one EFI system partition: the UEFI image      -
//!   2-33 GPT entries                                                    -
//!  64-   the volume
//!  -33   GPT entries, then the header again in the very last sector     -
//! ```
//!
//! The second partition of the protective MBR describes no data: some firmware boots only from a disk with an active
//! partition, and the protective partition must not be active. The GPT has no partition for the volume, because it
//! would overlap the EFI system partition, which disk tools refuse. Systems find the volume on the whole disk.
//!
//! Invariant: identifiers are derived from the metadata of the image only (see [`Hybrid`]).

use sha2::{Digest, Sha256};

use crate::SECTOR_SIZE;
use crate::eltorito::{Platform, UNIT};
use crate::error::PlanError;
use crate::options::{Hybrid, ImageOptions};
use crate::partition::{self, Gpt, GptPartition, Guid, Mbr, MbrPartition};

use super::boot::{BootFile, units_before};
use super::layout::Layout;
use super::order::Nodes;

/// The space for boot code before the address of the boot file, in bytes.
const CODE: usize = 432;
/// A whole number of cylinders in the geometry that firmware assumes, in sectors of the image.
const CYLINDER: u32 = (1 << 20) / SECTOR_SIZE as u32;
/// The system area in sectors of a disk. No partition overlaps it.
const SYSTEM_AREA: u64 = 64;
/// The entries and the header of the backup, in sectors of the image, rounded up.
const BACKUP: u32 = 9;
/// The type of a partition that systems do not mount: "hidden NTFS".
const HIDDEN: u8 = 0x17;

/// Checks that the options are consistent.
pub(crate) fn check(options: &ImageOptions, boot: &[BootFile]) -> Result<(), PlanError> {
    let Some(Hybrid { code }) = &options.hybrid else { return Ok(()) };
    let has = |platform| boot.iter().any(|boot| boot.platform == platform);
    let rule = if code.len() > CODE {
        "the boot code has more than the 432 bytes that fit before the address of the boot file; use isohdpfx.bin"
    } else if !code.is_empty() && !has(Platform::X86) {
        "boot code starts a BIOS boot file; name one in the boot options"
    } else if code.is_empty() && !has(Platform::Efi) {
        "without boot code only UEFI firmware boots from a disk; add boot code or a UEFI image"
    } else {
        return Ok(());
    };
    Err(PlanError::Hybrid { rule })
}

/// Returns the number of sectors of an image whose contents end at sector `used`, if it fits 32 bits.
pub(crate) fn sectors(used: u32, floor: u32) -> Option<u32> {
    used.checked_add(BACKUP)?.max(floor).checked_next_multiple_of(CYLINDER)
}

/// Returns the bytes at the start of the image and the bytes at its end.
pub(crate) fn tables(
    hybrid: &Hybrid,
    nodes: &Nodes,
    layout: &Layout,
    boot: &[BootFile],
    metadata: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    let derive = |purpose: &str| {
        let digest = Sha256::new().chain_update(purpose).chain_update(metadata).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes
    };
    let disk = derive("disk");
    let sectors = units_before(layout.sectors);
    let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);

    let mut code = [0; 440];
    code[..hybrid.code.len()].copy_from_slice(&hybrid.code);
    let disk_id = u32::from_le_bytes([disk[0], disk[1], disk[2], disk[3]]);
    let mut mbr = Mbr { code, disk_id, reserved: [0; 2], partitions: Default::default() };
    let sector_of = |boot: &BootFile| layout.files[boot.file as usize];
    let bios = boot.iter().find(|boot| boot.platform == Platform::X86);
    if let (Some(bios), false) = (bios, hybrid.code.is_empty()) {
        mbr.set_boot_file(units_before(sector_of(bios)));
    }

    let Some(uefi) = boot.iter().find(|boot| boot.platform == Platform::Efi) else {
        let whole = MbrPartition::new(HIDDEN, 0, short(sectors));
        mbr.partitions[0] = MbrPartition { status: MbrPartition::ACTIVE, ..whole };
        return (mbr.to_bytes().to_vec(), Vec::new());
    };
    mbr.partitions[0] = MbrPartition::new(MbrPartition::PROTECTIVE, 1, short(sectors - 1));
    if !hybrid.code.is_empty() {
        let nothing = MbrPartition::new(0, 0, 1);
        mbr.partitions[1] = MbrPartition { status: MbrPartition::ACTIVE, ..nothing };
    }
    let first = units_before(sector_of(uefi));
    let last = first + nodes.files[uefi.file as usize].len.div_ceil(UNIT) - 1;
    let id = Guid::custom(derive("EFI system partition"));
    let system = GptPartition::new(Guid::EFI_SYSTEM, id, first, last, "EFI system partition");
    let gpt = Gpt::new(Guid::custom(disk), sectors, SYSTEM_AREA, vec![system]);
    let backup = gpt.backup();
    debug_assert_eq!(partition::SECTOR_SIZE, UNIT);
    let start = [&mbr.to_bytes(), gpt.header().as_slice(), &gpt.table()].concat();
    (start, [backup.table().as_slice(), &backup.header()].concat())
}
