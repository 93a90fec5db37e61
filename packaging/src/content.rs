//! The files that every package has beside the program, and the archive for hosts without dpkg.

use std::io;

use crate::archive::{Entry, gzip, tar};
use crate::sha256;

pub(crate) const SERVICE: &str = include_str!("../files/shoal.service");
pub(crate) const SOCKET: &str = include_str!("../files/shoal.socket");
pub(crate) const SYSUSERS: &str = include_str!("../files/shoal.sysusers");
pub(crate) const TMPFILES: &str = include_str!("../files/shoal.tmpfiles");
pub(crate) const SETTINGS: &str = include_str!("../files/shoal.toml");

/// What is installed into the folder of documents.
pub(crate) const DOCUMENTS: [(&str, &str); 8] = [
    ("LICENSE-APACHE", include_str!("../../LICENSE-APACHE")),
    ("LICENSE-MIT", include_str!("../../LICENSE-MIT")),
    ("air-gap.md", include_str!("../../docs/air-gap.md")),
    ("components.cdx.json", include_str!("../../golden/components.cdx.json")),
    ("install.md", include_str!("../../docs/install.md")),
    ("settings.md", include_str!("../../docs/settings.md")),
    ("troubleshooting.md", include_str!("../../docs/troubleshooting.md")),
    ("upgrade.md", include_str!("../../docs/upgrade.md")),
];

/// The archive: one folder with the program, the units and the documents, and the digest of each file.
pub(crate) fn archive(program: &[u8], version: &str, architecture: &str, date: u64) -> io::Result<Vec<u8>> {
    let mut files: Vec<(String, u32, &[u8])> = vec![
        ("shoal".to_owned(), 0o755, program),
        ("etc/shoal.toml".to_owned(), 0o644, SETTINGS.as_bytes()),
        ("systemd/shoal.service".to_owned(), 0o644, SERVICE.as_bytes()),
        ("systemd/shoal.socket".to_owned(), 0o644, SOCKET.as_bytes()),
        ("systemd/sysusers.d/shoal.conf".to_owned(), 0o644, SYSUSERS.as_bytes()),
        ("systemd/tmpfiles.d/shoal.conf".to_owned(), 0o644, TMPFILES.as_bytes()),
    ];
    for (name, text) in DOCUMENTS {
        files.push((format!("doc/{name}"), 0o644, text.as_bytes()));
    }
    let sums: String = files.iter().map(|(name, _, bytes)| format!("{}  {name}\n", sha256(bytes))).collect();
    files.push(("SHA256SUMS".to_owned(), 0o644, sums.as_bytes()));
    let entries: Vec<Entry<'_>> =
        files.iter().map(|(name, mode, bytes)| Entry::file(name, *mode, bytes)).collect();
    gzip(&tar(&format!("shoal-{version}-linux-{architecture}/"), &entries, date)?)
}
