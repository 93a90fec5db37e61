//! Links of the documents, and citations of code: each leads to a file, and to a heading, that exists.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::{read, root, tracked};

/// The targets of all markdown links of a text, without those to other hosts.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            let elsewhere =
                ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme));
            if !elsewhere && !target.is_empty() {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The anchor of a heading, as code hosts make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ if letter.is_alphanumeric() => Some(letter),
            _ => None,
        })
        .collect()
}

/// Why a link of a document leads nowhere, if it does.
fn broken(document: &Path, target: &str) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { document.to_owned() } else { document.parent()?.join(file) };
    if !path.exists() {
        return Some(format!("{}: {target} does not exist", document.display()));
    }
    let known = heading.is_empty()
        || path.extension().is_none_or(|end| end != "md")
        || read(&path).lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
    (!known).then(|| format!("{}: {target} names no heading", document.display()))
}

#[test]
fn the_table_of_alerts_is_that_of_the_rules() {
    let rules = read(&root().join("telemetry/observability/alerts.yml"));
    let rules: Vec<&str> =
        rules.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    let document = read(&root().join("docs/operating.md"));
    let rows: Vec<&str> =
        document.lines().filter_map(|line| line.strip_prefix("| `Shoal")?.split('`').next()).collect();
    let rows: Vec<String> = rows.iter().map(|name| format!("Shoal{name}")).collect();
    assert!(rules.len() > 10, "the rules are not where this test looks");
    assert_eq!(rows, rules);
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let documents = tracked(&["md"]);
    assert!(documents.len() > 30, "only {} documents were found", documents.len());
    let wrong: Vec<String> = documents
        .iter()
        .flat_map(|document| {
            links(&read(document)).into_iter().filter_map(|target| broken(document, &target))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The numbers of the decisions that a line cites: `D7`, `D3a` behind the word "decision" or "decisions".
fn cited_decisions(line: &str) -> Vec<String> {
    let lower = line.to_lowercase();
    let Some(at) = lower.find("decision") else { return Vec::new() };
    // A text may begin elsewhere with the letter: what is cited is a word of its own.
    let words = lower[at..].split(|sign: char| !sign.is_ascii_alphanumeric());
    let number = |word: &str| {
        let number = word.strip_prefix('d')?;
        let digits = number.strip_suffix('a').unwrap_or(number);
        (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| number.to_owned())
    };
    words.filter_map(number).collect()
}

#[test]
fn every_decision_that_is_cited_has_a_record() {
    assert_eq!(cited_decisions("//! Decisions D2, D3a and D18; the D9 of others"), ["2", "3a", "18", "9"]);
    assert_eq!(cited_decisions("the slots CD1 and CD2 (decision D6)."), ["6"]);
    let records: Vec<String> = std::fs::read_dir(root().join("docs/decisions"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let mut cited = 0;
    for file in tracked(&["rs", "md", "sql"]) {
        for number in read(&file).lines().flat_map(cited_decisions) {
            let digits = number.trim_end_matches('a');
            let Ok(value) = digits.parse::<u32>() else { continue };
            let wanted = format!("{value:04}{}-", &number[digits.len()..]);
            cited += 1;
            assert!(
                records.iter().any(|record| record.starts_with(&wanted)),
                "{} cites decision D{number}, which has no record",
                file.display()
            );
        }
    }
    assert!(cited > 80, "only {cited} citations were found");
}

/// The documents that a text of code names, with the heading behind `section`, if it names one.
fn named_documents(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("docs/") {
        let name = text[at..].split(|sign: char| !(sign.is_ascii_alphanumeric() || "/-_.".contains(sign)));
        let Some(name) = name.into_iter().next().and_then(|name| Some(&name[..name.rfind(".md")? + 3]))
        else {
            continue;
        };
        let behind =
            text[at + name.len()..].strip_prefix(", section ").map(|behind| behind.trim_start_matches('"'));
        let heading = behind.and_then(|behind| behind.split(['"', ',', ';', '.', '\n']).next());
        found.push((name, heading));
    }
    found
}

#[test]
fn every_document_and_section_that_code_names_exists() {
    let mut named = 0;
    // The tests of this reader have documents of their own.
    for file in tracked(&["rs", "sql"]).iter().filter(|file| !file.starts_with(root().join("tests/house"))) {
        let code = read(file);
        for (name, heading) in named_documents(&code) {
            let path = root().join(name);
            assert!(path.exists(), "{} names {name}", file.display());
            if let Some(heading) = heading {
                let document = read(&path);
                let mut headings = document.lines().filter(|line| line.starts_with('#'));
                let known = headings.any(|line| line.trim_start_matches('#').trim() == heading);
                assert!(known, "{} names the section {heading:?} of {name}", file.display());
            }
            named += 1;
        }
    }
    assert!(named > 60, "only {named} documents are named");
}

#[test]
fn no_file_cites_a_document_that_is_not_in_the_repository() {
    let outside = [
        "DESIGN section",
        "DESIGN.md",
        "../shared",
        "notes/",
        "(L7)",
        "lock L",
        "see DESIGN",
        "(DESIGN",
        "seed 00",
    ];
    for file in tracked(&["rs", "md", "sql", "toml"]) {
        if file.ends_with("tests/house/documents.rs") {
            continue;
        }
        // The requirements come from documents of the owner, and are rows of docs/seeds.md, which code cites.
        let may_name_seeds =
            file.extension().is_some_and(|kind| kind == "md") || file.ends_with("tests/house/seeds.rs");
        let text = read(&file);
        for phrase in outside.into_iter().filter(|phrase| !(may_name_seeds && *phrase == "seed 00")) {
            assert!(!text.contains(phrase), "{} cites {phrase:?}", file.display());
        }
    }
}

#[test]
fn every_file_that_a_document_names_exists() {
    for document in tracked(&["md"]) {
        let text = read(&document);
        for (at, _) in text.match_indices('`') {
            let name = text[at + 1..].split('`').next().unwrap_or_default();
            let is_path =
                name.contains('/') && name.ends_with(".rs") && !name.contains([' ', '*', '{', '<', '…']);
            if is_path {
                let beside = document.parent().unwrap().join(name);
                assert!(root().join(name).exists() || beside.exists(), "{} names {name}", document.display());
            }
        }
    }
}

/// The files and folders that a text names between backticks. A name with a star stands for files of its folder.
fn named_paths(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|name| name.contains('/') && !name.contains([' ', '{', '<', '…', '\n']));
    paths
        .map(|name| match name.find('*') {
            Some(star) => &name[..name[..star].rfind('/').map_or(0, |slash| slash + 1)],
            None => name,
        })
        .collect()
}

/// The changes in the first column of the table "Where is it changed?".
fn changes(text: &str) -> Vec<&str> {
    let table = text.split("| change | file |\n|---|---|\n").nth(1).unwrap_or_default();
    let rows = table.lines().map_while(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" | ").next()).collect()
}

/// The changes that a reader of the architecture finds first.
const FIRST_CHANGES: [&str; 12] = [
    "add a setting",
    "a quirk of one vendor",
    "another route",
    "a transition rule",
    "why a job waits, in words",
    "the retry policy of outgoing webhooks",
    "a rule of `shoal iso check`",
    "who may report an installation",
    "dry run",
    "the schedule of registry collection",
    "`shoal bmc doctor`",
    "which job starts first, and which gets a free lock",
];

#[test]
fn every_file_and_folder_of_the_architecture_exists() {
    let document = read(&root().join("docs/architecture.md"));
    let paths = named_paths(&document);
    assert!(paths.len() > 150, "only {} files and folders are named", paths.len());
    for path in paths {
        let exists = root().join(path).exists() || root().join("docs").join(path).exists();
        assert!(exists, "docs/architecture.md names {path}");
    }
    assert_eq!(named_paths("`a/b.rs`, `c/d*.toml`, `e f/g`, `h` `i/j/`"), ["a/b.rs", "c/", "i/j/"]);
}

#[test]
fn the_table_of_changes_begins_with_the_twelve_that_a_reader_looks_for() {
    let document = read(&root().join("docs/architecture.md"));
    let changes = changes(&document);
    assert!(changes.len() > 50, "only {} changes were read", changes.len());
    assert_eq!(changes[..FIRST_CHANGES.len()], FIRST_CHANGES);
}

/// The tests that a document names as `file.rs::function`. A name with a star stands for several.
fn cited_tests(text: &str) -> Vec<(String, String)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|name| name.split_once(".rs::"))
        .filter(|(file, test)| file.contains('/') && !test.contains(['*', ' ', ':', '…']))
        .map(|(file, test)| (format!("{file}.rs"), test.to_owned()))
        .collect()
}

/// Whether a text of code has a test of this name; tables of scenarios write it without `fn`.
fn has_test(code: &str, test: &str) -> bool {
    code.lines().any(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("async ").unwrap_or(line);
        let name = line.strip_prefix("fn ").unwrap_or(line);
        name.strip_prefix(test).is_some_and(|rest| {
            rest.starts_with(['(', '<']) || rest.starts_with(" \"") || rest.starts_with(": ")
        })
    })
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut cited = 0;
    // The rows of docs/seeds.md are requirements; a test of their own reads them.
    for document in tracked(&["md"]).iter().filter(|document| !document.ends_with("docs/seeds.md")) {
        for (file, test) in cited_tests(&read(document)) {
            let path = root().join(&file);
            assert!(path.exists(), "{} names {file}", document.display());
            assert!(has_test(&read(&path), &test), "{}: {file} has no test {test}", document.display());
            cited += 1;
        }
    }
    assert!(cited > 40, "only {cited} citations of tests were found");
}

#[test]
fn a_test_that_does_not_exist_is_noticed() {
    assert_eq!(cited_tests("`a/b.rs::c`, `a/b.rs::c_*`, `b.rs`"), [("a/b.rs".to_owned(), "c".to_owned())]);
    let code = "    async fn one() {}\n    two(bmc) {\n    fn three_more() {}\n    x.four(bmc)\n    five \"a\" installs;";
    let found = ["one", "two", "three", "four", "five"].map(|test| has_test(code, test));
    assert_eq!(found, [true, true, false, false, true]);
}

#[test]
fn a_link_that_leads_nowhere_is_noticed() {
    let document = root().join("docs/README.md");
    assert_eq!(links("[a](b.md) and [c](https://d)\n```\n[e](f)\n```\n[g](#h)"), ["b.md", "#h"]);
    assert!(broken(&document, "no-such-file.md").is_some());
    assert!(broken(&document, "style.md#no-such-heading").is_some());
    assert!(broken(&document, "style.md#refused-words-and-phrases").is_none());
    assert_eq!(anchor("## What may begin, and when"), "what-may-begin-and-when");
}

/// The number of pages that the browser of CI looks at in light and dark, on a desktop and on a phone.
fn pages_of_the_browser() -> usize {
    let script = read(&root().join(".ci/ui-tests/ui.mjs"));
    let places = script.split("const places = [").nth(1).and_then(|rest| rest.split("];").next());
    places.unwrap_or_default().split(',').filter(|place| !place.trim().is_empty()).count()
}

#[test]
fn the_document_says_how_many_pages_the_browser_looks_at() {
    let pages = pages_of_the_browser();
    assert!(pages > 10, "{pages} pages were counted");
    let document = read(&root().join("docs/testing.md"));
    assert!(
        document.contains(&format!(" {pages} pages\nin light and dark")),
        "docs/testing.md: {pages} pages"
    );
}

/// The names in the first column of the table of fuzz targets.
fn fuzz_targets(text: &str) -> BTreeSet<String> {
    let table = text.split("| target | input |\n|---|---|\n").nth(1).unwrap_or_default();
    let cells = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|row| row.split(" | ").next().unwrap_or_default());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn the_table_of_fuzz_targets_is_that_of_their_folder() {
    let folder = std::fs::read_dir(root().join("fuzz/fuzz_targets")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let targets: BTreeSet<String> =
        names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    assert!(targets.len() > 30, "the targets are not where this test looks");
    let listed = fuzz_targets(&read(&root().join("docs/testing.md")));
    assert_eq!(listed, targets, "left: docs/testing.md, right: fuzz/fuzz_targets");
    let without = fuzz_targets("| target | input |\n|---|---|\n| `a`, `b` | one `c` |\n\n| `d` | other |\n");
    assert_eq!(without, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
}
