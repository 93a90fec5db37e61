//! isoinfo (genisoimage) lists each tree with extents, and extracts by path.
//!
//! Known faults of version 1.1.11, expected here:
//! - Joliet names are printed in Latin-1, with `_` for other characters.
//! - The content of a relocated directory stays in `rr_moved`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use iso9660::Namespace;

use super::{Subject, normal, unmoved};
use crate::generate::Random;
use crate::listing::{Item, Kind, Listing};
use crate::program;

/// The number of files of each tree that are extracted by path.
const EXTRACTED: usize = 2;

/// Returns the expected listing of a tree.
pub(super) fn expected(namespace: Namespace, listing: &Listing) -> Listing {
    match namespace {
        Namespace::Joliet => listing.clone().rename(|path| Some(latin1(path))),
        Namespace::RockRidge => unmoved(listing, &Kind::Directory),
        Namespace::Plain | Namespace::Udf => listing.clone(),
    }
}

fn latin1(path: &str) -> String {
    path.chars().map(|character| if character > '\u{ff}' { '_' } else { character }).collect()
}

fn flags(namespace: Namespace) -> &'static [&'static str] {
    match namespace {
        Namespace::RockRidge => &["-R"],
        Namespace::Joliet => &["-J"],
        Namespace::Plain => &[],
        Namespace::Udf => unreachable!("no image of ours has UDF"),
    }
}

/// Returns a tree of an image as listed; the content of a file is that of the listed extent.
pub(crate) fn shows(subject: &Subject<'_>, namespace: Namespace) -> Result<Listing, String> {
    let arguments: Vec<&OsStr> = flags(namespace).iter().map(OsStr::new).collect();
    let output = program::run(
        "isoinfo",
        arguments.into_iter().chain(["-l".as_ref(), "-i".as_ref(), subject.path.as_os_str()]),
    )?;
    let mut directory = String::new();
    let mut items = Vec::new();
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = decode(namespace, line);
        if let Some(path) = line.strip_prefix("Directory listing of /") {
            directory = path.to_owned();
            continue;
        }
        let item = entry(subject, namespace, &directory, &line);
        items.extend(item.map_err(|error| format!("isoinfo printed {line:?}: {error}"))?);
    }
    Ok(normal(namespace, Listing(items)))
}

fn decode(namespace: Namespace, bytes: &[u8]) -> String {
    match namespace {
        Namespace::Joliet => bytes.iter().copied().map(char::from).collect(),
        Namespace::RockRidge | Namespace::Plain | Namespace::Udf => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

/// Parses `-r--r--r--   1    0    0               3 Nov 20 2026 [     36 00]  name `. `.` and `..` are omitted.
fn entry(
    subject: &Subject<'_>,
    namespace: Namespace,
    directory: &str,
    line: &str,
) -> Result<Option<Item>, String> {
    let (attributes, rest) = line.split_once(" [").ok_or("no extent")?;
    let (extent, name) = rest.split_once("]  ").ok_or("no end of the extent")?;
    let name = name.strip_suffix(' ').unwrap_or(name);
    if matches!(name, "." | "..") {
        return Ok(None);
    }
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()).ok_or("no number");
    let size = number(attributes.split_whitespace().nth(4))?;
    let (kind, name) = match (attributes.chars().next(), name.split_once(" -> ")) {
        (Some('d'), _) => (Kind::Directory, name),
        (Some('l'), Some((name, target))) => (Kind::Symlink(target.to_owned()), name),
        // An empty file has no content, whatever its extent is.
        (Some('-'), _) if size == 0 => (Kind::file(b""), name),
        (Some('-'), _) => (subject.extent(number(extent.split_whitespace().next())?, size)?, name),
        _ => return Err("neither a directory, nor a file, nor a link".to_owned()),
    };
    let mode = (namespace == Namespace::RockRidge).then(|| permissions(&attributes[1..10])).flatten();
    Ok(Some(Item { mode, ..Item::new(format!("{directory}{name}"), kind) }))
}

/// Returns the bits of `r-xr-xr-x`.
pub(super) fn permissions(text: &str) -> Option<u32> {
    (text.len() == 9).then(|| text.bytes().fold(0, |bits, byte| bits << 1 | u32::from(byte != b'-')))
}

/// Extracts a few files of a tree by path.
pub(super) fn extracts(
    subject: &Subject<'_>,
    namespace: Namespace,
    random: &mut Random,
) -> Result<(), String> {
    let files: Vec<Item> = shows(subject, namespace)?.only(|item| matches!(item.kind, Kind::File { .. })).0;
    for _ in 0..EXTRACTED.min(files.len()) {
        let item = &files[random.below(files.len())];
        // Names that differ in lost characters only cannot be requested.
        if files.iter().filter(|other| other.path == item.path).count() > 1 {
            continue;
        }
        let path: OsString = match namespace {
            Namespace::RockRidge => format!("/{}", item.path).into(),
            Namespace::Joliet => {
                OsString::from_vec(format!("/{}", item.path).chars().map(|char| char as u8).collect())
            }
            Namespace::Plain => plain_argument(&item.path),
            Namespace::Udf => unreachable!("no image of ours has UDF"),
        };
        let arguments: Vec<&OsStr> = flags(namespace).iter().map(OsStr::new).collect();
        let image = subject.path.as_os_str();
        let arguments = arguments.into_iter().chain(["-x".as_ref(), path.as_os_str(), "-i".as_ref(), image]);
        let found = Kind::file(&program::run("isoinfo", arguments)?);
        if found != item.kind {
            return Err(format!("-x {path:?} returned a {found:?}, listed is a {:?}", item.kind));
        }
    }
    Ok(())
}

/// Returns the identifiers of a path in lower case: files have a dot and a version.
fn plain_argument(path: &str) -> OsString {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let slash = if directory.is_empty() { "" } else { "/" };
    let dot = if file.contains('.') { "" } else { "." };
    format!("/{directory}{slash}{file}{dot};1").to_uppercase().into()
}
