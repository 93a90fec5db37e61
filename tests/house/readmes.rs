//! Every crate has a README that its manifest names, and the README names what exists.

use std::path::{Path, PathBuf};

use crate::sources::{read, root, tracked};

/// The least lines of a README that says what a crate is for, what it does not do, and where to read on.
const LEAST_LINES: usize = 5;

/// The most lines of the README of the program: a stranger reads it to the end.
const MOST_LINES: usize = 170;

/// The folders of all crates of the workspace.
pub(crate) fn members() -> Vec<PathBuf> {
    let workspace = read(&root().join("Cargo.toml"));
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let folders = members.split('"').skip(1).step_by(2).map(|folder| root().join(folder));
    folders.chain([root().to_owned()]).collect()
}

/// What is wrong with the README of a crate, by its manifest and the text.
fn wrong(manifest: &str, readme: Option<&str>) -> Option<String> {
    if !manifest.contains("\nreadme = \"README.md\"\n") {
        return Some("the manifest does not say readme = \"README.md\"".to_owned());
    }
    match readme.map(|text| text.lines().count()) {
        None => Some("there is no README.md".to_owned()),
        Some(lines) if lines < LEAST_LINES => Some(format!("README.md has {lines} lines")),
        Some(_) => None,
    }
}

/// The names of code that the section of entry points gives: words between backticks, each part of a path for itself.
fn entry_points(readme: &str) -> Vec<&str> {
    let section = readme.split("\n## Entry points\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let quoted = section.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let paths = quoted.filter(|text| text.chars().all(|sign| sign.is_alphanumeric() || "_:".contains(sign)));
    paths.flat_map(|path| path.split("::")).filter(|name| !name.is_empty()).collect()
}

/// Whether a piece of code has a word.
fn has_word(code: &str, word: &str) -> bool {
    let part_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(part_of_word) && !code[at + word.len()..].starts_with(part_of_word)
    })
}

/// The code of a crate.
pub(crate) fn code_of(folder: &Path) -> String {
    let files = tracked(&["rs"]).into_iter().filter(|file| file.starts_with(folder.join("src")));
    files.map(|file| read(&file)).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_readme_of_the_program_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= MOST_LINES, "README.md has {lines} lines; move what is not the first look to docs/");
}

#[test]
fn every_crate_has_a_readme_that_its_manifest_names() {
    let members = members();
    assert!(members.len() > 30, "{} members", members.len());
    let problems = members.iter().filter_map(|folder| {
        let readme = folder.join("README.md");
        let text = readme.exists().then(|| read(&readme));
        let why = wrong(&read(&folder.join("Cargo.toml")), text.as_deref())?;
        Some(format!("{}: {why}", folder.display()))
    });
    let problems: Vec<String> = problems.collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What others can use by itself is published with the texts of its licences.
#[test]
fn each_crate_that_can_be_published_has_the_licences_of_the_repository() {
    for folder in ["iso9660", "registry", "redfish"] {
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let copy = root().join(folder).join(name);
            assert!(read(&copy) == read(&root().join(name)), "{} differs from {name}", copy.display());
        }
    }
}

#[test]
fn the_entry_points_that_a_readme_names_are_in_the_code_of_its_crate() {
    let mut checked = 0;
    for folder in members() {
        let readme = read(&folder.join("README.md"));
        let names = entry_points(&readme);
        if names.is_empty() {
            continue;
        }
        let code = code_of(&folder);
        for name in names {
            assert!(has_word(&code, name), "{}/README.md names {name}", folder.display());
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} names were read");
}

#[test]
fn a_readme_that_is_missing_short_or_not_named_is_noticed() {
    let manifest = "[package]\nname = \"a\"\nreadme = \"README.md\"\n";
    assert_eq!(wrong(manifest, Some("1\n2\n3\n4\n5\n")), None);
    assert!(wrong(manifest, Some("1\n2\n3\n4\n")).is_some());
    assert!(wrong(manifest, None).is_some());
    assert!(wrong("[package]\nname = \"a\"\n", Some("1\n2\n3\n4\n5\n")).is_some());
}

#[test]
fn an_entry_point_that_does_not_exist_is_noticed() {
    let readme =
        "# a\n\n## Entry points\n\n- `Store::open`, `run`: what `docs/a.md` says\n\n## Read on\n\n`Other`\n";
    assert_eq!(entry_points(readme), ["Store", "open", "run"]);
    assert!(has_word("impl Store {}", "Store") && !has_word("impl Stored {}", "Store"));
}
