//! A strict checker of images: every rule of the formats that does not require reading file contents.
//!
//! ```text
//! descriptors.rs   the Volume Descriptor Set: order, fields, texts (text.rs), dates
//! walk.rs          each hierarchy: directories, their records (record.rs), identifiers (identifier.rs)
//! path_table.rs    L, M and their optional copies against the walk
//! susp.rs          system use entries and continuation areas; rock_ridge.rs their values, relocation.rs across records
//! names.rs         names that readers do not distinguish; also of a tree before it is written
//! boot.rs          the boot catalog, El Torito images and boot info tables;  hybrid.rs  MBR and GPT
//! extents.rs       the use of every byte range: overlaps, and unused bytes
//! ```
//!
//! Each module adds findings to one report (report.rs) under the rules of rule.rs. After a broken structure the check
//! continues where possible, so that one fault does not hide another.
//!
//! Invariants: the image is treated as hostile. No recursion, and no allocation from a claimed size. Directories are
//! read once, a continuation area a bounded number of times. All directories, and all continuation areas, have at most
//! as many bytes as the image. An exhausted budget is a finding (`check-incomplete`). Images that this crate writes
//! have no findings, except names that readers do not distinguish, which [`check_names`] finds in the tree too.
//!
//! Not checked: file contents except the sum of a boot info table, UDF structures (a note reports their presence),
//! Apple partition maps and HFS, the boot code of an MBR.

mod boot;
mod descriptors;
mod extents;
mod hybrid;
mod identifier;
mod names;
mod path_table;
mod record;
mod relocation;
mod report;
mod rock_ridge;
mod rule;
mod susp;
mod text;
mod walk;

use std::fmt;

use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::error::ReadError;
use crate::source::ReadAt;

use extents::Claims;
use report::Findings;

pub use names::{NameFinding, check_names};
pub use report::{CheckReport, Counts, Finding};
pub use rule::{Rule, Severity};

/// The budgets of a check, and the ignored rules.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CheckOptions {
    /// The number of findings that are kept for each rule; further ones are only counted.
    pub findings_per_rule: u64,
    /// The largest size of one directory in bytes.
    pub directory_bytes: u64,
    /// The largest number of records of all directories of one hierarchy.
    pub entries: u64,
    /// The largest number of bytes of one El Torito image that are read for its boot info table.
    pub boot_image_bytes: u64,
    /// The largest number of unused bytes that are read to test whether they are zero.
    pub unused_bytes: u64,
    /// Rules that are not reported.
    pub ignored: Vec<Rule>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            findings_per_rule: 50,
            directory_bytes: 64 << 20,
            entries: 4_000_000,
            boot_image_bytes: 16 << 20,
            unused_bytes: 256 << 20,
            ignored: Vec::new(),
        }
    }
}

impl CheckOptions {
    setters! {
        with_findings_per_rule findings_per_rule: u64;
        with_directory_bytes directory_bytes: u64;
        with_entries entries: u64;
        with_boot_image_bytes boot_image_bytes: u64;
        with_unused_bytes unused_bytes: u64;
        with_ignored ignored: impl Into<Vec<Rule>>;
    }
}

/// Checks an image against all rules.
///
/// # Errors
/// [`ReadError::Io`] when the source cannot be read. Faults of the image are in the report.
pub fn check(source: &dyn ReadAt, options: &CheckOptions) -> Result<CheckReport, ReadError> {
    let mut checker = Checker {
        source,
        options,
        len: source.len(),
        findings: Findings::new(options.findings_per_rule, options.ignored.clone()),
        claims: Claims::default(),
        counts: Counts::default(),
    };
    let volume = descriptors::check(&mut checker)?;
    let mut hierarchies = Vec::with_capacity(volume.hierarchies.len());
    for descriptor in &volume.hierarchies {
        let hierarchy = walk::walk(&mut checker, descriptor)?;
        path_table::check(&mut checker, descriptor, &hierarchy)?;
        relocation::check(&mut checker, &hierarchy);
        hierarchies.push(hierarchy);
    }
    walk::compare(&mut checker, &hierarchies);
    boot::check(&mut checker, &volume, &hierarchies)?;
    let partitioned = hybrid::check(&mut checker, &volume)?;
    extents::check(&mut checker, &volume, partitioned)?;
    Ok(checker.findings.finish(checker.counts))
}

/// The state that all modules share.
struct Checker<'a> {
    source: &'a dyn ReadAt,
    options: &'a CheckOptions,
    /// The length of the source in bytes.
    len: u64,
    findings: Findings,
    claims: Claims,
    counts: Counts,
}

impl Checker<'_> {
    /// Adds a finding.
    fn find(&mut self, rule: Rule, offset: u64, message: fmt::Arguments<'_>) {
        self.findings.add(rule, offset, message);
    }

    /// Returns whether a range is inside the source.
    fn holds(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.len)
    }

    /// Fills a buffer from a range inside the source.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.source.read_exact_at(offset, buffer).map_err(|source| ReadError::Io { offset, length, source })
    }

    /// Reads a sector, if it is inside the source.
    fn sector(&self, number: u64) -> Result<Option<[u8; SECTOR]>, ReadError> {
        // Addresses have 32 bits, so the product does not overflow.
        let offset = number * SECTOR_SIZE;
        if !self.holds(offset, SECTOR_SIZE) {
            return Ok(None);
        }
        let mut sector = [0; SECTOR];
        self.fill(offset, &mut sector)?;
        Ok(Some(sector))
    }

    /// Reports bytes that are not zero, with one finding; `offset` is the offset of `bytes` in the image.
    fn zeros(&mut self, rule: Rule, offset: u64, bytes: &[u8], what: &str) {
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            self.find(rule, offset + at as u64, format_args!("{what} is not zero: {:#04x}", bytes[at]));
        }
    }
}
