//! xorriso (libisofs) extracts all trees in one process, because starting a process is most of the cost.

use std::path::Path;

use iso9660::Namespace;

use super::{Subject, normal};
use crate::listing::{self, Item, Listing};
use crate::program;

/// Returns the trees of an image, as extracted.
pub(super) fn shows(subject: &Subject<'_>) -> Vec<(Namespace, Result<Listing, String>)> {
    let directory = tempfile::tempdir().unwrap();
    let image = subject.path.to_str().unwrap();
    let mut arguments: Vec<String> =
        ["-abort_on", "WARNING", "-return_with", "WARNING", "32", "-osirrox", "on:auto_chmod_on"]
            .map(str::to_owned)
            .into();
    for (index, (namespace, _)) in subject.trees.iter().enumerate() {
        let view = match namespace {
            Namespace::RockRidge => "nojoliet",
            Namespace::Joliet => "norock",
            Namespace::Plain => "ecma119",
            Namespace::Udf => unreachable!("no image of ours has UDF"),
        };
        let target = directory.path().join(index.to_string());
        arguments.extend(["-read_fs", view, "-indev", image, "-extract", "/"].map(str::to_owned));
        arguments.push(target.to_str().unwrap().to_owned());
    }
    arguments.extend(["-check_media", "use=indev", "--"].map(str::to_owned));
    let outcome = program::run("xorriso", arguments);
    let listing = |index: usize, namespace| {
        // The exit code reports a bad tree, without telling which one.
        outcome.clone().map(|_| normal(namespace, tree(&directory.path().join(index.to_string()), namespace)))
    };
    subject
        .trees
        .iter()
        .enumerate()
        .map(|(index, (namespace, _))| (*namespace, listing(index, *namespace)))
        .collect()
}

fn tree(root: &Path, namespace: Namespace) -> Listing {
    // An empty image creates no directory.
    let found = if root.exists() { listing::of_directory(root) } else { Listing::default() };
    // Without Rock Ridge xorriso invents modes.
    let mode = |item: Item| Item { mode: item.mode.filter(|_| namespace == Namespace::RockRidge), ..item };
    Listing(found.0.into_iter().map(mode).collect())
}
