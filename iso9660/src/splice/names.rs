//! The names of added files, for each kind of tree.
//!
//! ```text
//! name             plain            Joliet          enhanced
//! task             TASK             task            task
//! job.json         JOB.JSON;1       job.json        job.json
//! user-data        USER_DATA.;1     user-data       user-data
//! ```
//!
//! Invariants: a name is one path component of at most 64 bytes that every tree can represent, so a record with all
//! attributes fits in 254 bytes. No two names differ in case only.

use std::collections::BTreeSet;

use crate::ecma119::identifier;
use crate::error::PlanError;
use crate::joliet;
use crate::options::{InterchangeLevel, JolietNames};

use super::error::SpliceError;
use super::records::compare;
use super::tree_kind::TreeKind;

/// The longest name in bytes.
const NAME_LIMIT: usize = 64;
/// The largest number of added files, which keeps the directory small.
pub(crate) const MAX_FILES: usize = 1000;

/// Checks that every tree can represent the names.
pub(crate) fn check<'a>(directory: &'a str, files: impl Iterator<Item = &'a str>) -> Result<(), SpliceError> {
    let error = |name: &str, rule| SpliceError::Name { name: name.to_owned(), rule };
    check_name(directory)?;
    let mut seen = BTreeSet::new();
    for name in files {
        check_name(name)?;
        if !seen.insert(name.to_lowercase()) {
            return Err(error(
                name,
                "another file has this name, perhaps in another case; add every name once",
            ));
        }
    }
    if seen.len() > MAX_FILES {
        return Err(SpliceError::Limit { what: "files to add", limit: MAX_FILES as u64 });
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), SpliceError> {
    let error = |rule| Err(SpliceError::Name { name: name.to_owned(), rule });
    if name.is_empty() || name.len() > NAME_LIMIT {
        return error("a name has 1 to 64 bytes");
    }
    if name == "." || name == ".." || name.contains('/') {
        return error("a name is one path component; remove the directory from the name");
    }
    joliet::identifier(name, JolietNames::Long, || name.to_owned())?;
    Ok(())
}

/// Returns the identifier of the directory.
pub(crate) fn directory(name: &str, kind: TreeKind) -> Result<Vec<u8>, PlanError> {
    match kind {
        TreeKind::Primary => {
            Ok(identifier::assign(&[(name, true)], InterchangeLevel::Three).pop().unwrap_or_default())
        }
        TreeKind::Joliet => joliet::identifier(name, JolietNames::Long, || name.to_owned()),
        TreeKind::Enhanced => Ok(name.as_bytes().to_vec()),
    }
}

/// Returns the identifiers of files with an index into `names`, in the order of their records. `names` are sorted.
pub(crate) fn files(names: &[&str], kind: TreeKind) -> Result<Vec<(Vec<u8>, usize)>, PlanError> {
    let identifiers = match kind {
        TreeKind::Primary => identifier::assign(
            &names.iter().map(|name| (*name, false)).collect::<Vec<_>>(),
            InterchangeLevel::Three,
        ),
        TreeKind::Joliet => {
            let identifiers =
                names.iter().map(|name| joliet::identifier(name, JolietNames::Long, || (*name).to_owned()));
            identifiers.collect::<Result<_, _>>()?
        }
        TreeKind::Enhanced => names.iter().map(|name| name.as_bytes().to_vec()).collect(),
    };
    let mut ordered: Vec<(Vec<u8>, usize)> = identifiers.into_iter().zip(0..).collect();
    ordered.sort_by(|(left, _), (right, _)| compare(left, right, kind));
    Ok(ordered)
}

/// Returns whether a reader shows an identifier of a tree under a name. Case is ignored, because some systems ignore
/// it.
pub(crate) fn is_called(identifier: &[u8], name: &str, kind: TreeKind) -> bool {
    let shown = match kind {
        TreeKind::Joliet => joliet::name(identifier),
        TreeKind::Primary | TreeKind::Enhanced => identifier::plain_name(identifier),
    };
    shown.to_lowercase() == name.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_and_duplicate_names_are_refused() {
        for name in ["", ".", "..", "a/b", "a:b", "a\0", "😀", &"x".repeat(65)] {
            assert!(check("task", [name].into_iter()).is_err(), "{name:?}");
            assert!(check(name, ["job.json"].into_iter()).is_err(), "{name:?}");
        }
        assert!(check("task", ["a", "A"].into_iter()).is_err());
        assert!(check("task", ["a", "b"].into_iter()).is_ok());
        let many: Vec<String> = (0..=MAX_FILES).map(|index| index.to_string()).collect();
        assert!(matches!(check("task", many.iter().map(String::as_str)), Err(SpliceError::Limit { .. })));
    }

    #[test]
    fn files_come_in_the_order_of_each_tree() {
        let names = ["B.txt", "a-b", "a_b"];
        let of = |kind| files(&names, kind).unwrap();
        assert_eq!(
            of(TreeKind::Primary),
            [(b"A_B0.;1".to_vec(), 1), (b"A_B1.;1".to_vec(), 2), (b"B.TXT;1".to_vec(), 0)]
        );
        assert_eq!(of(TreeKind::Enhanced).iter().map(|(_, index)| *index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(of(TreeKind::Joliet)[0].0, b"\0B\0.\0t\0x\0t");
        assert_eq!(directory("task", TreeKind::Primary).unwrap(), b"TASK");
    }

    #[test]
    fn identifiers_are_recognised_in_any_case_and_with_their_version() {
        assert!(
            is_called(b"TASK", "task", TreeKind::Primary) && is_called(b"TASK.;1", "task", TreeKind::Primary)
        );
        assert!(is_called(b"\0T\0a\0s\0k", "task", TreeKind::Joliet));
        assert!(!is_called(b"TASK1", "task", TreeKind::Primary));
    }
}
