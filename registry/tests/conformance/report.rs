//! The checks by group, and the failures.

use std::collections::BTreeMap;
use std::fmt;

use super::client::Failure;

/// Checks and failures per group; a check may count for the group of an endpoint and for a kind of content.
#[derive(Default)]
pub(super) struct Report {
    checks: usize,
    failures: usize,
    groups: BTreeMap<&'static str, Group>,
}

#[derive(Default)]
struct Group {
    checks: usize,
    failures: Vec<Failure>,
}

impl Report {
    pub(super) fn record(&mut self, groups: &[&'static str], name: &str, outcome: Result<(), Failure>) {
        self.checks += 1;
        self.failures += usize::from(outcome.is_err());
        for group in groups {
            let group = self.groups.entry(group).or_default();
            group.checks += 1;
            if let Err(failure) = &outcome {
                group.failures.push(format!("{name}: {failure}"));
            }
        }
    }

    /// The number of checks.
    pub(super) fn checks(&self) -> usize {
        self.checks
    }

    /// Groups with failures.
    pub(super) fn failed(&self) -> Vec<&'static str> {
        let failed = self.groups.iter().filter(|(_, group)| !group.failures.is_empty());
        failed.map(|(name, _)| *name).collect()
    }

    /// Groups with checks.
    pub(super) fn covered(&self) -> Vec<&'static str> {
        self.groups.keys().copied().collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>7} {:>9}", "group", "checks", "failures")?;
        for (name, group) in &self.groups {
            writeln!(f, "{name:<32} {:>7} {:>9}", group.checks, group.failures.len())?;
            for failure in group.failures.iter().take(3) {
                writeln!(f, "    {failure}")?;
            }
        }
        writeln!(f, "{:<32} {:>7} {:>9}", "all, each once", self.checks, self.failures)
    }
}
