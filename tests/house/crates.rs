//! Which crate may use which. The manifests are the rule; `docs/architecture.md` shows it, and both must agree.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{product_code, read, root, tracked};

/// Words of vendors. What differs between vendors is data in profiles (decision D20).
const VENDORS: [&str; 12] = [
    "idrac",
    "dell",
    "ilo",
    "hpe",
    "lenovo",
    "supermicro",
    "openbmc",
    "smc",
    "xcc",
    "huawei",
    "fujitsu",
    "cisco",
];

/// Each crate of the workspace with the crates of the workspace that its program code depends on.
pub(crate) fn manifests() -> BTreeMap<String, BTreeSet<String>> {
    let workspace = read(&root().join("Cargo.toml"));
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let folders =
        members.split(',').map(|folder| folder.trim().trim_matches('"')).filter(|folder| !folder.is_empty());
    let mut texts: Vec<String> =
        folders.map(|folder| read(&root().join(folder).join("Cargo.toml"))).collect();
    texts.push(workspace);
    // A library may have another name than its package, which the code does not show.
    let name = |text: &str| name_in(text, "[lib]\n").or_else(|| name_in(text, "[package]\n")).unwrap();
    let names: BTreeSet<String> = texts.iter().map(|text| name(text)).collect();
    let uses = |text: &str| {
        let section = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        section
            .lines()
            .map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned())
            .filter(|used| names.contains(used))
            .collect()
    };
    texts.iter().map(|text| (name(text), uses(text))).collect()
}

/// The name that a section of a manifest gives.
fn name_in(text: &str, section: &str) -> Option<String> {
    let section = text.split(section).nth(1)?.split("\n[").next()?;
    Some(section.split("name = \"").nth(1)?.split('"').next()?.to_owned())
}

/// The arrows as `docs/architecture.md` shows them: lines `name -> name name` in its first block of that form.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = read(&root().join("docs/architecture.md"));
    let table = text.split("<!-- arrows -->").nth(1).expect("the arrows are marked in docs/architecture.md");
    table
        .lines()
        .filter_map(|line| line.split_once("->"))
        .map(|(from, to)| (from.trim().to_owned(), to.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

#[test]
fn the_documented_arrows_are_those_of_the_manifests() {
    let (written, real) = (documented(), manifests());
    assert_eq!(written, real, "left: docs/architecture.md, right: the Cargo.toml files");
}

#[test]
fn the_crates_for_iso_registry_and_redfish_know_nothing_of_the_rest() {
    let manifests = manifests();
    for name in ["iso9660", "registry", "redfish", "secrets", "recipe", "model"] {
        assert!(manifests[name].is_empty(), "{name} uses {:?}", manifests[name]);
    }
}

#[test]
fn workflows_never_use_each_other_and_only_the_program_uses_the_laboratory() {
    let workflows = ["provision", "diagnostics", "upkeep"];
    let below = [
        "beacon", "bmc", "engine", "firmware", "iso9660", "media", "model", "recipe", "redfish", "secrets",
        "store",
    ];
    for (package, used) in manifests() {
        let laboratory = package.starts_with("lab-") || package == "shoal";
        for other in used {
            assert!(laboratory || !other.starts_with("lab-"), "{package} uses {other}");
            assert!(
                !workflows.contains(&&*package) || below.contains(&&*other),
                "the workflow {package} uses {other}"
            );
        }
    }
}

/// The most lines of a crate, without comments and tests: it is read in a day, and the compiler works on several at a time.
const MOST_LINES: usize = 15_000;

#[test]
fn no_crate_is_larger_than_one_room() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for file in tracked(&["rs"]) {
        let relative = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if let Some((folder, _)) = format!("/{relative}").split_once("/src/") {
            *lines.entry(folder.to_owned()).or_default() += product_code(&file).lines().count();
        }
    }
    assert!(lines.len() > 30, "only {} crates were found", lines.len());
    let largest = lines.iter().max_by_key(|(_, lines)| **lines).unwrap();
    assert!(*largest.1 > MOST_LINES / 2, "the lines are not counted: {largest:?}");
    let too_large: Vec<_> = lines.iter().filter(|(_, lines)| **lines > MOST_LINES).collect();
    assert!(too_large.is_empty(), "cut a room out of {too_large:?}");
}

/// What a manifest depends on outside its tests, under the names of the packages.
fn linked_packages(manifest: &str, renamed: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let linked = section.ends_with("dependencies]") && !section.contains("dev-dependencies");
        let key = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if linked && line.contains('=') && key.starts_with(|first: char| first.is_ascii_alphabetic()) {
            found.insert(renamed.get(key).cloned().unwrap_or_else(|| key.to_owned()));
        }
    }
    found
}

/// The packages of a lock file that come from this repository, with the names of the packages that each depends on.
fn locked(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let own = text.split("[[package]]\n").skip(1).filter(|package| !package.contains("\nsource = "));
    own.map(|package| {
        let name = package.split("name = \"").nth(1).unwrap().split('"').next().unwrap();
        let used = package.split("dependencies = [").nth(1).unwrap_or_default();
        let used = used.lines().filter_map(|line| line.trim().strip_prefix('"'));
        let used = used.map(|entry| entry.split([' ', '"']).next().unwrap().to_owned()).collect();
        (name.to_owned(), used)
    })
    .collect()
}

/// The fuzz targets are a workspace of their own, with a lock file that no build of this workspace writes: CI fetches what it
/// names with `--locked` and ends when it is old.
#[test]
fn the_lock_file_of_the_fuzz_targets_names_what_the_crates_depend_on() {
    let workspace = read(&root().join("Cargo.toml"));
    let renamed: BTreeMap<String, String> = workspace
        .lines()
        .filter_map(|line| {
            let package = line.split("package = \"").nth(1)?.split('"').next()?;
            Some((line.split(' ').next()?.to_owned(), package.to_owned()))
        })
        .collect();
    let locked = locked(&read(&root().join("fuzz/Cargo.lock")));
    let mut compared = 0;
    for manifest in tracked(&["toml"]).iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = read(manifest);
        let Some(name) = name_in(&text, "[package]\n") else { continue };
        if let Some(known) = locked.get(&name) {
            compared += 1;
            let linked = linked_packages(&text, &renamed);
            assert_eq!(
                known, &linked,
                "left: fuzz/Cargo.lock, right: the manifest of {name}; run `cargo metadata` in fuzz"
            );
        }
    }
    assert_eq!(compared, locked.len(), "a package of fuzz/Cargo.lock has no manifest here");
}

#[test]
fn a_dependency_for_tests_only_is_not_expected_in_another_lock_file() {
    let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nb.workspace = true\nc = { path = \"c\" }\n\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n\n[dev-dependencies]\ne = \"1\"\n\n[lints]\nworkspace = true\n";
    let renamed = [("c".to_owned(), "see".to_owned())].into();
    assert_eq!(linked_packages(manifest, &renamed).into_iter().collect::<Vec<_>>(), ["b", "d", "see"]);
    let lock = "[[package]]\nname = \"a\"\nversion = \"1\"\ndependencies = [\n \"b\",\n \"d 1.2.0\",\n]\n\n[[package]]\nname = \"b\"\nsource = \"registry\"\n";
    let expected = [("a".to_owned(), ["b".to_owned(), "d".to_owned()].into())].into();
    assert_eq!(locked(lock), expected);
}

#[test]
fn vendor_names_occur_in_profiles_and_tests_only() {
    let mut read_files = 0;
    for file in tracked(&["rs"]) {
        let shown = file.strip_prefix(root()).unwrap().display().to_string();
        // Simulated BMCs are vendors' BMCs; a recipe target and a profile file name a vendor's product; a catalogue has the
        // format of one vendor.
        let catalogues = ["firmware/src/catalogue/", "firmware/src/fuzz.rs"];
        let exempt = ["lab/", "tests/", "fuzz/", "redfish/src/profile", "iso9660/", "registry/"];
        let exempt = exempt.into_iter().chain(catalogues).collect::<Vec<_>>();
        if exempt.iter().any(|folder| shown.starts_with(folder)) {
            continue;
        }
        read_files += 1;
        for word in vendor_words(&product_code(&file)) {
            let known_target = shown.starts_with("recipe/") && word == "supermicro";
            assert!(known_target, "{shown} names {word}");
        }
    }
    assert!(read_files > 200, "only {read_files} files were read");
}

/// Code that starts another program, or asks whose rights it has.
fn needs_more_than_files(code: &str) -> bool {
    ["process::Command", "Command::new(", "posix_spawn", "fn exec", "geteuid", "setuid", "mount("]
        .iter()
        .any(|word| code.contains(word))
}

/// Images and media are made by an ordinary user on a machine that has nothing but the program.
#[test]
fn what_makes_images_and_media_starts_no_program_and_needs_no_rights() {
    let mut read_files = 0;
    for folder in ["maintenance/src", "iso9660/src", "recipe/src"] {
        for file in tracked(&["rs"]).into_iter().filter(|file| file.starts_with(root().join(folder))) {
            read_files += 1;
            assert!(!needs_more_than_files(&product_code(&file)), "{}", file.display());
        }
    }
    assert!(read_files > 80, "only {read_files} files were read");
    assert!(needs_more_than_files("let out = Command::new(\"xorriso\").output()?;"), "the check cannot fail");
}

/// The vendors named in a piece of code, also inside an identifier such as `DellImport`.
fn vendor_words(code: &str) -> Vec<&'static str> {
    let mut parts = BTreeSet::new();
    for word in code.split(|letter: char| !letter.is_alphanumeric()) {
        let mut part = String::new();
        for letter in word.chars() {
            if letter.is_uppercase() && part.chars().last().is_some_and(char::is_lowercase) {
                parts.insert(std::mem::take(&mut part).to_ascii_lowercase());
            }
            part.push(letter);
        }
        parts.insert(part.to_ascii_lowercase());
        parts.insert(word.to_ascii_lowercase());
    }
    VENDORS.into_iter().filter(|vendor| parts.contains(*vendor)).collect()
}

#[test]
fn a_vendor_inside_an_identifier_is_noticed() {
    assert_eq!(vendor_words("BootVia::DellScp, oem_hpe, MediaMethod::SmcCfgCd"), ["dell", "hpe", "smc"]);
    assert!(vendor_words("silo, pilot, Exchange").is_empty());
}
