//! The indexes of a distribution: its packages, with their digests.
//!
//! ```text
//! InRelease (signed text) -> "SHA256:" list -> main/binary-amd64/Packages.xz -> stanzas: Package, Version, Filename, SHA256
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::control::{self, compare_versions};

/// The most packages of one index.
const MOST_PACKAGES: usize = 500_000;

/// A package, as an index names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Available {
    /// The name of the package.
    pub name: String,
    /// The version of the package.
    pub version: String,
    /// The path of the package file on the mirror.
    pub path: String,
    /// The length of the package file in bytes.
    pub bytes: u64,
    /// The SHA-256 of the package file in hex.
    pub sha256: String,
    depends: String,
    section: String,
    /// The number of the archive that has the package.
    pub(super) archive: usize,
}

/// A file that a signed index names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Listed {
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

/// The file at a path of a release.
pub(super) fn listed(release: &str, path: &str) -> Option<Listed> {
    control::stanzas(release).next()?.lines_of("SHA256").find_map(|line| {
        let mut words = line.split_whitespace();
        let (sha256, bytes, name) = (words.next()?, words.next()?, words.next()?);
        (name == path && is_digest(sha256)).then_some(())?;
        Some(Listed { sha256: sha256.to_owned(), bytes: bytes.parse().ok()? })
    })
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The newest version of every package of several archives.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeMap<String, Available>);

impl Index {
    /// Adds the packages of one archive's index.
    ///
    /// # Errors
    /// A sentence: an entry is not possible.
    pub(super) fn add(&mut self, packages: &str, archive: usize) -> Result<(), String> {
        for stanza in control::stanzas(packages) {
            let field = |name| stanza.get(name).unwrap_or_default();
            let package = Available {
                name: field("Package").to_owned(),
                version: field("Version").to_owned(),
                path: field("Filename").to_owned(),
                bytes: field("Size").parse().map_err(|_| "an entry has no size")?,
                sha256: field("SHA256").to_owned(),
                depends: format!("{},{}", field("Pre-Depends"), field("Depends")),
                section: field("Section").rsplit('/').next().unwrap_or_default().to_owned(),
                archive,
            };
            let (name, path) = (&package.name, &package.path);
            let climbs = path.split('/').any(|part| matches!(part, "" | "." | ".."));
            let odd = path.bytes().any(|byte| !(byte.is_ascii_alphanumeric() || b"+-./~_:%".contains(&byte)));
            if !control::is_package_name(name) || climbs || odd || !is_digest(&package.sha256) {
                return Err(format!("the entry of {name:?} has a name, path or digest that is not possible"));
            }
            let newer = self
                .0
                .get(name)
                .is_none_or(|other| compare_versions(&package.version, &other.version).is_gt());
            if newer {
                self.0.insert(name.clone(), package);
            }
            if self.0.len() > MOST_PACKAGES {
                return Err(format!("it has more than {MOST_PACKAGES} packages"));
            }
        }
        Ok(())
    }

    /// The packages for an image: those of the list, the kernel, and the libraries they depend on.
    ///
    /// # Errors
    /// A sentence: a package is in no index.
    pub(super) fn select(&self, wanted: &[&str], optional: &[&str]) -> Result<Vec<Available>, String> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut left: Vec<&str> = Vec::new();
        for name in wanted {
            if !self.0.contains_key(*name) {
                return Err(format!("the package {name} is in no index of the mirror"));
            }
            left.push(name);
        }
        left.extend(optional.iter().copied().filter(|name| self.0.contains_key(*name)));
        while let Some(name) = left.pop() {
            let Some(package) = self.0.get(name).filter(|package| names.insert(&package.name)) else {
                continue;
            };
            for group in control::dependencies(&package.depends) {
                // The first alternative that exists; of what is no library only a kernel, which the empty package
                // linux-image-amd64 depends on.
                let found = group.iter().find_map(|name| self.0.get(*name));
                let taken = found
                    .filter(|package| package.section == "libs" || package.name.starts_with("linux-image-"));
                left.extend(taken.map(|package| &*package.name));
            }
        }
        // The empty packages are of no use to a build.
        names.remove("linux-image-amd64");
        Ok(names.into_iter().filter_map(|name| self.0.get(name)).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn stanza(name: &str, version: &str, section: &str, depends: &str) -> String {
        format!(
            "Package: {name}\nVersion: {version}\nSection: {section}\nDepends: {depends}\nFilename: pool/{name}_{version}.deb\n\
             Size: 10\nSHA256: {DIGEST}\n\n"
        )
    }

    #[test]
    fn libraries_and_the_newest_kernel_are_followed_and_nothing_else() {
        let mut index = Index::default();
        let main = [
            stanza("linux-image-amd64", "6.1.1-1", "kernel", "linux-image-6.1.0-1-amd64 (= 6.1.1-1)"),
            stanza("linux-image-6.1.0-1-amd64", "6.1.1-1", "kernel", "kmod, initramfs-tools"),
            stanza("kmod", "1", "admin", ""),
            stanza("xfsprogs", "6.1-1", "admin", "libc6 (>= 2.36), libgone | liburcu8, python3:any"),
            stanza("libc6", "2.36-1", "libs", "libgcc-s1"),
            stanza("libgcc-s1", "12-1", "libs", "libc6"),
            stanza("liburcu8", "1-1", "libs", "libc6"),
            stanza("python3", "3.11", "python", ""),
        ];
        index.add(&main.concat(), 0).unwrap();
        index.add(&stanza("libc6", "2.36-9", "libs", ""), 1).unwrap();
        let found = index.select(&["linux-image-amd64", "xfsprogs"], &["wimtools"]).unwrap();
        let found: Vec<_> =
            found.iter().map(|package| (&*package.name, &*package.version, package.archive)).collect();
        assert_eq!(
            found,
            [
                ("libc6", "2.36-9", 1),
                ("liburcu8", "1-1", 0),
                ("linux-image-6.1.0-1-amd64", "6.1.1-1", 0),
                ("xfsprogs", "6.1-1", 0)
            ]
        );
        assert!(index.select(&["mdadm"], &[]).unwrap_err().contains("mdadm"));
    }

    #[test]
    fn an_entry_that_climbs_out_of_the_mirror_is_refused() {
        for (from, to) in [
            ("pool/a_1.deb", "../../etc/passwd"),
            ("pool/a_1.deb", "pool/a b?x"),
            (DIGEST, "abc"),
            ("Package: a\n", "Package: ../a\n"),
        ] {
            let text =
                stanza("aa", "1", "libs", "").replace("aa", "a").replace("Package: a\n", "Package: aa\n");
            let from = if from == "Package: a\n" { "Package: aa\n" } else { from };
            assert!(Index::default().add(&text.replace(from, to), 0).is_err(), "{to}");
        }
    }

    #[test]
    fn the_digest_of_an_index_is_read_of_the_release() {
        let release = format!(
            "Suite: x\nMD5Sum:\n aa 1 main/Packages.xz\nSHA256:\n {DIGEST} 12 main/Packages.xz\n {DIGEST} 13 other\n"
        );
        assert_eq!(
            listed(&release, "main/Packages.xz").unwrap(),
            Listed { sha256: DIGEST.to_owned(), bytes: 12 }
        );
        assert_eq!(listed(&release, "none"), None);
    }
}
