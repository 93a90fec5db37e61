//! The content of a tree in a form that allows comparing the views of all programs.
//!
//! ```text
//! program's output --parse--> Listing --against--> Listing of the source        equal, or a description of differences
//! ```
//!
//! A listing is a sorted list and not a map: a program that shows two names as one has both in its list. Attributes
//! that a view does not show (`None`) are not compared.

use std::cmp::Ordering;
use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

/// The number of differences in a description.
const TOLD: usize = 4;

#[derive(Clone, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    Directory,
    File { len: u64, hash: [u8; 32] },
    Symlink(String),
}

impl Kind {
    /// Returns the kind of a file with these bytes.
    pub(crate) fn file(bytes: &[u8]) -> Kind {
        Kind::File { len: bytes.len() as u64, hash: Sha256::digest(bytes).into() }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Directory => formatter.write_str("directory"),
            Kind::File { len, hash } => {
                write!(formatter, "file of {len} bytes, {}", hex::encode(&hash[..4]))
            }
            Kind::Symlink(target) => write!(formatter, "link to {target:?}"),
        }
    }
}

/// An entry below the root.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Item {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// The permission bits, where the view shows them.
    pub(crate) mode: Option<u32>,
    /// The modification time in seconds since 1970, where the view shows it.
    pub(crate) modified: Option<i64>,
}

impl Item {
    pub(crate) fn new(path: impl Into<String>, kind: Kind) -> Item {
        Item { path: path.into(), kind, mode: None, modified: None }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Listing(pub(crate) Vec<Item>);

impl Listing {
    /// Returns the listing with other paths; an entry whose path becomes `None` is removed.
    pub(crate) fn rename(self, rule: impl Fn(&str) -> Option<String>) -> Listing {
        let renamed = self.0.into_iter().filter_map(|item| Some(Item { path: rule(&item.path)?, ..item }));
        Listing(renamed.collect())
    }

    /// Returns the listing with the entries that the predicate keeps.
    pub(crate) fn only(self, rule: impl Fn(&Item) -> bool) -> Listing {
        Listing(self.0.into_iter().filter(rule).collect())
    }

    /// Returns the files without their names: the part that a view with other names must show too.
    pub(crate) fn contents(&self) -> Listing {
        let files = self.0.iter().filter(|item| matches!(item.kind, Kind::File { .. }));
        Listing(files.map(|item| Item::new("", item.kind.clone())).collect())
    }

    /// Returns an error with the differences, if there are any.
    pub(crate) fn against(self, expected: &Listing) -> Result<(), String> {
        let (more, missing) = self.difference(expected);
        describe(&more, &missing)
    }

    /// Returns the entries beyond the expected ones, and an error when expected ones are missing.
    pub(crate) fn beyond(self, expected: &Listing) -> Result<Vec<Item>, String> {
        let (more, missing) = self.difference(expected);
        if missing.is_empty() { Ok(more) } else { Err(describe(&more, &missing).unwrap_err()) }
    }

    /// Returns the entries that only this listing has, and those that only the other one has.
    fn difference(mut self, expected: &Listing) -> (Vec<Item>, Vec<Item>) {
        let mut wanted = expected.0.clone();
        self.0.sort();
        wanted.sort();
        let same = |left: &Item, right: &Item| {
            left.path == right.path
                && left.kind == right.kind
                && (left.mode.is_none() || right.mode.is_none() || left.mode == right.mode)
                && (left.modified.is_none() || right.modified.is_none() || left.modified == right.modified)
        };
        // Both lists are sorted by path and kind, so a merge finds the entries without a partner.
        let (mut found, mut wanted) = (self.0.into_iter().peekable(), wanted.into_iter().peekable());
        let (mut more, mut missing) = (Vec::new(), Vec::new());
        loop {
            let order = match (found.peek(), wanted.peek()) {
                (None, None) => return (more, missing),
                (Some(left), Some(right)) if same(left, right) => {
                    found.next();
                    wanted.next();
                    continue;
                }
                (Some(left), Some(right)) => (&left.path, &left.kind).cmp(&(&right.path, &right.kind)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
            };
            if order.is_le() {
                more.extend(found.next());
            }
            if order.is_ge() {
                missing.extend(wanted.next());
            }
        }
    }
}

/// Returns a description of the differences, if there are any.
fn describe(more: &[Item], missing: &[Item]) -> Result<(), String> {
    if more.is_empty() && missing.is_empty() {
        return Ok(());
    }
    let some = |items: &[Item]| {
        items.iter().take(TOLD).map(|item| format!("{item:?}")).collect::<Vec<_>>().join("; ")
    };
    Err(format!("{} unexpected: {}; {} missing: {}", more.len(), some(more), missing.len(), some(missing)))
}

/// Returns everything below a directory that a program has filled. Makes the directories writable, so they can be
/// deleted.
pub(crate) fn of_directory(root: &Path) -> Listing {
    let mut items = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let kind = if metadata.is_symlink() {
                Kind::Symlink(fs::read_link(&path).unwrap().to_str().unwrap().to_owned())
            } else if metadata.is_dir() {
                Kind::Directory
            } else {
                Kind::file(&fs::read(&path).unwrap())
            };
            let name = path.strip_prefix(root).unwrap().to_str();
            let name = name.unwrap_or_else(|| panic!("{} is not UTF-8", path.display())).to_owned();
            let (mode, modified) = (Some(metadata.mode() & 0o7777), Some(metadata.mtime()));
            if kind == Kind::Directory {
                left.push(path);
            }
            items.push(Item { path: name, kind, mode, modified });
        }
    }
    Listing(items)
}

#[test]
fn a_difference_in_any_attribute_is_reported() {
    let item = |path: &str, bytes: &[u8]| Item {
        mode: Some(0o444),
        modified: Some(7),
        ..Item::new(path, Kind::file(bytes))
    };
    let good = Listing(vec![item("a", b"1"), item("a", b"2"), item("b", b"3")]);
    assert_eq!(Listing(good.0.iter().rev().cloned().collect()).against(&good), Ok(()));
    for wrong in [
        vec![item("a", b"1"), item("b", b"3")],
        vec![item("a", b"1"), item("a", b"1"), item("b", b"3")],
        vec![item("a", b"1"), item("a", b"2"), item("B", b"3")],
        vec![item("a", b"1"), item("a", b"2"), item("b", b"3"), item("c", b"")],
        vec![item("a", b"1"), item("a", b"2"), Item { mode: Some(0o644), ..item("b", b"3") }],
        vec![item("a", b"1"), item("a", b"2"), Item { modified: Some(8), ..item("b", b"3") }],
        vec![item("a", b"1"), item("a", b"2"), Item { kind: Kind::Directory, ..item("b", b"3") }],
    ] {
        assert!(Listing(wrong).against(&good).is_err());
    }
}
