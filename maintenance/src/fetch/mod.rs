//! Fetches the packages of an image from a mirror of the distribution, on a machine that reaches one.
//!
//! ```text
//! keyring file --> InRelease of each archive --> Packages.xz --> choice --> .deb files of a folder
//!               OpenPGP signature            SHA-256        names and    SHA-256, then renamed into place
//!                                                           libraries
//! ```
//!
//! Invariants: nothing of a mirror is used before its digest is checked, and every digest leads back to a signature by a key of the
//! keyring; a file in the folder has the digest of the index; nothing outside of the folder is written.

mod index;
mod mirror;
mod openpgp;

pub use index::Available;
pub use mirror::{Archive, Mirror};

use std::path::Path;

use crate::error::Error;

/// The packages of an image. Their libraries and the kernel are found by the index.
const PACKAGES: &[&str] = &[
    "linux-image-amd64",
    "shim-signed",
    "grub-efi-amd64-signed",
    "isolinux",
    "syslinux-common",
    "e2fsprogs",
    "dosfstools",
    "xfsprogs",
    "btrfs-progs",
    "mdadm",
    "lvm2",
    "util-linux",
    "busybox-static",
];

/// Packages that are taken when the distribution has them.
const OPTIONAL: &[&str] = &["ntfs-3g", "dropbear-bin"];

/// Packages with firmware, of the component `non-free-firmware`.
const FIRMWARE: &[&str] = &[
    "firmware-bnx2",
    "firmware-bnx2x",
    "firmware-misc-nonfree",
    "firmware-qlogic",
    "firmware-realtek",
    "firmware-intel-misc",
];

/// The names of packages that a build needs, without their libraries, for a person who collects them by other means.
pub fn wanted() -> impl Iterator<Item = &'static str> {
    PACKAGES.iter().chain(OPTIONAL).copied()
}

/// What a download reports while it works.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step<'a> {
    /// The download of a file begins.
    Begins {
        /// The name of the file.
        file: &'a str,
        /// The size of the file by the index.
        bytes: u64,
    },
    /// Bytes of this file have arrived.
    Arrived {
        /// All bytes of it until now.
        done: u64,
    },
}

/// The result of a fetch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fetched {
    /// The files that were downloaded.
    pub downloaded: Vec<String>,
    /// The files that were there with the right digest.
    pub present: Vec<String>,
    /// Package files in the folder that belong to no package of the list: they are left, and a build refuses two versions.
    pub others: Vec<String>,
}

/// Finds the packages of an image on a mirror.
///
/// # Errors
/// [`Error`] when the mirror cannot be read, an index is not signed by a key of the keyring, or a package is missing.
pub async fn choose(
    mirror: &Mirror,
    keyring: &[u8],
    firmware: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Available>, Error> {
    let keyring = openpgp::Keyring::parse(keyring).map_err(|reason| Error::index("the keyring", reason))?;
    let index = mirror.index(&keyring, firmware, progress).await?;
    let optional: Vec<&str> = OPTIONAL.iter().chain(if firmware { FIRMWARE } else { &[] }).copied().collect();
    index.select(PACKAGES, &optional).map_err(|reason| Error::index("the mirror", reason))
}

/// Downloads packages into a folder, which is created.
///
/// # Errors
/// [`Error`] when a file cannot be downloaded or stored, or does not have the digest of the index.
pub async fn download(
    mirror: &Mirror,
    packages: &[Available],
    folder: &Path,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Fetched, Error> {
    mirror.download(packages, folder, progress).await
}

/// Reads hostile bytes in every form this module reads, for the fuzz target.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_hostile(data: &[u8]) {
    let keys = include_bytes!("../../../golden/maintenance/rsa.asc");
    let text = String::from_utf8_lossy(data);
    let _keyring = std::hint::black_box(openpgp::Keyring::parse(data));
    if let Ok(keyring) = openpgp::Keyring::parse(keys)
        && let Ok(opened) = keyring.open(&text)
    {
        // The key's secret half does not exist any more: what opens is one of the signed texts.
        let known = [
            include_str!("../../../golden/maintenance/InRelease"),
            include_str!("../../../golden/maintenance/InRelease-sha256"),
        ];
        assert!(known.iter().any(|known| keyring.open(known).as_ref() == Ok(&opened)), "{opened:?}");
    }
    let mut index = index::Index::default();
    let _added = std::hint::black_box(index.add(&text, 0));
    let _chosen = std::hint::black_box(index.select(&["xfsprogs"], OPTIONAL));
    let _listed = std::hint::black_box(index::listed(&text, "main/binary-amd64/Packages.xz"));
}

#[cfg(test)]
mod tests;
