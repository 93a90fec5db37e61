//! Circles among the files of a crate: files that use each other, directly or through others. A file outside of a circle can
//! be read after the files that it uses; the files of a circle can only be read together.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{Modules, Uses};
use crate::sources::{root, tracked};

/// The groups of files that use each other, each sorted, and all sorted.
fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in uses.keys() {
        next.entry(from).or_default().insert(to);
    }
    let reachable: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|start| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*start]);
            while let Some(file) = open.pop() {
                open.extend(next.get(file).into_iter().flatten().filter(|file| seen.insert(**file)));
            }
            (*start, seen)
        })
        .collect();
    let reaches = |from: &str, to: &str| reachable.get(from).is_some_and(|files| files.contains(to));
    let groups: BTreeSet<Vec<String>> = reachable
        .iter()
        .map(|(start, files)| {
            files
                .iter()
                .filter(|file| reaches(file, start))
                .map(|file| (*file).to_owned())
                .collect::<Vec<_>>()
        })
        .filter(|group| group.len() > 1)
        .collect();
    groups.into_iter().collect()
}

/// A circle with the names that tie its files.
fn shown(circle: &[String], uses: &Uses) -> String {
    let mut text = format!("{} files: {}", circle.len(), circle.join(", "));
    for ((from, to), names) in
        uses.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to))
    {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text.push_str(&format!("\n    {from} -> {to}: {}", names.join(", ")));
    }
    text
}

/// Every use of a file by another file of its crate, in all crates of the workspace.
fn uses_of_the_workspace() -> Uses {
    let manifests = tracked(&["toml"]).into_iter().filter(|file| file.ends_with("Cargo.toml"));
    let folders = manifests.map(|manifest| manifest.parent().unwrap().join("src"));
    let roots = folders
        .flat_map(|folder| [folder.join("lib.rs"), folder.join("main.rs")])
        .filter(|file| file.exists());
    let (mut crates, mut uses) = (0, Uses::new());
    for root_file in roots {
        crates += 1;
        uses.extend(Modules::of_crate(&root_file).uses());
    }
    assert!(
        crates > 10 && uses.len() > 1000,
        "{crates} crates, {} uses: {} is not what this test reads",
        uses.len(),
        root().display()
    );
    uses
}

/// The circles that stay: opening one would cut one thing into two.
const NATURAL: [&[&str]; 9] = [
    // The commands of a job have its verbs, and a retry follows the job that it made as `job watch` does.
    &["client/src/job.rs", "client/src/job_verbs.rs"],
    // A setting is defined with the parser of its kind of value, and a parser reports the kind in its errors.
    &["settings/src/definition.rs", "settings/src/values.rs"],
    // Settings are loaded by the table, the table makes the settings from what was loaded, the rules compare what was loaded.
    &["settings/src/load.rs", "settings/src/rules.rs", "settings/src/table.rs"],
    // One transaction: a commit creates children, sends signals and releases locks; each of these changes other runs.
    &["store/src/commit.rs", "store/src/create.rs", "store/src/locks.rs", "store/src/signals.rs"],
    // The extents of a volume are checked against its descriptors, and descriptors record the extents that they use.
    &["iso9660/src/check/descriptors.rs", "iso9660/src/check/extents.rs"],
    // Rock Ridge entries are stored inside of SUSP, and SUSP names the extensions that it carries.
    &["iso9660/src/check/rock_ridge.rs", "iso9660/src/check/susp.rs"],
    // The layout is measured by the renderer that later emits it, so that size and bytes cannot differ.
    &["iso9660/src/plan/emit.rs", "iso9660/src/plan/hybrid.rs", "iso9660/src/plan/layout.rs"],
    // A scan makes a tree, and the content of a file in a tree can be a scanned file.
    &["iso9660/src/scan.rs", "iso9660/src/tree.rs"],
    // The authority offers its endpoint, and the endpoint asks the authority.
    &["registry/src/access/token_authority.rs", "registry/src/access/token_endpoint.rs"],
];

#[test]
fn files_use_each_other_only_where_it_is_listed() {
    let uses = uses_of_the_workspace();
    let found = circles(&uses);
    let natural: Vec<Vec<String>> =
        NATURAL.iter().map(|files| files.iter().map(|&file| file.to_owned()).collect()).collect();
    let new = found.iter().filter(|circle| !natural.contains(circle)).map(|circle| {
        format!(
            "a circle of {}\nmove what is named into a file of its own, or list the circle with its reason",
            shown(circle, &uses)
        )
    });
    let gone = natural.iter().filter(|circle| !found.contains(circle)).map(|circle| {
        let rest = shown(circle, &uses);
        format!(
            "listed, and no longer a circle of exactly these {rest}\nremove or correct its line in the list"
        )
    });
    let wrong: Vec<String> = new.chain(gone).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The uses in a crate of these files, by path and text. `lib.rs` is its root.
fn uses_of(files: &[(&str, &str)]) -> Uses {
    let mut modules = Modules::default();
    for (file, code) in files {
        let module: Vec<String> = file
            .trim_end_matches(".rs")
            .split('/')
            .filter(|word| !["lib", "mod"].contains(word))
            .map(str::to_owned)
            .collect();
        modules.add_text(file, code, &module);
    }
    modules.uses()
}

#[test]
fn a_circle_is_noticed_with_the_names_that_tie_it() {
    let uses = uses_of(&[
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use crate::b::{self, inner::B}; pub struct A(B); fn f() { b::g() }"),
        ("b.rs", "use super::c; pub mod inner { pub struct B; } pub fn g() { c::h::<u8>(1) }"),
        ("c.rs", "use crate::A as First; pub fn h<T>(_: T) -> First { loop {} }"),
    ]);
    let found = circles(&uses);
    assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
    let text = shown(&found[0], &uses);
    for tie in ["a.rs -> b.rs: B, g", "b.rs -> c.rs: h", "c.rs -> a.rs: A"] {
        assert!(text.contains(tie), "{text}");
    }
}

#[test]
fn a_folder_uses_what_its_root_file_defines_and_not_what_it_passes_on() {
    let uses = uses_of(&[
        ("lib.rs", "mod x; mod y;"),
        ("x/mod.rs", "mod z; pub use z::Z; use crate::y::Y; pub struct Own(Y, Z);"),
        ("x/z.rs", "use super::Own; pub struct Z; fn f(_: Own) {}"),
        ("y.rs", "use crate::x::Z; pub struct Y(Z);"),
    ]);
    let used: Vec<(&str, &str)> = uses.keys().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    assert_eq!(used, [("x/mod.rs", "y.rs"), ("x/z.rs", "x/mod.rs"), ("y.rs", "x/z.rs")]);
    assert_eq!(circles(&uses), [["x/mod.rs", "x/z.rs", "y.rs"]]);
}

#[test]
fn names_through_globs_inline_modules_and_functions_are_followed() {
    let uses = uses_of(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::*; mod deep { use super::super::c::C as D; fn f(_: D) {} } fn g(_: B) {}"),
        ("b.rs", "pub struct B; pub struct Unused; fn f() { use crate::c; c::make!(); }"),
        (
            "c.rs",
            "macro_rules! make { () => {} } pub struct C; fn text() -> &'static str { \"crate::a::f\" }",
        ),
    ]);
    let expected = [("a.rs", "b.rs", "B"), ("a.rs", "c.rs", "C"), ("b.rs", "c.rs", "make")];
    let found: Vec<(&str, &str, &str)> = uses
        .iter()
        .flat_map(|((from, to), names)| {
            names.iter().map(move |name| (from.as_str(), to.as_str(), name.as_str()))
        })
        .collect();
    assert_eq!(found, expected);
}
