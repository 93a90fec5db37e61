//! The rules of the house, read from the files themselves: which crate may use which, how long a file may be, which words
//! are refused, and that every link of the documents leads somewhere.
//!
//! Each rule comes with a test that shows it can fail.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod circles;
mod components;
mod crates;
mod doctests;
mod documents;
mod events;
mod glossary;
mod imports;
mod language;
mod readmes;
mod seeds;
mod sources;
mod troubleshooting;
mod types;

/// Lines that a person can read in one sitting.
const LONGEST: usize = 700;

#[test]
fn no_file_is_too_long_to_read_in_one_sitting() {
    let files = sources::tracked(&["rs"]);
    assert!(files.len() > 400, "{} files: the tree is not where this test looks", files.len());
    for file in files {
        let lines = sources::read(&file).lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines; find the seam", file.display());
    }
}
