//! The house rules: which room may use which (the table in `src/lib.rs`), what words a room may not say, and how long a file
//! may be. Read from the sources, so that a new arrow is a decision and not an accident.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 3] = ["iso9660", "registry", "redfish"];
/// Lines a person can read in one sitting.
const LONGEST: usize = 700;
/// Words of vendors; what differs between them is data in profiles.
const VENDORS: [&str; 7] = ["idrac", "dell", "ilo", "hpe", "lenovo", "supermicro", "openbmc"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Code without tests and comments: tests may look anywhere, comments may speak of anything.
fn code(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy();
    let is_test = ["tests.rs", "test_kit.rs"].contains(&&*name)
        || path.components().any(|part| part.as_os_str() == "tests");
    if is_test {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The names that follow `prefix`, such as the rooms behind `crate::`, also those of a group in braces.
fn names_after<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).flat_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let whole = before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            _ if !whole => Vec::new(),
            Some(group) => group_members(group),
            None => vec![first_name(rest)],
        }
    })
}

fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// The first names of the members of a group, up to its closing brace.
fn group_members(group: &str) -> Vec<&str> {
    let mut members = Vec::new();
    let (mut depth, mut begins) = (0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && depth == 0 && !c.is_whitespace() => {
                members.push(first_name(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    members
}

/// What a piece of code uses: rooms of this crate and crates of this workspace.
fn uses(text: &str) -> BTreeSet<String> {
    let mut used: BTreeSet<String> = names_after(text, "crate::").map(str::to_owned).collect();
    for name in CRATES {
        for next in names_after(text, &format!("{name}::")) {
            used.insert(if next == "sim" { format!("{name}::sim") } else { name.to_owned() });
        }
    }
    used
}

/// The table of `src/lib.rs`.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let table = lib.split("```text").nth(2).unwrap().split("```").next().unwrap();
    table
        .lines()
        .filter_map(|line| line.trim_start_matches("//!").split_once("->"))
        .map(|(room, may)| (room.trim().to_owned(), may.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

#[test]
fn every_room_uses_only_what_the_table_allows() {
    let allowed = allowed();
    let mut rooms = 0;
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        rooms += 1;
        let room = path.file_name().unwrap().to_string_lossy().into_owned();
        let may = allowed.get(&room).unwrap_or_else(|| panic!("{room} is not in the table of src/lib.rs"));
        for file in sources(&path) {
            for used in uses(&code(&file)) {
                assert!(
                    used == room || may.contains(&used),
                    "{} uses {used}; the table in src/lib.rs does not allow {room} -> {used}",
                    file.display()
                );
            }
        }
    }
    assert_eq!(rooms, allowed.len() - 1, "the table names rooms that are not there (main is a file)");
}

#[test]
fn arrows_point_down_only() {
    let allowed = allowed();
    let order: Vec<&String> = allowed.keys().collect();
    // A cycle would show as a room that reaches itself.
    for start in order {
        let mut reached = BTreeSet::new();
        let mut next: Vec<String> = allowed[start].iter().cloned().collect();
        while let Some(room) = next.pop() {
            assert_ne!(&room, start, "{start} reaches itself");
            if reached.insert(room.clone()) {
                next.extend(allowed.get(&room).into_iter().flatten().cloned());
            }
        }
    }
}

#[test]
fn a_forbidden_arrow_would_be_noticed() {
    let used =
        uses("use crate::{api::{a, b}, store::Store}; fn f() { lab_bmc::SimBmc; iso9660::{Plan, Tree} }");
    assert_eq!(used.into_iter().collect::<Vec<_>>(), ["api", "iso9660", "lab_bmc", "store"]);
    assert!(!allowed()["engine"].contains("redfish"));
}

#[test]
fn the_crates_know_nothing_of_each_other() {
    for name in CRATES {
        for file in sources(&root().join(name).join("src")) {
            let used = uses(&code(&file));
            for other in CRATES.iter().filter(|other| **other != name) {
                assert!(!used.contains(*other), "{} uses {other}", file.display());
            }
        }
    }
}

#[test]
fn vendor_names_occur_in_profiles_and_tests_only() {
    for folder in ["src", "redfish/src"] {
        for file in sources(&root().join(folder)) {
            if file.to_string_lossy().contains("profile")
                || file.components().any(|part| part.as_os_str() == "sim")
            {
                continue;
            }
            let text = code(&file).to_ascii_lowercase();
            for word in text.split(|c: char| !c.is_alphanumeric()) {
                let known_target = file.to_string_lossy().contains("recipe") && word == "supermicro";
                assert!(known_target || !VENDORS.contains(&word), "{} names {word}", file.display());
            }
        }
    }
}

#[test]
fn no_file_is_too_long_to_read_in_one_sitting() {
    for folder in ["src", "iso9660/src", "registry/src", "redfish/src", "tests"] {
        for file in sources(&root().join(folder)) {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            assert!(lines <= LONGEST, "{} has {lines} lines; find the seam", file.display());
        }
    }
}
