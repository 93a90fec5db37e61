//! bsdtar (libarchive) extracts each tree.

use iso9660::Namespace;

use super::{Subject, normal};
use crate::listing::{self, Item, Listing};
use crate::program;

/// Returns a tree of an image, as extracted.
pub(super) fn shows(subject: &Subject<'_>, namespace: Namespace) -> Result<Listing, String> {
    let directory = tempfile::tempdir().unwrap();
    let options = match namespace {
        Namespace::RockRidge => "iso9660:!joliet",
        Namespace::Joliet => "iso9660:!rockridge",
        Namespace::Plain => "iso9660:!joliet,iso9660:!rockridge",
        Namespace::Udf => unreachable!("no image of ours has UDF"),
    };
    let target = directory.path().to_str().unwrap();
    // -P: bsdtar otherwise removes a backslash at the beginning of a name.
    program::run("bsdtar", ["--options", options, "-xpPf", subject.path.to_str().unwrap(), "-C", target])?;
    let found = listing::of_directory(directory.path());
    // Without Rock Ridge bsdtar invents modes.
    let mode = |item: Item| Item { mode: item.mode.filter(|_| namespace == Namespace::RockRidge), ..item };
    Ok(normal(namespace, Listing(found.0.into_iter().map(mode).collect())))
}
