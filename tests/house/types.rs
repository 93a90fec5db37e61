//! Each name of a public type has one meaning for a reader: a crate never has two types of one name in reach.
//!
//! Two types of one name are in reach of a crate when it defines both, when it defines one and uses the crate of the other, or
//! when it uses the crates of both. The arrows are those of the manifests.

use std::collections::{BTreeMap, BTreeSet};

use crate::crates::manifests;
use crate::sources::{product_code, read, root, tracked};

/// Crates that connect the others, or show what they have: what is in their reach says nothing.
const CONNECTING: [&str; 3] = ["shoal", "client", "lab-worlds"];

/// The words before the name of a public type.
const PUBLIC: [&str; 4] = ["pub struct ", "pub enum ", "pub trait ", "pub type "];

/// Names that two types in reach of one crate have, with the reason.
const NATURAL: [(&str, &str); 3] = [
    ("BondMode", "the agent reads the network of a recipe by types of its own, and means the same"),
    ("Route", "the agent reads the network of a recipe by types of its own, and means the same"),
    (
        "ResetType",
        "a simulated BMC shares no type with the client, so that one wrong reading cannot hide in both",
    ),
];

/// The names of the public types in a piece of code.
fn public_types(code: &str) -> Vec<String> {
    let lines = code.lines().map(str::trim_start);
    let rests = lines.filter_map(|line| PUBLIC.iter().find_map(|words| line.strip_prefix(words)));
    let name = |rest: &str| rest.chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect();
    rests.map(name).collect()
}

/// The crates that define a public type, by its name. A crate occurs once for each of its types of that name.
fn owners() -> BTreeMap<String, Vec<String>> {
    let mut folders: Vec<(String, String)> = Vec::new();
    for manifest in tracked(&["toml"]).into_iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = read(&manifest);
        let section = |title: &str| text.split(title).nth(1).and_then(|rest| rest.split("\n[").next());
        let name_in = |section: &str| Some(section.split("name = \"").nth(1)?.split('"').next()?.to_owned());
        let name = section("[lib]\n").and_then(name_in).or_else(|| section("[package]\n").and_then(name_in));
        let name = name.unwrap();
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap().join("src/");
        folders.push((folder.display().to_string(), name));
    }
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in tracked(&["rs"]) {
        let shown = file.strip_prefix(root()).unwrap().display().to_string();
        let Some((_, owner)) = folders.iter().find(|(folder, _)| shown.starts_with(folder)) else { continue };
        if file.file_name().unwrap().to_string_lossy().ends_with("_tests.rs") {
            continue;
        }
        for name in public_types(&product_code(&file)) {
            owners.entry(name).or_default().push(owner.clone());
        }
    }
    owners
}

/// The crate that has two types of one name in reach, if there is one.
fn in_reach<'a>(owners: &[String], arrows: &'a BTreeMap<String, BTreeSet<String>>) -> Option<&'a str> {
    let readers = arrows.iter().filter(|(reader, _)| !CONNECTING.contains(&reader.as_str()));
    let mut found = readers.filter(|(reader, uses)| {
        owners.iter().filter(|owner| owner == reader || uses.contains(*owner)).count() > 1
    });
    found.next().map(|(reader, _)| reader.as_str())
}

#[test]
fn a_crate_has_no_two_public_types_of_one_name_in_reach() {
    let (owners, arrows) = (owners(), manifests());
    assert!(owners.len() > 1000, "only {} types were read", owners.len());
    let natural: BTreeSet<&str> = NATURAL.iter().map(|(name, _)| *name).collect();
    let twice: BTreeMap<&str, String> = owners
        .iter()
        .filter_map(|(name, owners)| {
            let reader = in_reach(owners, &arrows)?;
            Some((name.as_str(), format!("{name} of {}: {reader} has them in reach", owners.join(" and "))))
        })
        .collect();
    let new = twice.iter().filter(|(name, _)| !natural.contains(*name)).map(|(_, text)| {
        format!("{text}\nname what is special about one of them, or list the name with its reason")
    });
    let gone = natural.iter().filter(|name| !twice.contains_key(*name));
    let gone = gone.map(|name| format!("{name} is listed and has one meaning; remove it from the list"));
    let wrong: Vec<String> = new.chain(gone).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn two_types_of_one_name_in_reach_are_noticed() {
    assert_eq!(
        public_types(
            "pub struct A<T>(T);\n    pub enum B {\npub(crate) struct C;\npub fn d() {}\npub type E = u8;"
        ),
        ["A", "B", "E"]
    );
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    let arrows: BTreeMap<String, BTreeSet<String>> =
        [("top", vec!["left", "right"]), ("left", vec!["low"]), ("right", vec![]), ("low", vec![])]
            .into_iter()
            .map(|(from, to)| (from.to_owned(), to.into_iter().map(str::to_owned).collect()))
            .collect();
    assert_eq!(in_reach(&names(&["left", "right"]), &arrows), Some("top"));
    assert_eq!(in_reach(&names(&["left", "low"]), &arrows), Some("left"));
    assert_eq!(in_reach(&names(&["low", "low"]), &arrows), Some("left"));
    assert_eq!(in_reach(&names(&["right", "low"]), &arrows), None);
    assert_eq!(in_reach(&names(&["low"]), &arrows), None);
}

/// What callers of the image crate fill in gets fields in later versions, so each such type is `#[non_exhaustive]`: a new field breaks no caller.
#[test]
fn the_options_of_the_image_crate_can_get_fields() {
    let sources = tracked(&["rs"]).into_iter().filter(|file| file.starts_with(root().join("iso9660/src")));
    let (mut options, mut exhaustive) = (0, Vec::new());
    for file in sources {
        let text = read(&file);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let name = line.strip_prefix("pub struct ").and_then(|rest| rest.split([' ', '<', ';']).next());
            if !name.is_some_and(|name| name.ends_with("Options") || name.ends_with("Limits")) {
                continue;
            }
            options += 1;
            let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
            if !attributes.into_iter().any(|line| *line == "#[non_exhaustive]") {
                exhaustive.push(line.to_string());
            }
        }
    }
    assert!(options >= 5, "{options} types of options were found");
    assert_eq!(exhaustive, [""; 0], "add #[non_exhaustive]");
}
