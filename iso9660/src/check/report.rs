//! The report of a check.
//!
//! ```text
//! error    0x00008e22 (sector 17+0x622)  directory-order: "B.TXT;1" belongs before the previous record
//! ^severity ^offset in the image          ^rule            ^message
//! checked level 2, 3 descriptors, 2 directories, ...: 1 error, 0 warnings, 0 notes
//! ```
//!
//! Invariants: findings are in the order of their offsets. A limited number per rule is kept, the others are counted. A
//! message is one line, with names of the image escaped and shortened.

use std::collections::BTreeMap;
use std::fmt;

use super::rule::{Rule, Severity};
use crate::SECTOR_SIZE;

/// The largest number of characters of a name in a message.
const NAME: usize = 60;

/// One breach of one rule.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct Finding {
    /// The offset from the start of the image in bytes.
    pub offset: u64,
    /// The broken rule.
    pub rule: Rule,
    /// The details in one line.
    pub message: String,
}

impl Finding {
    /// Returns the severity of the rule.
    pub fn severity(&self) -> Severity {
        self.rule.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sector, within) = (self.offset / SECTOR_SIZE, self.offset % SECTOR_SIZE);
        let place = format!("{:#010x} (sector {sector}+{within:#05x})", self.offset);
        write!(formatter, "{:<7}  {place}  {}: {}", self.severity(), self.rule, self.message)
    }
}

/// The numbers of checked structures.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// The interchange level that the primary hierarchy needs (ECMA-119 10): 1 for names of 8 and 3 characters, 2 for
    /// longer names, 3 for files in several sections, 4 for an Enhanced Volume Descriptor. 0 when the image has no
    /// primary hierarchy.
    pub level: u8,
    /// The number of volume descriptors.
    pub descriptors: u64,
    /// The number of directories of all hierarchies.
    pub directories: u64,
    /// The number of directory records of all hierarchies that are not of directories.
    pub files: u64,
    /// The number of records of all path tables.
    pub path_table_records: u64,
    /// The number of system use entries, including those in continuation areas.
    pub system_use_entries: u64,
    /// The number of entries of the boot catalog.
    pub boot_entries: u64,
    /// The number of partitions of the hybrid partition tables.
    pub partitions: u64,
    /// The number of bytes that no structure and no file uses.
    pub unused_bytes: u64,
    /// The number of unused bytes that were read within the budget.
    pub unused_bytes_read: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckReport {
    findings: Vec<Finding>,
    totals: BTreeMap<Rule, u64>,
    counts: Counts,
}

impl CheckReport {
    /// Returns the kept findings, in the order of their offsets.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the number of findings of each rule, including those that were not kept.
    pub fn totals(&self) -> &BTreeMap<Rule, u64> {
        &self.totals
    }

    /// Returns the number of findings of a severity, including those that were not kept.
    pub fn count(&self, severity: Severity) -> u64 {
        self.totals.iter().filter(|(rule, _)| rule.severity() == severity).map(|(_, count)| count).sum()
    }

    /// Returns the number of findings that were counted but not kept.
    pub fn omitted(&self) -> u64 {
        self.totals.values().sum::<u64>().saturating_sub(self.findings.len() as u64)
    }

    /// Returns whether the image has no findings.
    pub fn is_clean(&self) -> bool {
        self.totals.is_empty()
    }

    /// Returns the numbers of checked structures.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(formatter, "{finding}")?;
        }
        if self.omitted() > 0 {
            writeln!(formatter, "and {} more findings of the same rules", self.omitted())?;
        }
        let counts = &self.counts;
        write!(
            formatter,
            "checked level {}, {} descriptors, {} directories, {} files, {} path table records, {} system use entries, \
             {} boot entries, {} partitions, {} of {} unused bytes: {} errors, {} warnings, {} notes",
            counts.level,
            counts.descriptors,
            counts.directories,
            counts.files,
            counts.path_table_records,
            counts.system_use_entries,
            counts.boot_entries,
            counts.partitions,
            counts.unused_bytes_read,
            counts.unused_bytes,
            self.count(Severity::Error),
            self.count(Severity::Warning),
            self.count(Severity::Note),
        )
    }
}

/// A report under construction.
pub(super) struct Findings {
    per_rule: u64,
    ignored: Vec<Rule>,
    report: CheckReport,
}

impl Findings {
    pub(super) fn new(per_rule: u64, ignored: Vec<Rule>) -> Findings {
        Findings { per_rule, ignored, report: CheckReport::default() }
    }

    pub(super) fn add(&mut self, rule: Rule, offset: u64, message: fmt::Arguments<'_>) {
        if self.ignored.contains(&rule) {
            return;
        }
        let total = self.report.totals.entry(rule).or_default();
        *total += 1;
        if *total <= self.per_rule {
            self.report.findings.push(Finding { offset, rule, message: message.to_string() });
        }
    }

    pub(super) fn finish(mut self, counts: Counts) -> CheckReport {
        self.report.counts = counts;
        self.report.findings.sort_unstable();
        self.report
    }
}

/// Formats a name of the image for a message: quoted, escaped, shortened.
pub(super) fn shown(name: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(name))
}

/// Formats a text of the image for a message: quoted, escaped, shortened.
pub(super) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(NAME).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_in_order_and_bounded_and_omitted_ones_are_counted() {
        let mut findings = Findings::new(2, vec![Rule::ImageLength]);
        for offset in [9, 5, 7] {
            findings.add(Rule::DirectoryOrder, offset, format_args!("out of order"));
        }
        findings.add(Rule::UnusedNotZero, 6, format_args!("5 bytes"));
        findings.add(Rule::ImageLength, 1, format_args!("ignored"));
        let report = findings.finish(Counts::default());
        assert_eq!(report.findings().iter().map(|finding| finding.offset).collect::<Vec<_>>(), [5, 6, 9]);
        assert_eq!(
            (report.omitted(), report.count(Severity::Error), report.count(Severity::Note)),
            (1, 3, 1)
        );
        let lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "error    0x00000005 (sector 0+0x005)  directory-order: out of order");
        assert_eq!(lines[3], "and 1 more findings of the same rules");
        assert!(lines[4].ends_with(": 3 errors, 0 warnings, 1 notes"));
    }

    #[test]
    fn names_are_escaped_and_stay_in_one_line() {
        assert_eq!(shown(b"a\n\x1b[2J"), r#""a\n\u{1b}[2J""#);
        assert_eq!(quoted(&"x".repeat(100)).chars().count(), 60 + 3);
    }
}
