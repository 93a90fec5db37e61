//! The answer file of Windows, written into a disk image that was prepared with sysprep.
//!
//! ```text
//! partitions that begin as NTFS, the largest first --ntfs-3g--> mounted --Windows/System32?--no--> unmounted, the next one
//!   yes: Windows/Panther/unattend.xml written, flushed, unmounted --> mounted again, read back, compared
//! ```
//!
//! The writer is ntfs-3g over FUSE: Debian's kernels have no driver that writes NTFS.
//!
//! Invariants: nothing is opened outside of the mounted root. A file system that is not clean is not written: ntfs-3g mounts it for reading
//! only, and the step fails with words.

use std::{ops::Range, path::Path, time::Duration};

use crate::layer::{LayerTree, Ownership};
use crate::linux::{Host, Program};

const PROGRAM: &str = "ntfs-3g";
const LIMIT: Duration = Duration::from_secs(300);
/// Where the setup of Windows searches its answer file in an installed system.
const ANSWER: [&str; 3] = ["Windows", "Panther", "unattend.xml"];

/// A partition that begins as NTFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ntfs {
    /// The number of the partition, from 1.
    pub number: usize,
    /// The bytes of the partition on the disk.
    pub range: Range<u64>,
}

/// Checks, before anything is written, that the medium has what [`write_answer`] needs.
///
/// # Errors
/// Returns a sentence that says how to get it.
pub fn check(host: &dyn Host) -> Result<(), String> {
    match host.has_program(PROGRAM) {
        true => Ok(()),
        false => Err(format!(
            "the recipe has unattend_xml, and this medium has no {PROGRAM}, which writes it: build the medium with the profile full from a \
             folder that has the package {PROGRAM}; nothing was written"
        )),
    }
}

/// Writes the answer file into the Windows on one of the partitions of the disk `name`, which is closed. Returns what was done, for the log.
///
/// # Errors
/// Returns a sentence when no partition holds Windows, or when the file cannot be written or read back.
pub fn write_answer(
    host: &dyn Host,
    name: &str,
    partitions: &[Ntfs],
    answer: &[u8],
) -> Result<String, String> {
    host.load_modules(&["fuse"]);
    let mut sorted: Vec<&Ntfs> = partitions.iter().collect();
    sorted.sort_by_key(|partition| std::cmp::Reverse(partition.range.end - partition.range.start));
    let mut reasons = Vec::new();
    for partition in sorted {
        let Ntfs { number, range } = partition;
        let device = host.partition(name, *number, (range.start / 512, (range.end - range.start) / 512))?;
        if let Err(reason) = mount(host, &device) {
            reasons.push(format!("partition {number}: {reason}"));
            continue;
        }
        let written = write(host.root(), answer);
        unmount(host)?;
        let Some(path) = written.map_err(|reason| format!("partition {number}: {reason}"))? else {
            reasons.push(format!("partition {number} holds no Windows"));
            continue;
        };
        mount(host, &device)?;
        let read = LayerTree::open(host.root(), Ownership::Ignore)
            .and_then(|tree| tree.read_file(&path, answer.len() as u64));
        unmount(host)?;
        return match read {
            Ok(bytes) if bytes == answer => {
                Ok(format!("{path} of partition {number} is written and read back, {} bytes", answer.len()))
            }
            Ok(_) => Err(format!("{path} of partition {number} has other bytes than were written")),
            Err(source) => Err(format!("reading {path} of partition {number} back: {source}")),
        };
    }
    let why =
        if reasons.is_empty() { "it has no partition with NTFS".to_owned() } else { reasons.join("; ") };
    Err(format!("the image has no Windows that unattend_xml could be written to: {why}"))
}

fn mount(host: &dyn Host, device: &Path) -> Result<(), String> {
    let folder = host.root();
    std::fs::create_dir_all(folder).map_err(|source| format!("making {}: {source}", folder.display()))?;
    let words = [&*device.to_string_lossy(), &*folder.to_string_lossy(), "-o", "rw,nosuid,nodev,noatime"];
    let arguments = words.iter().map(|word| (*word).to_owned()).collect();
    host.run(&Program { name: PROGRAM.to_owned(), arguments, in_root: false, limit: LIMIT })
}

fn unmount(host: &dyn Host) -> Result<(), String> {
    host.unmount_all().map_err(|source| format!("unmounting the NTFS: {source}"))
}

/// Writes the file below the mounted `root`. Returns its path, or `None` when this is no Windows.
fn write(root: &Path, answer: &[u8]) -> Result<Option<String>, String> {
    let tree =
        LayerTree::open(root, Ownership::Ignore).map_err(|source| format!("opening the NTFS: {source}"))?;
    let [windows, panther, file] = ANSWER;
    let Some(windows) = found(&tree, "", windows) else { return Ok(None) };
    if found(&tree, &windows, "System32").is_none() {
        return Ok(None);
    }
    let panther = found(&tree, &windows, panther).unwrap_or_else(|| format!("{windows}/{panther}"));
    let path = found(&tree, &panther, file).unwrap_or_else(|| format!("{panther}/{file}"));
    match tree.write_file(&path, answer, None) {
        Ok(()) => Ok(Some(path)),
        Err(source) if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Err(
            "the NTFS is not clean, so it can only be read: Windows was hibernated or not shut down when the image was taken. Shut it down \
             by `sysprep /generalize /oobe /shutdown` with fast startup off, and take the image again"
                .to_owned(),
        ),
        Err(source) => Err(format!("writing {path}: {source}")),
    }
}

/// Finds a name in a folder without regard to case, as Windows does. Returns its path.
fn found(tree: &LayerTree, folder: &str, name: &str) -> Option<String> {
    let known = tree.list(folder).into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
    Some(if folder.is_empty() { known } else { format!("{folder}/{known}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_file_goes_where_windows_searches_it_whatever_the_case_of_its_folders() {
        for (folders, expected) in [
            (&["Windows/System32"][..], "Windows/Panther/unattend.xml"),
            (&["WINDOWS/system32", "WINDOWS/panther"], "WINDOWS/panther/unattend.xml"),
        ] {
            let root = tempfile::tempdir().unwrap();
            for folder in folders {
                std::fs::create_dir_all(root.path().join(folder)).unwrap();
            }
            for _ in 0..2 {
                assert_eq!(write(root.path(), b"<unattend/>").unwrap().as_deref(), Some(expected));
            }
            assert_eq!(std::fs::read(root.path().join(expected)).unwrap(), b"<unattend/>");
        }
    }

    #[test]
    fn a_file_system_without_windows_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(write(root.path(), b"x").unwrap(), None);
        std::fs::create_dir(root.path().join("Windows")).unwrap();
        assert_eq!(write(root.path(), b"x").unwrap(), None);
        assert_eq!(std::fs::read_dir(root.path().join("Windows")).unwrap().count(), 0);
    }
}
