//! Programs that read images, with their views.
//!
//! ```text
//! program      trees                            content from
//! xorriso      Rock Ridge | Joliet | plain      extraction of everything
//! bsdtar       Rock Ridge | Joliet | plain      extraction of everything
//! isoinfo      Rock Ridge | Joliet | plain      the extents it lists; isoinfo -x for a few files of each tree
//! iso-info     Rock Ridge | Joliet | plain      the extents it lists; iso-read -e for a few files
//! pycdlib      Rock Ridge | Joliet | plain      every file, by path
//! 7z           the best of Joliet > RR > plain  extraction of everything
//! isovfy       plain                            no content: it looks for overlaps
//! ```

mod bsdtar;
pub(crate) mod isoinfo;
mod libcdio;
pub(crate) mod pycdlib;
mod seven_zip;
mod xorriso;

use std::collections::BTreeMap;
use std::path::Path;

use iso9660::{Image, Namespace, ReadLimits};

use crate::generate::Random;
use crate::listing::{Item, Kind, Listing};
use crate::ours;
use crate::program;
use pycdlib::Worker;

/// An image on disk with its expected contents.
pub(crate) struct Subject<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: &'a [u8],
    /// The trees of the image with their expected listings.
    pub(crate) trees: Vec<(Namespace, Listing)>,
}

impl Subject<'_> {
    /// Returns the expected listing of a tree of the image.
    fn tree(&self, namespace: Namespace) -> &Listing {
        self.first_of([namespace; 3]).1
    }

    /// Returns the first tree of `preferred` that the image has, and its expected listing.
    fn first_of(&self, preferred: [Namespace; 3]) -> (Namespace, &Listing) {
        let found = preferred.into_iter().find_map(|want| self.trees.iter().find(|(have, _)| *have == want));
        let (namespace, listing) = found.expect("every image has a plain tree");
        (*namespace, listing)
    }

    /// Returns whether Rock Ridge shows relocated directories: those on the ninth level.
    fn relocated(&self) -> bool {
        let deep = |item: &Item| item.kind == Kind::Directory && item.path.matches('/').count() >= 7;
        self.tree(Namespace::RockRidge).0.iter().any(deep)
    }

    /// Returns the content of an extent of the image.
    fn extent(&self, sector: u64, len: u64) -> Result<Kind, String> {
        let start = usize::try_from(sector * iso9660::SECTOR_SIZE).unwrap();
        let bytes = self.bytes.get(start..start + usize::try_from(len).unwrap());
        bytes.map(Kind::file).ok_or_else(|| format!("{len} bytes in sector {sector} are not in the image"))
    }
}

/// A difference between the view of a program and the expected tree.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) program: &'static str,
    /// The tree, or `None` when the program does not report one tree only.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) message: String,
}

/// Returns all differences that any program finds. An empty list means that all programs agree with this crate.
pub(crate) fn disagreements(subject: &Subject<'_>, worker: &mut Worker, random: &mut Random) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut record = |program, namespace, outcome: Result<(), String>| {
        findings.extend(outcome.err().map(|message| Finding { program, namespace, message }));
    };
    for (namespace, expected) in &subject.trees {
        let (tree, namespace) = (Some(*namespace), *namespace);
        record("this crate", tree, ours_shows(subject, namespace).and_then(|found| found.against(expected)));
        let isoinfo = isoinfo::shows(subject, namespace)
            .and_then(|found| found.against(&isoinfo::expected(namespace, expected)));
        record("isoinfo", tree, isoinfo);
        record("isoinfo -x", tree, isoinfo::extracts(subject, namespace, random));
        record("bsdtar", tree, bsdtar::shows(subject, namespace).and_then(|found| found.against(expected)));
    }
    for (namespace, outcome) in xorriso::shows(subject) {
        record("xorriso", Some(namespace), outcome.and_then(|found| found.against(subject.tree(namespace))));
    }
    for (namespace, outcome) in libcdio::shows(subject) {
        let expected = libcdio::expected(subject, namespace);
        let outcome =
            outcome.and_then(|found| match namespace == Namespace::RockRidge && subject.relocated() {
                true => found.contents().against(&expected.contents()),
                false => found.against(&expected),
            });
        record("iso-info", Some(namespace), outcome);
    }
    record("iso-read", None, libcdio::extracts(subject, random));
    match worker.read(subject.path) {
        Ok(found) => {
            for (namespace, listing) in found {
                record("pycdlib", Some(namespace), listing.against(subject.tree(namespace)));
            }
        }
        Err(message) => record("pycdlib", None, Err(message)),
    }
    let outcome = seven_zip::shows(subject).and_then(|found| found.against(&seven_zip::expected(subject)));
    record("7z", Some(seven_zip::tree(subject)), outcome);
    record("isovfy", None, isovfy(subject.path));
    findings
}

fn ours_shows(subject: &Subject<'_>, namespace: Namespace) -> Result<Listing, String> {
    let image = Image::open_with(subject.bytes, Some(namespace), ReadLimits::default());
    ours::listing(&image.map_err(|error| error.to_string())?)
}

fn isovfy(image: &Path) -> Result<(), String> {
    let message = String::from_utf8_lossy(&program::run("isovfy", [image])?).into_owned();
    if message.contains("No errors found") { Ok(()) } else { Err(message) }
}

/// Converts a plain name to the form of this crate's reader: lower case, without version and without a dot at the end.
pub(crate) fn plain_path(path: &str) -> String {
    let component = |name: &str| {
        let name = match name.rsplit_once(';') {
            Some((stem, version))
                if !stem.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                stem
            }
            _ => name,
        };
        name.strip_suffix('.').unwrap_or(name).to_lowercase()
    };
    path.split('/').map(component).collect::<Vec<_>>().join("/")
}

/// Returns the listing in the form that is compared for a namespace.
fn normal(namespace: Namespace, listing: Listing) -> Listing {
    match namespace {
        Namespace::Plain => listing.rename(|path| Some(plain_path(path))),
        Namespace::RockRidge | Namespace::Joliet | Namespace::Udf => listing,
    }
}

/// Returns the Rock Ridge tree in the view of a program that ignores continuations: an entry with its name there has
/// its identifier instead, in the form of `render`.
fn without_continuations(subject: &Subject<'_>, render: impl Fn(&str) -> String) -> Listing {
    // The fixed part of a record, PX, TF, and the NM header.
    const FIXED: usize = 33 + 44 + 12 + 5;
    const RECORD: usize = 254;
    let paths = |namespace| {
        let image = Image::open_with(subject.bytes, Some(namespace), ReadLimits::default());
        ours::listing(&image.unwrap()).unwrap().0
    };
    if subject.relocated() {
        // The names are short: see `Made::new`.
        return subject.tree(Namespace::RockRidge).clone();
    }
    // Both walks read the same records, so their entries come in pairs.
    let pairs = paths(Namespace::RockRidge).into_iter().zip(paths(Namespace::Plain));
    let shown: BTreeMap<String, String> = pairs
        .map(|(posix, plain)| {
            let (_, name) = split(&posix.path);
            let mut identifier = split(&plain.path).1.to_uppercase();
            if posix.kind != Kind::Directory {
                identifier += if identifier.contains('.') { ";1" } else { ".;1" };
            }
            let fits = FIXED + (identifier.len() | 1) + name.len() <= RECORD;
            let shown = if fits { name.to_owned() } else { render(&identifier) };
            (posix.path, shown)
        })
        .collect();
    let rename = |path: &str| {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        // A path that the reader does not show is another fault, which is found elsewhere.
        ends.map(|end| shown.get(&path[..end]).map(String::as_str))
            .collect::<Option<Vec<_>>>()
            .map_or(Some(path.to_owned()), |names| Some(names.join("/")))
    };
    subject.tree(Namespace::RockRidge).clone().rename(rename)
}

/// Returns the Rock Ridge tree in the view of a program that ignores relocation (on the ninth level): directories are
/// complete below `rr_moved`, and a placeholder is in the original place.
fn unmoved(listing: &Listing, placeholder: &Kind) -> Listing {
    let mut items = Vec::new();
    for item in &listing.0 {
        let Some((end, _)) = item.path.match_indices('/').nth(6) else {
            items.push(item.clone());
            continue;
        };
        let below = Item { path: format!("rr_moved/{}", &item.path[end + 1..]), ..item.clone() };
        match item.path[end + 1..].contains('/') {
            true => items.push(below),
            false if item.kind == Kind::Directory => {
                items.extend([Item { kind: placeholder.clone(), ..item.clone() }, below]);
            }
            false => items.push(item.clone()),
        }
    }
    if items.len() > listing.0.len() {
        items.push(Item::new("rr_moved", Kind::Directory));
    }
    Listing(items)
}

/// Splits a path into directory and name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
