//! iso-info and iso-read (libcdio). Their exit codes and headers have no meaning; their listings and extracted files
//! are compared.
//!
//! The trees: iso-info shows Joliet without `--no-joliet`, then Rock Ridge if there is one, even with
//! `--no-rock-ridge`; iso-read does not support Joliet.
//!
//! Known faults of version 2.1.0, expected here:
//! - A Joliet name is truncated to as many bytes of UTF-8 as its identifier has in UCS-2.
//! - The content of a relocated directory is listed in both places or in the wrong one, and iso-read does not find it:
//!   the contents of such a tree are compared without names.
//! - Names that continue outside of their records are ignored: see [`super::without_continuations`].

use iso9660::Namespace;

use super::{Subject, isoinfo, normal, without_continuations};
use crate::generate::Random;
use crate::listing::{Item, Kind, Listing};
use crate::program;

/// The number of files that are extracted by path.
const EXTRACTED: usize = 2;

/// Returns the expected listing of iso-info.
pub(super) fn expected(subject: &Subject<'_>, namespace: Namespace) -> Listing {
    let listing = subject.tree(namespace);
    match namespace {
        Namespace::RockRidge => without_continuations(subject, str::to_owned),
        Namespace::Joliet => listing.clone().rename(|path| Some(cut(path))),
        Namespace::Plain | Namespace::Udf => listing.clone(),
    }
}

fn cut(path: &str) -> String {
    let component = |name: &str| {
        let length = name.len().min(2 * name.encode_utf16().count());
        String::from_utf8_lossy(&name.as_bytes()[..length]).into_owned()
    };
    path.split('/').map(component).collect::<Vec<_>>().join("/")
}

/// Returns the trees of an image as listed; the content of a file is that of the listed extent.
pub(super) fn shows(subject: &Subject<'_>) -> Vec<(Namespace, Result<Listing, String>)> {
    let default = [Namespace::Joliet, Namespace::RockRidge, Namespace::Plain];
    let no_joliet = [Namespace::RockRidge, Namespace::Plain, Namespace::Plain];
    [(default, None), (no_joliet, Some("--no-joliet"))]
        .into_iter()
        .map(|(preferred, flag)| {
            let namespace = subject.first_of(preferred).0;
            (namespace, list(subject, flag).map(|listing| normal(namespace, listing)))
        })
        .collect()
}

fn list(subject: &Subject<'_>, flag: Option<&str>) -> Result<Listing, String> {
    let arguments = ["-q", "--no-header", "-l", "-i", subject.path.to_str().unwrap()];
    let output = program::output("iso-info", arguments.into_iter().chain(flag));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut directory = None;
    let mut items = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix('/').and_then(|line| line.strip_suffix(':')) {
            directory = Some(path.to_owned());
            continue;
        }
        // Everything before the root is a header.
        let Some(directory) = directory.as_ref().filter(|_| line.starts_with("  ")) else { continue };
        let item = entry(subject, directory, line);
        items.extend(item.map_err(|error| format!("iso-info printed {line:?}: {error}"))?);
    }
    match directory {
        Some(_) => Ok(Listing(items)),
        None => Err(format!("iso-info lists nothing: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Parses `  -r--r--r--   1 0 0 [LSN     36]         3 Nov 20 2026 11:07:12  name`, or one letter for the first four
/// fields.
fn entry(subject: &Subject<'_>, directory: &str, line: &str) -> Result<Option<Item>, String> {
    let (attributes, rest) = line.split_once(" [LSN ").ok_or("no extent")?;
    let (sector, rest) = rest.split_once(']').ok_or("no end of the extent")?;
    // The date is the next field of a fixed form: `Nov 20 2026 11:07:12  `.
    let rest = rest.trim_start();
    let (size, rest) = rest.split_once(' ').ok_or("no size")?;
    let name = rest.get(22..).ok_or("no name")?;
    if matches!(name, "." | "..") {
        return Ok(None);
    }
    let number = |text: &str| text.trim().parse::<u64>().map_err(|error| error.to_string());
    let (sector, size) = (number(sector)?, number(size)?);
    let attributes = attributes.trim_start();
    let (kind, name) = match (attributes.chars().next(), name.split_once(" -> ")) {
        (Some('d'), _) => (Kind::Directory, name),
        (Some('l'), Some((name, target))) => (Kind::Symlink(target.to_owned()), name),
        (Some('-'), _) if size == 0 => (Kind::file(b""), name),
        (Some('-'), _) => (subject.extent(sector, size)?, name),
        _ => return Err("neither a directory, nor a file, nor a link".to_owned()),
    };
    let mode = attributes.get(1..10).and_then(isoinfo::permissions);
    Ok(Some(Item { mode, ..Item::new(format!("{directory}{name}"), kind) }))
}

/// Extracts a few files by path.
pub(super) fn extracts(subject: &Subject<'_>, random: &mut Random) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("out");
    let namespace = subject.first_of([Namespace::RockRidge, Namespace::Plain, Namespace::Plain]).0;
    let expected = expected(subject, namespace);
    let found = |item: &&Item| matches!(item.kind, Kind::File { .. }) && item.path.matches('/').count() < 8;
    let files: Vec<&Item> = expected.0.iter().filter(found).collect();
    for _ in 0..EXTRACTED.min(files.len()) {
        let item = files[random.below(files.len())];
        let arguments = ["--no-header", "-i", subject.path.to_str().unwrap(), "-e", &item.path];
        let printed =
            program::output("iso-read", arguments.into_iter().chain(["-o", target.to_str().unwrap()]));
        let found = std::fs::read(&target).map(|bytes| Kind::file(&bytes));
        if !matches!(&found, Ok(kind) if *kind == item.kind) {
            let printed = String::from_utf8_lossy(&printed.stderr);
            return Err(format!("iso-read -e {:?} returned {found:?} and printed {printed:?}", item.path));
        }
        std::fs::remove_file(&target).unwrap();
    }
    Ok(())
}
