//! 7z lists and extracts the tree that it prefers.
//!
//! Known faults of version 26.02, expected here:
//! - Names that continue outside of their records are ignored: see [`super::without_continuations`].
//! - A Rock Ridge name of a file loses a `;1` at its end.
//! - The content of a relocated directory stays in `rr_moved`.
//! - A target of a link that ends in `.` or `..` is shown with a `/` at its end.

use std::collections::HashMap;

use iso9660::Namespace;

use super::{Subject, normal, unmoved, without_continuations};
use crate::listing::{self, Item, Kind, Listing};
use crate::program;

/// Returns the tree that 7z shows.
pub(super) fn tree(subject: &Subject<'_>) -> Namespace {
    subject.first_of([Namespace::Joliet, Namespace::RockRidge, Namespace::Plain]).0
}

/// Returns the expected listing of that tree.
pub(super) fn expected(subject: &Subject<'_>) -> Listing {
    match tree(subject) {
        Namespace::RockRidge => {
            let shown = without_continuations(subject, |identifier| {
                identifier.trim_end_matches(";1").trim_end_matches('.').to_owned()
            });
            let shown = unmoved(&shown, &Kind::file(b""));
            shown.rename(|path| Some(path.strip_suffix(";1").unwrap_or(path).to_owned()))
        }
        namespace => subject.tree(namespace).clone(),
    }
}

/// Returns that tree as listed; the content of a file is that of the extracted file.
pub(super) fn shows(subject: &Subject<'_>) -> Result<Listing, String> {
    let image = subject.path.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let target = format!("-o{}", directory.path().display());
    let extraction = program::output("7z", ["x", "-y", &target, image]);
    let printed = String::from_utf8_lossy(&extraction.stderr);
    // 7z does not create links that point out of the directory, and reports an error for each.
    let complaint = printed
        .lines()
        .find(|line| line.starts_with("ERROR") && !line.contains("Dangerous link path was ignored"));
    if let Some(complaint) = complaint {
        return Err(complaint.to_owned());
    }
    let extracted = listing::of_directory(directory.path());
    let extracted: HashMap<&str, &Kind> =
        extracted.0.iter().map(|item| (item.path.as_str(), &item.kind)).collect();

    let text = program::run("7z", ["l", "-slt", image])?;
    let text = String::from_utf8_lossy(&text);
    let entries = text.split_once("\n----------\n").map_or("", |(_, entries)| entries);
    let mut items = Vec::new();
    for entry in entries.split("\n\n") {
        let field = |name: &str| entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        let Some(path) = field("Path") else { continue };
        // El Torito images are shown as separate files.
        if path.starts_with("[BOOT]") {
            continue;
        }
        let kind = match (field("Folder"), field("Symbolic Link").filter(|target| !target.is_empty())) {
            (Some("+"), _) => Kind::Directory,
            (_, Some(target)) => Kind::Symlink(target.trim_end_matches('/').to_owned()),
            _ => match extracted.get(path) {
                Some(kind @ Kind::File { len, .. }) if Some(len.to_string().as_str()) == field("Size") => {
                    (*kind).clone()
                }
                found => return Err(format!("7z lists {entry:?}, but extracts {found:?}")),
            },
        };
        items.push(Item::new(path, kind));
    }
    Ok(normal(tree(subject), Listing(items)))
}
