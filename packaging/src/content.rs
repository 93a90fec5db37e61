//! The files that every package has beside the programs, and the archive for hosts without dpkg.

use std::io;

use crate::archive::{Entry, gzip, tar};
use crate::documents;
use crate::pages::{Pages, SHELLS};
use crate::{Programs, sha256};

pub(crate) const SERVICE: &str = include_str!("../files/shoal.service");
pub(crate) const SOCKET: &str = include_str!("../files/shoal.socket");
pub(crate) const SYSUSERS: &str = include_str!("../files/shoal.sysusers");
pub(crate) const TMPFILES: &str = include_str!("../files/shoal.tmpfiles");
pub(crate) const SETTINGS: &str = include_str!("../files/shoal.toml");

/// The archive: one folder with the programs, the units, documents, manual pages and completions, and the digest of each file.
pub(crate) fn archive(
    (programs, pages): (Programs<'_>, &Pages),
    version: &str,
    architecture: &str,
    date: u64,
) -> io::Result<Vec<u8>> {
    let mut files: Vec<(String, u32, &[u8])> = vec![
        ("shoal".to_owned(), 0o755, programs.shoal),
        ("shoal-agent".to_owned(), 0o755, programs.agent),
        ("etc/shoal.toml".to_owned(), 0o644, SETTINGS.as_bytes()),
        ("systemd/shoal.service".to_owned(), 0o644, SERVICE.as_bytes()),
        ("systemd/shoal.socket".to_owned(), 0o644, SOCKET.as_bytes()),
        ("systemd/sysusers.d/shoal.conf".to_owned(), 0o644, SYSUSERS.as_bytes()),
        ("systemd/tmpfiles.d/shoal.conf".to_owned(), 0o644, TMPFILES.as_bytes()),
    ];
    let documents = documents::all();
    for (name, bytes) in &documents {
        files.push((format!("doc/{name}"), 0o644, bytes));
    }
    for (name, page) in &pages.manual {
        files.push((format!("man/man1/{name}"), 0o644, page));
    }
    for ((_, _, path), script) in SHELLS.iter().zip(&pages.completions) {
        files.push(((*path).to_owned(), 0o644, script));
    }
    let sums: String = files.iter().map(|(name, _, bytes)| format!("{}  {name}\n", sha256(bytes))).collect();
    files.push(("SHA256SUMS".to_owned(), 0o644, sums.as_bytes()));
    let entries: Vec<Entry<'_>> =
        files.iter().map(|(name, mode, bytes)| Entry::file(name, *mode, bytes)).collect();
    gzip(&tar(&format!("shoal-{version}-linux-{architecture}/"), &entries, date)?)
}
