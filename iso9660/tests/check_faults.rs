//! Every single fault is found under its rule, and under no rules except those that follow from the fault.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;

use common::faults::{Fault, bench, further, measured};
use iso9660::{CheckOptions, Rule, check};

fn broken(image: &[u8], options: &CheckOptions) -> BTreeSet<Rule> {
    check(&image, options).unwrap().totals().keys().copied().collect()
}

/// Returns the faults with unexpected findings, and those findings.
fn misses(options: &CheckOptions) -> Vec<(&'static str, BTreeSet<Rule>)> {
    let all: Vec<Fault> = measured().into_iter().chain(further()).collect();
    assert!(all.len() >= 50, "{}", all.len());
    let miss = |fault: Fault| {
        let mut bench = bench();
        (fault.change)(&mut bench);
        let found = broken(&bench.image, options);
        (found != fault.rules.iter().copied().collect()).then_some((fault.name, found))
    };
    all.into_iter().filter_map(miss).collect()
}

#[test]
fn the_image_without_a_fault_has_no_finding() {
    let report = check(&bench().image, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    let counts = report.counts();
    assert_eq!(
        (counts.descriptors, counts.directories, counts.boot_entries, counts.partitions),
        (4, 8, 2, 2)
    );
}

#[test]
fn every_single_fault_is_found_under_its_rule() {
    let misses = misses(&CheckOptions::default());
    for (name, found) in &misses {
        eprintln!("{name}: found {found:?}");
    }
    assert!(misses.is_empty(), "{} faults", misses.len());
}

#[test]
fn a_checker_without_the_rule_on_order_would_fail_the_table() {
    let options = CheckOptions::default().with_ignored(vec![Rule::DirectoryOrder]);
    let names: Vec<&str> = misses(&options).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a directory out of order", "an identifier twice", "Joliet out of order"]);
}

#[test]
fn every_rule_that_a_fault_can_break_is_in_the_table() {
    let covered: BTreeSet<Rule> =
        measured().iter().chain(&further()).flat_map(|fault| fault.rules.iter().copied()).collect();
    // Each of these has a separate test, because it needs another image than that of the table.
    let elsewhere = [
        Rule::CheckIncomplete,
        Rule::IdentifierLength,
        Rule::PathDepth,
        Rule::PathLength,
        Rule::NamesFoldCase,
        Rule::NamesFoldDot,
        Rule::NamesFoldUnicode,
    ];
    let missing: Vec<Rule> = Rule::ALL
        .iter()
        .copied()
        .filter(|rule| !covered.contains(rule) && !elsewhere.contains(rule))
        .collect();
    assert_eq!(missing, []);
}
