//! 7z extracts the tree it prefers.
//!
//! Known to be wrong in 26.02, and expected so here:
//! - Names that Rock Ridge continues outside of their records are not seen: see [`super::without_continuations`].
//! - A Rock Ridge name of a file loses a `;1` at its end.

use iso9660::Namespace;

use super::{Subject, normal, without_continuations};
use crate::listing::{self, Item, Listing};
use crate::program;

/// The tree it shows.
pub(super) fn tree(subject: &Subject<'_>) -> Namespace {
    subject.first_of([Namespace::Joliet, Namespace::RockRidge, Namespace::Plain]).0
}

/// What it must show of that tree.
pub(super) fn expected(subject: &Subject<'_>) -> Listing {
    match tree(subject) {
        Namespace::RockRidge => {
            let shown = without_continuations(subject, |identifier| {
                identifier.trim_end_matches(";1").trim_end_matches('.').to_owned()
            });
            shown.rename(|path| Some(path.strip_suffix(";1").unwrap_or(path).to_owned()))
        }
        namespace => subject.tree(namespace).clone(),
    }
}

/// That tree, as extracted.
pub(super) fn shows(subject: &Subject<'_>) -> Result<Listing, String> {
    let directory = tempfile::tempdir().unwrap();
    let target = format!("-o{}", directory.path().display());
    let said = program::run("7z", ["x", "-y", &target, subject.path.to_str().unwrap()])?;
    let said = String::from_utf8_lossy(&said);
    if !said.contains("Everything is Ok") || said.to_lowercase().contains("warning") {
        return Err(said.into_owned());
    }
    // What the boot catalog leads to is shown as files of its own.
    let found = listing::of_directory(directory.path()).only(|item| !item.path.starts_with("[BOOT]"));
    // It sets no modes.
    let found = Listing(found.0.into_iter().map(|item| Item { mode: None, ..item }).collect());
    Ok(normal(tree(subject), found))
}
