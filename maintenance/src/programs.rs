//! The programs of an image with the libraries they need.
//!
//! ```text
//! usr/sbin/mkfs.ext4 --links--> usr/sbin/mke2fs --DT_NEEDED--> libc.so.6 --search--> usr/lib/x86_64-linux-gnu/libc.so.6
//!                                               --PT_INTERP--> /lib64/ld-linux-x86-64.so.2
//! ```
//!
//! Invariant: a library that is not there ends the build with its name and the program that needs it.

use std::collections::{BTreeSet, VecDeque};

use crate::drivers;
use crate::elf;
use crate::profile::ImageProfile;
use crate::tree::Tree;

/// The folders in which the loader of Debian searches libraries.
const LIBRARY_FOLDERS: [&str; 3] = ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"];

/// The paths that the programs of a profile need: files and links.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Paths of the tree, each without links in its folders.
    pub(crate) paths: BTreeSet<String>,
    /// Programs that are wanted but in no package: path and package.
    pub(crate) missing: Vec<(&'static str, &'static str)>,
}

/// Collects the programs of a profile and their libraries.
///
/// # Errors
/// A sentence: a required program, a library or a loader is missing, or a file is damaged.
pub(crate) fn collect(tree: &Tree, profile: ImageProfile) -> Result<Programs, String> {
    let mut found = Programs::default();
    let mut queue = VecDeque::new();
    for program in drivers::programs(profile) {
        if tree.node(program.path).is_some() {
            queue.push_back(add(tree, program.path, &mut found.paths)?);
        } else if program.required {
            return Err(format!(
                "the program {} is missing: the folder needs the package {}",
                program.path, program.package
            ));
        } else {
            found.missing.push((program.path, program.package));
        }
    }
    let mut seen = BTreeSet::new();
    while let Some(path) = queue.pop_front() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let bytes = tree.read(&path)?;
        if !elf::is_elf(&bytes) {
            continue;
        }
        let needs = elf::needs(&bytes).map_err(|reason| format!("{path}: {reason}"))?;
        if let Some(loader) = &needs.loader {
            let clean = crate::tree::clean(loader.as_bytes())?;
            if tree.resolve(&clean).is_err() {
                return Err(format!("{path} needs the loader {loader}: the folder needs the package libc6"));
            }
            queue.push_back(add(tree, &clean, &mut found.paths)?);
        }
        for library in &needs.libraries {
            let candidate = LIBRARY_FOLDERS
                .iter()
                .map(|folder| format!("{folder}/{library}"))
                .find(|candidate| !library.contains('/') && tree.resolve(candidate).is_ok())
                .ok_or_else(|| {
                    format!(
                        "{path} needs the library {library}, which no package in the folder has; `shoal maintenance fetch \
                         --list` shows the packages"
                    )
                })?;
            queue.push_back(add(tree, &candidate, &mut found.paths)?);
        }
    }
    Ok(found)
}

/// Adds a path with the links that it leads through, and returns the file.
pub(crate) fn add(tree: &Tree, path: &str, paths: &mut BTreeSet<String>) -> Result<String, String> {
    let resolved = tree.resolve(path)?;
    paths.extend(resolved.links);
    paths.insert(resolved.file.clone());
    Ok(resolved.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::program;

    fn tree() -> Tree {
        let mut tree = Tree::new().unwrap();
        for program in drivers::programs(ImageProfile::Small) {
            tree.add_file(program.path, &b"data"[..], true, 0).unwrap();
        }
        tree
    }

    fn with_dynamic(libraries: &[&str]) -> Tree {
        let mut tree = Tree::new().unwrap();
        for wanted in drivers::programs(ImageProfile::Small) {
            if wanted.path == "usr/sbin/mkfs.ext4" {
                tree.add_link(wanted.path, "mke2fs", 0).unwrap();
            } else {
                let file = program(Some("/lib64/ld.so"), libraries);
                tree.add_file(wanted.path, &*file, true, 0).unwrap();
            }
        }
        tree
    }

    #[test]
    fn libraries_of_libraries_and_the_loader_are_found_through_links() {
        let mut tree = with_dynamic(&["liba.so.1"]);
        tree.add_link("usr/lib64/ld.so", "/lib/x86_64-linux-gnu/ld-2.so", 1).unwrap();
        tree.add_file("usr/lib/x86_64-linux-gnu/ld-2.so", &*program(None, &[]), true, 1).unwrap();
        tree.add_link("usr/lib/x86_64-linux-gnu/liba.so.1", "liba.so.1.2", 1).unwrap();
        tree.add_file("usr/lib/x86_64-linux-gnu/liba.so.1.2", &*program(None, &["libb.so"]), false, 1)
            .unwrap();
        tree.add_file("usr/lib/libb.so", &*program(None, &["liba.so.1"]), false, 1).unwrap();
        let found = collect(&tree, ImageProfile::Small).unwrap();
        let libraries: Vec<_> = found.paths.iter().filter(|path| path.starts_with("usr/lib")).collect();
        assert_eq!(
            libraries,
            [
                "usr/lib/libb.so",
                "usr/lib/x86_64-linux-gnu/ld-2.so",
                "usr/lib/x86_64-linux-gnu/liba.so.1",
                "usr/lib/x86_64-linux-gnu/liba.so.1.2",
                "usr/lib64/ld.so"
            ]
        );
        assert!(found.paths.contains("usr/sbin/mkfs.ext4"));
    }

    #[test]
    fn a_missing_library_ends_the_build_with_its_name() {
        let mut tree = with_dynamic(&["libgone.so.3"]);
        let reason = collect(&tree, ImageProfile::Small).unwrap_err();
        assert!(reason.contains("/lib64/ld.so"), "{reason}");
        tree.add_file("usr/lib64/ld.so", &*program(None, &[]), true, 1).unwrap();
        let reason = collect(&tree, ImageProfile::Small).unwrap_err();
        assert!(reason.contains("needs the library libgone.so.3"), "{reason}");
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        assert!(collect(&tree(), ImageProfile::Small).is_ok());
        let reason = collect(&tree(), ImageProfile::Full).unwrap_err();
        assert!(reason.contains("package e2fsprogs"), "{reason}");
    }
}
