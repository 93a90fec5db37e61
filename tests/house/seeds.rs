//! docs/seeds.md: each row has a known state, the tests that it names exist, and the totals are those of the rows.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{read, root};

const STATES: [&str; 4] = ["held", "differs", "partly", "not yet"];
/// The column of a row that no test holds.
const NO_TEST: &str = "not yet";

/// A row of the page.
struct Row<'a> {
    id: &'a str,
    state: &'a str,
    tests: &'a str,
}

/// The cells of a line of a table.
fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
    inner.map_or_else(Vec::new, |inner| inner.split(" | ").collect())
}

/// Whether a text is the id of a row, such as `S000-23` or `C022-1`.
fn is_id(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = text.strip_prefix(['S', 'C']).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(seed, row)| seed.len() == 3 && number(seed) && number(row))
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let of_line = |line| match *cells(line) {
        [id, _, .., state, tests] if is_id(id) => Some(Row { id, state, tests }),
        _ => None,
    };
    page.lines().filter_map(of_line).collect()
}

/// The numbers of the table at the top: seed, then rows and each state.
fn totals(page: &str) -> BTreeMap<String, Vec<usize>> {
    let of_line = |line| {
        let cells = cells(line);
        let numbers: Vec<usize> = cells.iter().skip(1).filter_map(|cell| cell.parse().ok()).collect();
        let seed = if cells.first()?.starts_with("companion") { "C" } else { cells[0].split(',').next()? };
        (numbers.len() == STATES.len() + 1).then(|| (seed.to_owned(), numbers))
    };
    page.lines().filter_map(of_line).collect()
}

fn counted(rows: &[Row<'_>]) -> BTreeMap<String, Vec<usize>> {
    let mut all = BTreeMap::<String, Vec<usize>>::new();
    for row in rows {
        let seed = if row.id.starts_with('C') { "C" } else { &row.id[1..4] };
        let numbers = all.entry(seed.to_owned()).or_insert_with(|| vec![0; STATES.len() + 1]);
        numbers[0] += 1;
        for (number, state) in numbers[1..].iter_mut().zip(STATES) {
            *number += usize::from(row.state == state);
        }
    }
    all
}

/// Why a test does not exist, if it does not: `file.rs::function`, also one that a macro makes, or a script of CI.
fn missing(test: &str) -> Option<String> {
    let Some((file, function)) = test.split_once("::") else {
        let is_script = test.starts_with(".ci/") && root().join(test).is_file();
        return (!is_script).then(|| format!("{test} is neither a test nor a script of CI"));
    };
    let Ok(text) = std::fs::read_to_string(root().join(file)) else {
        return Some(format!("{file} does not exist"));
    };
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_there = text
        .match_indices(function)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + function.len()..].starts_with(is_part));
    (!is_there).then(|| format!("{file} has no {function}"))
}

/// Everything that is wrong on the page.
fn faults(page: &str) -> Vec<String> {
    let rows = rows(page);
    let mut wrong = Vec::new();
    let mut ids = BTreeSet::new();
    for Row { id, state, tests } in &rows {
        if !ids.insert(*id) {
            wrong.push(format!("{id} is there twice"));
        }
        if !STATES.contains(state) {
            wrong.push(format!("{id} has the state {state:?}"));
        }
        if *tests == NO_TEST {
            if *state == "held" {
                wrong.push(format!("{id} is held by no test"));
            }
            continue;
        }
        if *state == "not yet" {
            wrong.push(format!("{id} is not there and has a test"));
        }
        let named = tests.split(", ").map(|test| test.trim_matches('`'));
        wrong.extend(named.filter_map(missing).map(|why| format!("{id}: {why}")));
    }
    let (stated, counted) = (totals(page), counted(&rows));
    if stated != counted {
        wrong.push(format!("the totals are\n{counted:?}, not\n{stated:?}"));
    }
    // The numbers of the behaviour behind seed 002.
    for number in 1..=19 {
        let name = format!("FW-{number}");
        let line = page.lines().map(cells).find(|cells| cells.first() == Some(&&*name));
        let named = line.iter().flat_map(|cells| cells.last()).flat_map(|last| last.split(", "));
        let named: Vec<&str> = named.collect();
        if named.is_empty() || named.iter().any(|row| !ids.contains(row)) {
            wrong.push(format!("{name} names no row, or one that does not exist: {named:?}"));
        }
    }
    wrong
}

#[test]
fn each_requirement_has_its_state_and_tests_that_exist_and_the_totals_are_right() {
    let page = read(&root().join("docs/seeds.md"));
    assert!(rows(&page).len() > 700, "only {} rows were found", rows(&page).len());
    let wrong = faults(&page);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_row_is_noticed() {
    let page = read(&root().join("docs/seeds.md"));
    for (right, wrong, said) in [
        ("::every_error_has_the_same_format`", "::no_such_test`", "has no no_such_test"),
        ("| S000-112 | ", "| S000-111 | ", "S000-111 is there twice"),
        (
            " | partly | not yet |\n| S000-113",
            " | held | not yet |\n| S000-113",
            "S000-112 is held by no test",
        ),
        (" | partly | not yet |\n| S000-113", " | mostly | not yet |\n| S000-113", "the state \"mostly\""),
        ("| FW-12 | ", "| FW-99 | ", "FW-12 names no row"),
        ("| 001, provisioning models | 146 |", "| 001, provisioning models | 145 |", "the totals are"),
        ("`.ci/vm/medium`", "`.ci/vm/no-such-script`", "neither a test nor a script"),
    ] {
        assert!(page.contains(right), "{right}");
        let found = faults(&page.replacen(right, wrong, 1));
        assert!(found.iter().any(|fault| fault.contains(said)), "{said}: {found:?}");
    }
    assert!(is_id("C022-1") && !is_id("FW-1") && !is_id("S00-1") && !is_id("S000-"));
}
