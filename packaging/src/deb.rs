//! The Debian package (deb(5), Debian policy 5 and 6).
//!
//! ```text
//!   ar:  debian-binary "2.0\n"
//!        control.tar.gz   control, conffiles, md5sums, postinst, prerm, postrm
//!        data.tar.gz      /usr/bin/shoal, /usr/lib/shoal/shoal-agent, units, sysusers, tmpfiles, /etc/shoal/shoal.toml, documents, manual pages, completions
//! ```
//!
//! The data directory is not in the package: dpkg would remove or change what belongs to the controller.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use md5::{Digest, Md5};

use crate::Programs;
use crate::archive::{Entry, ROOT, ar, gzip, tar};
use crate::content;
use crate::documents;
use crate::elf::Architecture;
use crate::pages::{Pages, SHELLS};

const CONFFILE: &str = "etc/shoal/shoal.toml";
const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Shoal

Files: *
Copyright: the authors of Shoal
License: MIT or Apache-2.0
 The texts are in /usr/share/doc/shoal/licences. The crates that are linked into the program, with their licences, are
 listed in /usr/share/doc/shoal/components.cdx.json (CycloneDX) and by `shoal about --sbom`.
";

/// The package of a program.
pub(crate) fn package(
    (programs, pages): (Programs<'_>, &Pages),
    architecture: Architecture,
    version: &str,
    date: u64,
) -> io::Result<Vec<u8>> {
    let packed = pages.manual.iter().map(|(name, page)| Ok((name, gzip(page)?)));
    let packed: Vec<(&String, Vec<u8>)> = packed.collect::<io::Result<_>>()?;
    let mut files = vec![
        Entry::file(CONFFILE, 0o644, content::SETTINGS.as_bytes()),
        Entry::file("usr/bin/shoal", 0o755, programs.shoal),
        Entry::file("usr/lib/shoal/shoal-agent", 0o755, programs.agent),
        Entry::file("usr/lib/systemd/system/shoal.service", 0o644, content::SERVICE.as_bytes()),
        Entry::file("usr/lib/systemd/system/shoal.socket", 0o644, content::SOCKET.as_bytes()),
        Entry::file("usr/lib/sysusers.d/shoal.conf", 0o644, content::SYSUSERS.as_bytes()),
        Entry::file("usr/lib/tmpfiles.d/shoal.conf", 0o644, content::TMPFILES.as_bytes()),
        Entry::file("usr/share/doc/shoal/copyright", 0o644, COPYRIGHT.as_bytes()),
    ];
    let documents = documents::all();
    for (name, bytes) in &documents {
        let folder = if name.starts_with("LICENSE") { "licences/" } else { "" };
        files.push(Entry::file(&format!("usr/share/doc/shoal/{folder}{name}"), 0o644, bytes));
    }
    for (name, page) in &packed {
        files.push(Entry::file(&format!("usr/share/man/man1/{name}.gz"), 0o644, page));
    }
    for ((_, path, _), script) in SHELLS.iter().zip(&pages.completions) {
        files.push(Entry::file(path, 0o644, script));
    }
    let control = control(&files, architecture, version, date)?;
    // Every folder of a file, the root included.
    let folders = files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    let folders: BTreeSet<&str> = folders.filter_map(Path::to_str).collect();
    let mut entries: Vec<Entry<'_>> =
        folders.into_iter().map(|path| Entry::directory(path, 0o755, ROOT)).collect();
    entries.extend(files.iter().cloned());
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let data = gzip(&tar("./", &entries, date)?)?;
    ar(&[("debian-binary", b"2.0\n"), ("control.tar.gz", &control), ("data.tar.gz", &data)], date)
}

fn control(files: &[Entry<'_>], architecture: Architecture, version: &str, date: u64) -> io::Result<Vec<u8>> {
    let bytes: usize = files.iter().filter_map(|file| file.bytes).map(<[u8]>::len).sum();
    let control = format!(
        "Package: shoal\nVersion: {version}\nArchitecture: {}\nMaintainer: Shoal <shoal@localhost>\nInstalled-Size: {}\n\
         Depends: passwd\nSection: admin\nPriority: optional\nDescription: installs servers through their BMCs\n \
         Turns a recipe and a serial number into an installed server by Redfish virtual media, for sites without\n \
         internet. One program: controller, OCI registry, command line.\n",
        architecture.debian(),
        bytes.div_ceil(1024),
    );
    let sums: String = files
        .iter()
        .filter(|file| file.path != CONFFILE)
        .map(|file| format!("{}  {}\n", hex::encode(Md5::digest(file.bytes.unwrap_or_default())), file.path))
        .collect();
    let conffiles = format!("/{CONFFILE}\n");
    let entries = [
        Entry::directory("", 0o755, ROOT),
        Entry::file("conffiles", 0o644, conffiles.as_bytes()),
        Entry::file("control", 0o644, control.as_bytes()),
        Entry::file("md5sums", 0o644, sums.as_bytes()),
        Entry::file("postinst", 0o755, include_bytes!("../files/postinst")),
        Entry::file("postrm", 0o755, include_bytes!("../files/postrm")),
        Entry::file("prerm", 0o755, include_bytes!("../files/prerm")),
    ];
    gzip(&tar("./", &entries, date)?)
}
