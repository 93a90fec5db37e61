//! The boot files of an image: catalog entries and the boot info table.
//!
//! ```text
//! boot file as given:  0..8 code | 8..64 room for the table            | 64.. code
//! in the image:                  |  8 sector of the primary descriptor (16)
//!                                | 12 sector of the file
//!                                | 16 its length
//!                                | 20 sum of its 32-bit words from byte 64
//!                                | 24..64 zeros                           all little-endian
//! ```
//!
//! The table is the only reason for which planning reads a file: the boot file is read completely, its copy is patched,
//! and the image contains the copy. Checksum and bytes therefore agree even if the source changes later.

use crate::SECTOR_SIZE;
use crate::ecma119::FIRST_DESCRIPTOR;
use crate::ecma119::field::put;
use crate::eltorito::{NewEntry, Platform, UNIT};
use crate::error::PlanError;
use crate::options::{Boot, ImageOptions, Profile};
use crate::source::ReadAt;
use crate::tree::Content;

use super::order::Nodes;

/// The longest boot file with a boot info table. Those of ISOLINUX and GRUB have a few tens of KiB.
const TABLE_FILE_LIMIT: u64 = 1 << 20;
/// The end of the table, where the checksummed range begins.
const TABLE_END: usize = 64;

/// A file that firmware boots.
pub(crate) struct BootFile {
    pub(crate) platform: Platform,
    pub(crate) file: u32,
    load_units: u16,
    info_table: bool,
}

/// Returns the files that the boot options name, BIOS first.
pub(crate) fn boot_files(nodes: &Nodes, options: &ImageOptions) -> Result<Vec<BootFile>, PlanError> {
    let error = |path: &str, rule| PlanError::Boot { path: path.to_owned(), rule };
    let Boot { bios, uefi } = match (&options.profile, &options.boot) {
        (Profile::Task | Profile::Tree, None) => Boot::default(),
        (Profile::Task, Some(_)) => {
            return Err(error("", "a task image is never bootable; use the boot profile"));
        }
        (Profile::Boot | Profile::Tree, boot) => boot.clone().unwrap_or_default(),
    };
    let wanted = [
        bios.map(|bios| (Platform::X86, bios.path, bios.load_units, bios.boot_info_table)),
        uefi.map(|uefi| (Platform::Efi, uefi.path, 0, false)),
    ];
    let mut files = Vec::with_capacity(wanted.len());
    for (platform, path, load_units, info_table) in wanted.into_iter().flatten() {
        let Some(file) = nodes.find_file(&path) else {
            return Err(error(&path, "there is no such file in the tree; add it first"));
        };
        let len = nodes.files[file as usize].len;
        if len == 0 {
            return Err(error(&path, "an empty file cannot be booted"));
        }
        if platform == Platform::X86 && load_units == 0 {
            return Err(error(&path, "firmware must load at least one unit; boot loaders expect 4"));
        }
        if info_table && !(TABLE_END as u64..=TABLE_FILE_LIMIT).contains(&len) {
            return Err(error(&path, "a file with a boot info table must have 64 bytes to 1 MiB"));
        }
        files.push(BootFile { platform, file, load_units, info_table });
    }
    if files.is_empty() && (options.profile == Profile::Boot || options.boot.is_some()) {
        return Err(error(
            "",
            "a bootable image needs a BIOS or a UEFI image; name one or use the task profile",
        ));
    }
    Ok(files)
}

/// Returns the entries of the boot catalog, for files whose first sectors are known.
pub(crate) fn boot_entries(nodes: &Nodes, boot: &[BootFile], sectors: &[u32]) -> Vec<NewEntry> {
    let entry = |boot: &BootFile| {
        let units = match boot.platform {
            // UEFI firmware reads 1 as "everything to the end of the volume", which covers lengths beyond 16 bits.
            Platform::Efi => u16::try_from(nodes.files[boot.file as usize].len.div_ceil(UNIT)).unwrap_or(1),
            _ => boot.load_units,
        };
        NewEntry { platform: boot.platform, units, sector: sectors[boot.file as usize] }
    };
    boot.iter().map(entry).collect()
}

/// Returns the file with a boot info table, if there is one, and its content with the table.
pub(crate) fn with_info_table(
    nodes: &Nodes,
    boot: &[BootFile],
    sectors: &[u32],
) -> Result<Option<(u32, Vec<u8>)>, PlanError> {
    let Some(BootFile { file, .. }) = boot.iter().find(|boot| boot.info_table) else { return Ok(None) };
    let path = || nodes.path(super::order::Child::File(*file));
    let content = nodes.content(*file);
    let mut bytes = vec![0; usize::try_from(nodes.files[*file as usize].len).unwrap_or(0)];
    let read = match content {
        Content::Bytes(content) => content.read_exact_at(0, &mut bytes),
        Content::Source(source) => source.read_exact_at(0, &mut bytes),
        Content::File(source) => source.read_exact_at(0, &mut bytes),
    };
    read.map_err(|error| PlanError::BootFile { path: path(), reason: error.to_string() })?;

    let sum = bytes[TABLE_END..].chunks(4).fold(0_u32, |sum, word| {
        let mut padded = [0; 4];
        put(&mut padded, 0, word);
        sum.wrapping_add(u32::from_le_bytes(padded))
    });
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[8..TABLE_END].fill(0);
    for (at, value) in [(8, FIRST_DESCRIPTOR), (12, sectors[*file as usize]), (16, length), (20, sum)] {
        put(&mut bytes, at, &value.to_le_bytes());
    }
    Ok(Some((*file, bytes)))
}

/// Returns the number of 512-byte units before a sector of the image.
pub(crate) fn units_before(sector: u32) -> u64 {
    u64::from(sector) * (SECTOR_SIZE / UNIT)
}
