//! A crate without examples in its documents starts no rustdoc, and one with examples runs them.

use crate::readmes::{code_of, members};
use crate::sources::read;

/// What opens an example that rustdoc compiles, behind the three backticks.
const EXAMPLES: [&str; 6] = ["", "rust", "no_run", "should_panic", "compile_fail", "ignore"];

/// Whether a code has an example in the documents of its items.
fn has_example(code: &str) -> bool {
    let mut inside = false;
    code.lines().any(|line| {
        let line = line.trim_start();
        let text = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        let Some(label) = text.and_then(|text| text.trim().strip_prefix("```")) else { return false };
        inside = !inside;
        inside && EXAMPLES.contains(&label.split(',').next().unwrap_or_default())
    })
}

#[test]
fn a_crate_runs_its_examples_and_one_without_examples_starts_no_rustdoc() {
    let mut with = 0;
    for folder in members() {
        if !folder.join("src/lib.rs").exists() {
            continue;
        }
        let is_off = read(&folder.join("Cargo.toml")).contains("\ndoctest = false\n");
        let mut code = code_of(&folder);
        if code.contains("include_str!(\"../README.md\")") {
            let readme = read(&folder.join("README.md"));
            code.extend(readme.lines().map(|line| format!("//! {line}\n")));
        }
        let has = has_example(&code);
        assert_eq!(has, !is_off, "{}: examples {has}, doctest = false {is_off}", folder.display());
        with += usize::from(has);
    }
    assert!(with >= 3, "{with} crates with examples: the check does not see them");
}

#[test]
fn an_example_is_not_taken_for_a_picture() {
    assert!(has_example("/// ```\n/// let one = 1;\n/// ```\nfn one() {}"));
    assert!(has_example("//! ```text\n//! a --> b\n//! ```\n//!\n//! ```no_run\n//! ```\n"));
    assert!(!has_example("//! ```text\n//! a --> b\n//! ```\n"));
}
