//! An independent strict reader, written from the standard without code of the crate. It finds faults that a round trip
//! through the crate's own reader hides, such as directories out of order, path tables that disagree, or unused bytes
//! that are not zero.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "each test binary uses some of it")]

use std::cmp::Ordering;
use std::collections::BTreeSet;

const SECTOR: usize = 2048;

/// A directory according to the path table.
struct Directory {
    identifier: Vec<u8>,
    extent: usize,
    parent: usize,
    length: usize,
}

/// The ranges of bytes in use.
type Claims = Vec<(usize, usize)>;

/// Checks everything that ECMA-119 requires of a written image.
pub(crate) fn check(image: &[u8]) -> Result<(), String> {
    let mut claims: Claims = vec![];
    let mut files: Vec<BTreeSet<(usize, usize)>> = Vec::new();
    let mut at = 16 * SECTOR;
    loop {
        let descriptor = image.get(at..at + SECTOR).ok_or("no terminator")?;
        let version = if enhanced(descriptor) { 2 } else { 1 };
        ensure(&descriptor[1..6] == b"CD001" && descriptor[6] == version, "descriptor identifier", at)?;
        claims.push((at, at + SECTOR));
        match descriptor[0] {
            0 => {
                let catalog = le(descriptor, 71) * SECTOR;
                claims.push((catalog, catalog + SECTOR));
            }
            1 | 2 => files.push(hierarchy(image, descriptor, at, &mut claims)?),
            255 => {
                ensure(descriptor[7..].iter().all(|byte| *byte == 0), "terminator is empty", at)?;
                break;
            }
            _ => return Err(format!("descriptor of type {}", descriptor[0])),
        }
        at += SECTOR;
    }
    ensure(files.windows(2).all(|pair| pair[0] == pair[1]), "all hierarchies have the same files", 0)?;
    partition_tables(image, &mut claims)?;
    claims.extend(files[0].iter().map(|(start, length)| (*start, start + length)));
    claims.retain(|(start, end)| start < end);
    claims.sort_unstable();
    // Continuation areas are claimed once per record, all other ranges once.
    for pair in claims.windows(2) {
        ensure(pair[0].1 <= pair[1].0, "nothing overlaps", pair[1].0)?;
    }
    let mut free = 0;
    for (start, end) in claims.into_iter().chain([(image.len(), image.len())]) {
        ensure(end <= image.len(), "everything lies inside the image", start)?;
        let stray = image[free..start].iter().position(|byte| *byte != 0);
        ensure(stray.is_none(), "unclaimed bytes are zero", free + stray.unwrap_or(0))?;
        free = end;
    }
    Ok(())
}

/// Returns whether a supplementary descriptor is that of ISO 9660:1999, which has no escape sequence.
fn enhanced(descriptor: &[u8]) -> bool {
    descriptor[0] == 2 && descriptor[88..120].iter().all(|byte| *byte == 0)
}

/// Claims the tables of a hybrid image. Separate tests check the checksums of a GPT.
fn partition_tables(image: &[u8], claims: &mut Claims) -> Result<(), String> {
    if image[510..512] != [0x55, 0xAA] {
        return Ok(());
    }
    claims.push((0, 512));
    ensure(image.len().is_multiple_of(1 << 20), "a hybrid image has whole cylinders", 0)?;
    let mut at = 512;
    for _ in 0..2 {
        if !image[at..].starts_with(b"EFI PART") {
            break;
        }
        let entries = le(image, at + 72) * 512;
        claims.extend([(at, at + 512), (entries, entries + 128 * le(image, at + 80))]);
        at = le(image, at + 32) * 512;
    }
    Ok(())
}

/// Checks one hierarchy. Returns the extents of its files.
fn hierarchy(
    image: &[u8],
    descriptor: &[u8],
    offset: usize,
    claims: &mut Claims,
) -> Result<BTreeSet<(usize, usize)>, String> {
    let joliet = descriptor[0] == 2;
    ensure(both(descriptor, 80)? * SECTOR == image.len(), "volume space size", offset + 80)?;
    ensure(descriptor[128..132] == [0, 8, 8, 0], "logical block size", offset + 128)?;
    for zeros in [
        7..8,
        72..80,
        if joliet && !enhanced(descriptor) { 91..120 } else { 88..120 },
        144..148,
        152..156,
        882..2048,
    ] {
        ensure(
            descriptor[zeros.clone()].iter().all(|byte| *byte == 0),
            "unused fields",
            offset + zeros.start,
        )?;
    }
    let size = both(descriptor, 132)?;
    let little = le(descriptor, 140) * SECTOR;
    let big = u32::from_be_bytes(descriptor[148..152].try_into().unwrap()) as usize * SECTOR;
    claims.extend([(little, little + size), (big, big + size)]);
    let mut directories = path_tables(&image[little..little + size], &image[big..big + size])?;
    let root = &descriptor[156..190];
    ensure(both(root, 2)? * SECTOR == directories[0].extent, "the root's extent", offset + 156)?;
    directories[0].length = both(root, 10)?;
    let mut files = BTreeSet::new();
    let mut next = 1;
    for index in 0..directories.len() {
        let (extent, length) = (directories[index].extent, directories[index].length);
        ensure(length > 0 && length.is_multiple_of(SECTOR), "directories are whole sectors", extent)?;
        claims.push((extent, extent + length));
        let bytes = image.get(extent..extent + length).ok_or("a directory outside")?;
        let mut previous: Option<&[u8]> = None;
        for (number, record) in records(bytes, extent)?.into_iter().enumerate() {
            let (start, length) = (both(record, 2)? * SECTOR, both(record, 10)?);
            let identifier = &record[33..33 + usize::from(record[32])];
            ensure(record[28..32] == [1, 0, 0, 1], "volume sequence number", extent)?;
            if !joliet {
                continuation(image, record, (33 + usize::from(record[32])).next_multiple_of(2), claims)?;
            }
            if number < 2 {
                let target = if number == 0 { index } else { directories[index].parent };
                ensure(identifier == [number as u8], "the first two records", extent)?;
                ensure(start == directories[target].extent, "self and parent", extent)?;
                ensure(
                    number == 1 && target >= index || length == directories[target].length,
                    "their lengths",
                    extent,
                )?;
                continue;
            }
            if let Some(previous) = previous {
                let order = order(previous, identifier, joliet);
                let section = previous == identifier && record[25] & 2 == 0;
                ensure(order == Ordering::Less || section, "records are in order", extent)?;
            }
            previous = Some(identifier);
            if record[25] & 2 != 0 {
                let entry = directories.get_mut(next).ok_or("a directory missing in the path table")?;
                let same = entry.identifier == identifier && entry.extent == start && entry.parent == index;
                ensure(same, "the path table lists directories in order", start)?;
                entry.length = length;
                next += 1;
            } else if length > 0 {
                files.insert((start, length));
            } else {
                ensure(start < image.len(), "an empty file has an address inside", extent)?;
            }
        }
    }
    ensure(next == directories.len(), "the path table has nothing else", little)?;
    Ok(files)
}

fn path_tables(little: &[u8], big: &[u8]) -> Result<Vec<Directory>, String> {
    let (mut directories, mut at) = (Vec::<Directory>::new(), 0);
    while at < little.len() {
        let length = usize::from(little[at]);
        let end = at + 8 + length;
        let extent = le(little, at + 2);
        let parent = usize::from(u16::from_le_bytes([little[at + 6], little[at + 7]]));
        let other = (
            u32::from_be_bytes(big[at + 2..at + 6].try_into().unwrap()) as usize,
            usize::from(u16::from_be_bytes([big[at + 6], big[at + 7]])),
        );
        ensure(other == (extent, parent), "both path tables agree", at)?;
        ensure(
            little[at..at + 2] == big[at..at + 2] && little[at + 8..end] == big[at + 8..end],
            "and their names",
            at,
        )?;
        ensure(parent >= 1 && parent <= directories.len().max(1), "a parent comes before its children", at)?;
        let identifier = little[at + 8..end].to_vec();
        directories.push(Directory { identifier, extent: extent * SECTOR, parent: parent - 1, length: 0 });
        at = end + length % 2;
    }
    ensure(directories.windows(2).all(|pair| pair[0].parent <= pair[1].parent), "parents ascend", 0)?;
    ensure(!directories.is_empty() && directories[0].identifier == [0], "the root comes first", 0)?;
    Ok(directories)
}

/// Returns the records of a directory. No record crosses a sector, and the rest of each sector is zero.
fn records(bytes: &[u8], extent: usize) -> Result<Vec<&[u8]>, String> {
    let mut records = Vec::new();
    for sector in bytes.chunks(SECTOR) {
        let mut at = 0;
        while at < SECTOR && sector[at] != 0 {
            let length = usize::from(sector[at]);
            ensure(length >= 34 && length % 2 == 0 && at + length <= SECTOR, "record length", extent + at)?;
            records.push(&sector[at..at + length]);
            at += length;
        }
        ensure(sector[at..].iter().all(|byte| *byte == 0), "the rest of a sector is zero", extent + at)?;
    }
    Ok(records)
}

/// Walks the system use entries of a record and claims its continuation area.
fn continuation(image: &[u8], record: &[u8], mut at: usize, claims: &mut Claims) -> Result<(), String> {
    while at + 4 <= record.len() {
        let length = usize::from(record[at + 2]);
        ensure(length >= 4 && at + length <= record.len() && record[at + 3] == 1, "system use entry", at)?;
        if &record[at..at + 2] == b"CE" {
            let entry = &record[at + 4..];
            let (block, offset, length) = (both(entry, 0)?, both(entry, 8)?, both(entry, 16)?);
            ensure(offset + length <= SECTOR && length > 0, "a continuation is inside one block", at)?;
            let start = block * SECTOR + offset;
            ensure(image[start..start + length].first() != Some(&0), "a continuation is not empty", start)?;
            claims.push((start, start + length));
        }
        at += length;
    }
    Ok(())
}

/// Compares in the order of 9.3, or in the Joliet order.
fn order(left: &[u8], right: &[u8], joliet: bool) -> Ordering {
    if joliet {
        return left.cmp(right);
    }
    let parts = |identifier: &[u8]| {
        let text = String::from_utf8(identifier.to_vec()).unwrap();
        let name = text.split(';').next().unwrap().to_owned();
        let (stem, extension) = name.split_once('.').unwrap_or((&name, ""));
        (format!("{stem:<40}"), format!("{extension:<40}"))
    };
    parts(left).cmp(&parts(right))
}

fn le(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn both(bytes: &[u8], at: usize) -> Result<usize, String> {
    let big = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
    ensure(le(bytes, at) == big, "both byte orders agree", at)?;
    Ok(big)
}

fn ensure(holds: bool, rule: &str, at: usize) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{rule}: at {at}")) }
}
