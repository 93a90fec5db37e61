//! A strict reading of an image: every rule of the formats that can be checked without reading the files' contents.
//!
//! ```text
//! descriptors.rs   the Volume Descriptor Set: order, fields, texts (text.rs), dates
//! walk.rs          each hierarchy: directories, their records (record.rs), identifiers (identifier.rs)
//! path_table.rs    L, M and their optional copies against the walk
//! susp.rs          system use entries and continuation areas; rock_ridge.rs what they say, relocation.rs across records
//! names.rs         names that readers fold together; also of a tree that is still to be written
//! boot.rs          the boot catalog, boot images and boot info tables;  hybrid.rs  MBR and GPT
//! extents.rs       who claims which bytes: overlaps, and what nobody claims
//! ```
//!
//! Each concern adds findings to one report (report.rs) under the rules of rule.rs. What is found broken is stepped
//! over where that is possible, so that one fault does not hide another.
//!
//! Invariants: the image is hostile. No recursion; no allocation from a claimed size; directories are read once, a
//! continuation area a bounded number of times; all bytes of directories and of continuation areas together are no more
//! than the image has; what a budget does not allow is a finding (`check-incomplete`), never silence. About images of
//! this crate's writer nothing is reported, except names that fold together: those are what [`check_names`] says of the
//! tree.
//!
//! Not checked: contents of files but for a boot info table's sum, UDF structures (a note says that they are there),
//! Apple partition maps and HFS, the program in an MBR.

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
pub use report::{Counts, Finding, CheckReport};
pub use rule::{Rule, Severity};

/// The budgets of a check and what it leaves out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckOptions {
    /// How many findings are kept for each rule; the others are counted.
    pub findings_per_rule: u64,
    /// Bytes of one directory.
    pub directory_bytes: u64,
    /// Records of all directories of one hierarchy.
    pub entries: u64,
    /// Bytes of one boot image that are read for its boot info table.
    pub boot_image_bytes: u64,
    /// Bytes that nobody claims and that are read to see whether they are zero.
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

/// Checks an image.
///
/// # Errors
/// When the source cannot be read. What is wrong with the image is in the report.
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

/// What the concerns share.
struct Checker<'a> {
    source: &'a dyn ReadAt,
    options: &'a CheckOptions,
    /// The length of the source.
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

    /// Whether a range lies inside the source.
    fn holds(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.len)
    }

    /// Fills a buffer from a range that lies inside the source.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.source.read_exact_at(offset, buffer).map_err(|source| ReadError::Io { offset, length, source })
    }

    /// A sector, if it lies inside the source.
    fn sector(&self, number: u64) -> Result<Option<[u8; SECTOR]>, ReadError> {
        // Addresses have 32 bits, so the product fits.
        let offset = number * SECTOR_SIZE;
        if !self.holds(offset, SECTOR_SIZE) {
            return Ok(None);
        }
        let mut sector = [0; SECTOR];
        self.fill(offset, &mut sector)?;
        Ok(Some(sector))
    }

    /// Reports the bytes of `bytes` that are not zero, once; `offset` is where they are.
    fn zeros(&mut self, rule: Rule, offset: u64, bytes: &[u8], what: &str) {
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            self.find(rule, offset + at as u64, format_args!("{what} is not zero: {:#04x}", bytes[at]));
        }
    }
}
