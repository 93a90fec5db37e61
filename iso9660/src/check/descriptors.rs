//! The Volume Descriptor Set (6.7.1, 8) and the hierarchies of its descriptors.
//!
//! ```text
//! 16 primary | [17 boot record of El Torito] [supplementary: Joliet] [enhanced, version 2] ... | 255 terminator
//! after it, in a UDF bridge:  BEA01 | NSR02 or NSR03 | TEA01
//! ```
//!
//! Invariant: at most [`MAX_DESCRIPTORS`] sectors are read. A descriptor whose root is unusable is reported and adds no
//! hierarchy.

use super::extents::ExtentUse;
use super::record::{self, Parsed};
use super::report::shown;
use super::{Checker, Rule, text};
use crate::SECTOR_SIZE;
use crate::ecma119::date::{Date, UNSPECIFIED, parse_descriptor};
use crate::ecma119::field::{array, read_both_u16, read_both_u32};
use crate::ecma119::{FIRST_DESCRIPTOR, SECTOR, descriptor};
use crate::eltorito;
use crate::error::ReadError;
use crate::joliet;

/// The number of descriptors that are checked. Linux reads sectors 16 to 99.
const MAX_DESCRIPTORS: u64 = 84;
/// 8.6: the type of a Volume Partition Descriptor.
const PARTITION: u8 = 3;
/// 8.4.31: the application use field.
const APPLICATION_USE: std::ops::Range<usize> = 883..1395;
/// The text that implantisomd5 writes there.
const IMPLANTED: &[u8] = b"ISO MD5SUM";

/// The rules that apply to a hierarchy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HierarchyRules {
    Primary,
    /// The rules of an Enhanced Volume Descriptor: names of any length and character.
    Enhanced,
    Joliet,
}

/// The location of a path table according to a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathTableLocation {
    /// The offset of the address in the descriptor.
    pub(super) field: u64,
    pub(super) sector: u32,
    pub(super) big: bool,
    pub(super) name: &'static str,
}

/// A descriptor of a hierarchy.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) kind: HierarchyRules,
    pub(super) offset: u64,
    pub(super) root: Parsed,
    /// The size of the volume in bytes.
    pub(super) space: u64,
    pub(super) path_table_size: u32,
    pub(super) tables: Vec<PathTableLocation>,
    /// Whether an Enhanced Volume Descriptor points to this hierarchy too, so that its rules for identifiers apply.
    pub(super) relaxed: bool,
}

/// The combined contents of all descriptors.
#[derive(Debug, Default)]
pub(super) struct Volume {
    /// The offset of the volume space size, and its value in bytes.
    pub(super) space: Option<(u64, u64)>,
    pub(super) hierarchies: Vec<Descriptor>,
    /// The offset of the boot record, and the sector of the catalog.
    pub(super) catalog: Option<(u64, u32)>,
    pub(super) udf: bool,
}

/// Checks the Volume Descriptor Set.
pub(super) fn check(checker: &mut Checker<'_>) -> Result<Volume, ReadError> {
    let mut volume = Volume::default();
    let first = u64::from(FIRST_DESCRIPTOR);
    checker.claims.claim(0, first * SECTOR_SIZE, ExtentUse::Structure("the system area"));
    let mut number = first;
    let mut terminated = false;
    while number < first + MAX_DESCRIPTORS {
        let offset = number * SECTOR_SIZE;
        let Some(sector) = checker.sector(number)? else { break };
        let Some(kind) = descriptor::kind(&sector) else {
            if udf(checker, &mut volume, offset, &sector) {
                number += 1;
                continue;
            }
            break;
        };
        if terminated && kind != descriptor::TERMINATOR {
            // In images with sessions a second set may follow; readers do not use it.
            break;
        }
        if number == first && kind != descriptor::PRIMARY {
            checker.find(Rule::PrimaryMissing, offset, format_args!("sector 16 has type {kind}"));
        }
        checker.counts.descriptors += 1;
        checker.claims.claim(offset, SECTOR_SIZE, ExtentUse::Structure("a descriptor"));
        one(checker, &mut volume, &sector, offset);
        terminated |= kind == descriptor::TERMINATOR;
        number += 1;
    }
    if !volume.hierarchies.iter().any(|descriptor| descriptor.kind == HierarchyRules::Primary)
        && checker.counts.descriptors == 0
    {
        let offset = first * SECTOR_SIZE;
        checker.find(Rule::PrimaryMissing, offset, format_args!("this is not an ISO 9660 image"));
    } else if !terminated {
        let offset = number * SECTOR_SIZE;
        checker.find(Rule::TerminatorMissing, offset, format_args!("the descriptors end without one"));
    }
    enhance(&mut volume);
    Ok(volume)
}

/// Returns whether a sector that is not an ISO 9660 descriptor belongs to the extended area of ECMA-167.
fn udf(checker: &mut Checker<'_>, volume: &mut Volume, offset: u64, sector: &[u8; SECTOR]) -> bool {
    let known: [&[u8]; 5] = [b"BEA01", b"NSR02", b"NSR03", b"TEA01", b"BOOT2"];
    if !known.contains(&&sector[1..6]) {
        return false;
    }
    if sector[1..4] == *b"NSR" {
        checker.find(Rule::UdfNotChecked, offset, format_args!("the image has a UDF file system too"));
    }
    volume.udf = true;
    true
}

/// Checks one descriptor.
fn one(checker: &mut Checker<'_>, volume: &mut Volume, sector: &[u8; SECTOR], offset: u64) {
    let kind = sector[0];
    let enhanced = kind == descriptor::SUPPLEMENTARY && sector[6] == 2;
    if sector[6] != 1 && !enhanced {
        checker.find(
            Rule::DescriptorVersion,
            offset + 6,
            format_args!("version {} of type {kind}", sector[6]),
        );
    }
    match kind {
        descriptor::BOOT => boot_record(checker, volume, sector, offset),
        descriptor::PRIMARY => hierarchy(checker, volume, sector, offset, HierarchyRules::Primary),
        descriptor::SUPPLEMENTARY if enhanced => {
            hierarchy(checker, volume, sector, offset, HierarchyRules::Enhanced);
        }
        descriptor::SUPPLEMENTARY => supplementary(checker, volume, sector, offset),
        descriptor::TERMINATOR => {
            checker.zeros(Rule::DescriptorReserved, offset + 7, &sector[7..], "a byte of the terminator");
        }
        PARTITION => {
            let rule = Rule::DescriptorUnknown;
            checker.find(rule, offset, format_args!("a volume partition descriptor, not checked"));
        }
        _ => checker.find(Rule::DescriptorType, offset, format_args!("type {kind}")),
    }
}

fn supplementary(checker: &mut Checker<'_>, volume: &mut Volume, sector: &[u8; SECTOR], offset: u64) {
    let escape = &sector[88..120];
    let known = |length: usize| joliet::ESCAPE_SEQUENCES.contains(&&escape[..length]);
    if known(3) {
        if escape[3..].iter().any(|byte| *byte != 0) {
            let message = format_args!("more than one sequence: {}", shown(escape.trim_ascii_end()));
            checker.find(Rule::EscapeSequences, offset + 88, message);
        }
        hierarchy(checker, volume, sector, offset, HierarchyRules::Joliet);
    } else if escape.starts_with(b"%/") || escape.iter().all(|byte| *byte == 0) {
        checker.find(Rule::EscapeSequences, offset + 88, format_args!("{}", shown(&escape[..3])));
    } else {
        let message = format_args!("a supplementary descriptor for {}, not checked", shown(&escape[..3]));
        checker.find(Rule::DescriptorUnknown, offset + 88, message);
    }
}

fn boot_record(checker: &mut Checker<'_>, volume: &mut Volume, sector: &[u8; SECTOR], offset: u64) {
    let Some(catalog) = eltorito::parse_boot_record(sector) else {
        let message =
            format_args!("a boot record for {}, not checked", shown(sector[7..39].trim_ascii_end()));
        return checker.find(Rule::DescriptorUnknown, offset + 7, message);
    };
    // The identifier has 23 characters, followed by zeros, except the address of the catalog.
    checker.zeros(Rule::DescriptorReserved, offset + 30, &sector[30..71], "a byte of the boot record");
    checker.zeros(Rule::DescriptorReserved, offset + 75, &sector[75..], "a byte of the boot record");
    if offset != u64::from(FIRST_DESCRIPTOR + 1) * SECTOR_SIZE {
        let number = offset / SECTOR_SIZE;
        checker.find(Rule::BootRecordPlace, offset, format_args!("it is in sector {number}"));
    }
    volume.catalog.get_or_insert((offset, catalog));
}

/// Checks a descriptor of a hierarchy.
fn hierarchy(
    checker: &mut Checker<'_>,
    volume: &mut Volume,
    sector: &[u8; SECTOR],
    offset: u64,
    kind: HierarchyRules,
) {
    let second = kind == HierarchyRules::Primary
        && volume.hierarchies.iter().any(|other| other.kind == HierarchyRules::Primary);
    if second {
        // A copy (6.7.1.1), which readers ignore.
        return checker.find(
            Rule::DescriptorUnknown,
            offset,
            format_args!("a second primary descriptor, not checked"),
        );
    }
    reserved(checker, sector, offset, kind);
    text::check(checker, sector, offset, kind == HierarchyRules::Joliet);
    dates(checker, sector, offset);
    application_use(checker, sector, offset);
    let structure = if kind == HierarchyRules::Enhanced { 2 } else { 1 };
    checker.counts.level = checker.counts.level.max(if kind == HierarchyRules::Enhanced { 4 } else { 1 });
    if sector[881] != structure {
        checker.find(Rule::FileStructureVersion, offset + 881, format_args!("version {}", sector[881]));
    }
    for (at, rule, wanted) in
        [(120, Rule::VolumeSet, 1), (124, Rule::VolumeSet, 1), (128, Rule::BlockSize, SECTOR as u16)]
    {
        match read_both_u16(sector, at) {
            None => byte_orders(checker, offset + at as u64, &sector[at..at + 4]),
            Some(found) if found != wanted => {
                checker.find(rule, offset + at as u64, format_args!("{found} instead of {wanted}"));
            }
            Some(_) => {}
        }
    }
    let number = |checker: &mut Checker<'_>, at: usize| {
        let number = read_both_u32(sector, at);
        if number.is_none() {
            byte_orders(checker, offset + at as u64, &sector[at..at + 8]);
        }
        number.or_else(|| array(sector, at).map(u32::from_le_bytes)).unwrap_or_default()
    };
    let space = u64::from(number(checker, 80)) * SECTOR_SIZE;
    match volume.space {
        None => volume.space = Some((offset + 80, space)),
        Some((_, first)) if first != space => checker.find(
            // The files of a smaller volume are compared with its own size, so they are known to be inside both.
            if space > first { Rule::DescriptorsDiffer } else { Rule::DescriptorsShorter },
            offset + 80,
            format_args!("{} sectors, {} in the first descriptor", space / SECTOR_SIZE, first / SECTOR_SIZE),
        ),
        Some(_) => {}
    }
    let path_table_size = number(checker, 132);
    let tables = tables(sector, offset);
    if let Some(root) = root(checker, sector, offset) {
        let relaxed = kind == HierarchyRules::Enhanced;
        volume.hierarchies.push(Descriptor { kind, offset, root, space, path_table_size, tables, relaxed });
    }
}

fn byte_orders(checker: &mut Checker<'_>, offset: u64, bytes: &[u8]) {
    checker.find(Rule::DescriptorByteOrders, offset, format_args!("{bytes:02x?}"));
}

fn reserved(checker: &mut Checker<'_>, sector: &[u8; SECTOR], offset: u64, kind: HierarchyRules) {
    let mut zeros = vec![72..80, 882..883, 1395..2048];
    match kind {
        HierarchyRules::Primary => zeros.extend([7..8, 88..120]),
        HierarchyRules::Enhanced => zeros.push(88..120),
        HierarchyRules::Joliet => {}
    }
    for range in zeros {
        let at = offset + range.start as u64;
        checker.zeros(Rule::DescriptorReserved, at, &sector[range], "a reserved byte");
    }
    if kind != HierarchyRules::Primary && sector[7] != 0 {
        checker.find(Rule::VolumeFlags, offset + 7, format_args!("{:#04x}", sector[7]));
    }
}

fn dates(checker: &mut Checker<'_>, sector: &[u8; SECTOR], offset: u64) {
    for at in [813, 830, 847, 864] {
        if !array(sector, at).is_some_and(long_date) {
            let message = format_args!("{}", shown(&sector[at..at + 17]));
            checker.find(Rule::DescriptorDate, offset + at as u64, message);
        }
    }
}

/// Returns whether 17 bytes are a valid date or unspecified.
pub(super) fn long_date(bytes: [u8; 17]) -> bool {
    bytes == UNSPECIFIED
        || bytes[14..16].iter().all(u8::is_ascii_digit)
            && parse_descriptor(bytes)
                .and_then(|epoch| Date::from_epoch(epoch + 900 * i64::from(bytes[16].cast_signed())))
                .is_some_and(|date| date.descriptor()[..14] == bytes[..14])
}

fn application_use(checker: &mut Checker<'_>, sector: &[u8; SECTOR], offset: u64) {
    let field = &sector[APPLICATION_USE];
    let offset = offset + APPLICATION_USE.start as u64;
    // Some writers fill the field with spaces.
    let blank = if field.starts_with(b" ") { b' ' } else { 0 };
    if let Some(at) = field.windows(IMPLANTED.len()).position(|window| window == IMPLANTED) {
        let message = format_args!("a digest of the image: checkisomd5 would verify it");
        checker.find(Rule::ImplantedDigest, offset + at as u64, message);
    } else if let Some(at) = field.iter().position(|byte| *byte != blank) {
        checker.find(Rule::ApplicationUse, offset + at as u64, format_args!("{}", shown(&field[at..])));
    }
}

/// Returns the path tables. An optional copy exists unless its address is 0.
fn tables(sector: &[u8; SECTOR], offset: u64) -> Vec<PathTableLocation> {
    let all = [
        (140, false, "the L table"),
        (144, false, "the optional L table"),
        (148, true, "the M table"),
        (152, true, "the optional M table"),
    ];
    let table = |(at, big, name): (usize, bool, &'static str)| {
        let bytes = array(sector, at)?;
        let sector = if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        let optional = matches!(at, 144 | 152);
        (sector != 0 || !optional).then_some(PathTableLocation {
            field: offset + at as u64,
            sector,
            big,
            name,
        })
    };
    all.into_iter().filter_map(table).collect()
}

/// Returns the record of the root, if it is usable.
fn root(checker: &mut Checker<'_>, sector: &[u8; SECTOR], offset: u64) -> Option<Parsed> {
    let (bytes, at) = (&sector[156..190], offset + 156);
    let parsed = record::parse(checker, bytes, at)?;
    record::check(checker, &parsed, bytes);
    if bytes[0] != 34 || bytes[32..34] != [1, 0] || !parsed.directory() {
        checker.find(
            Rule::RootRecord,
            at,
            format_args!("{:02x?}", [bytes[0], bytes[25], bytes[32], bytes[33]]),
        );
    }
    Some(parsed)
}

/// Disables the rules for identifiers of the primary hierarchy if an enhanced descriptor points to it.
fn enhance(volume: &mut Volume) {
    let roots: Vec<u32> = (volume.hierarchies.iter())
        .filter(|descriptor| descriptor.kind == HierarchyRules::Enhanced)
        .map(|descriptor| descriptor.root.extent)
        .collect();
    for descriptor in &mut volume.hierarchies {
        descriptor.relaxed |=
            descriptor.kind == HierarchyRules::Primary && roots.contains(&descriptor.root.extent);
    }
    let primary = (volume.hierarchies.iter())
        .find(|descriptor| descriptor.kind == HierarchyRules::Primary)
        .map(|descriptor| descriptor.root.extent);
    // This hierarchy is the primary one, so it is walked only once.
    volume.hierarchies.retain(|descriptor| {
        descriptor.kind != HierarchyRules::Enhanced || Some(descriptor.root.extent) != primary
    });
}
