//! Verifies that a disk boots: partition table, root content, boot loader.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use uuid::Uuid;

use super::{
    DiskError, EFI_SYSTEM, RecordKind, is_root, read_table,
    record::{PayloadReader, Record},
};
use crate::gpt::{GptEntry, GptTable};

/// A root file system must contain this file.
const OS_RELEASE: &str = "etc/os-release";
const MAX_OS_RELEASE: u64 = 64 * 1024;
const MAX_LOADER: u64 = 4096;

/// The content of a verified disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The partition table.
    pub table: GptTable,
    /// Unique GUID of the root partition.
    pub root: Uuid,
    /// Digest of the image manifest that was installed.
    pub image_digest: String,
    /// Number of entries of the root file system.
    pub entries: u64,
    /// Length of the tar stream in bytes.
    pub content_bytes: u64,
    /// `PRETTY_NAME` of the os-release file, or `NAME`, or an empty string.
    pub os_name: String,
}

/// Reads a disk and checks both partition tables, every byte of the root content, and the boot loader that names it.
///
/// # Errors
/// Returns the first rule that the disk breaks.
pub fn verify(path: &Path) -> Result<Installed, DiskError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(DiskError::Blank { path: path.to_owned() });
        }
        Err(source) => {
            return Err(DiskError::Io { operation: "opening disk", path: path.to_owned(), source });
        }
    };
    let table = read_table(&file, path)?;
    let root = find(&table, is_root, "Linux root")?;
    let loader = find(&table, |entry| entry.type_guid == EFI_SYSTEM, "EFI system")?;
    let (record, os_name) = check_content(&file, &root)?;
    check_loader(&file, &loader, &root, &record.subject)?;
    Ok(Installed {
        root: root.unique_guid,
        image_digest: record.subject,
        entries: record.entries,
        content_bytes: record.length,
        os_name,
        table,
    })
}

/// The payload of the boot loader record.
pub(super) fn loader_text(root: Uuid, image_digest: &str) -> String {
    format!("root=PARTUUID={root}\nimage={image_digest}\n")
}

fn find(
    table: &GptTable,
    wanted: impl Fn(&GptEntry) -> bool,
    what: &'static str,
) -> Result<GptEntry, DiskError> {
    table.entries().iter().find(|entry| wanted(entry)).cloned().ok_or(DiskError::NoPartition { what })
}

fn check_content(file: &File, root: &GptEntry) -> Result<(Record, String), DiskError> {
    let wrong = |rule: String| DiskError::Record { what: "Linux root", rule };
    let record = Record::read(file, root, RecordKind::Content).map_err(wrong)?;
    let mut payload = PayloadReader::new(file, root, &record);
    let (entries, os_release) =
        walk(&mut payload).map_err(|source| wrong(format!("reading its content: {source}")))?;
    let sha256 = payload.finish().map_err(|source| wrong(format!("reading its content: {source}")))?;
    if sha256 != record.sha256 {
        return Err(wrong("its content does not match its SHA-256".to_owned()));
    }
    if entries != record.entries {
        return Err(wrong(format!("{entries} entries were found where {} were written", record.entries)));
    }
    let os_release = os_release.ok_or_else(|| wrong(format!("there is no {OS_RELEASE} in it")))?;
    Ok((record, os_name(&os_release)))
}

fn walk(payload: &mut PayloadReader<'_>) -> std::io::Result<(u64, Option<String>)> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(64 * 1024, payload));
    let mut entries = 0;
    let mut os_release = None;
    for entry in archive.entries()? {
        let entry = entry?;
        entries += 1;
        if entry.path_bytes().as_ref() == OS_RELEASE.as_bytes() {
            let mut text = Vec::new();
            entry.take(MAX_OS_RELEASE).read_to_end(&mut text)?;
            os_release = Some(String::from_utf8_lossy(&text).into_owned());
        }
    }
    Ok((entries, os_release))
}

fn check_loader(
    file: &File,
    loader: &GptEntry,
    root: &GptEntry,
    image_digest: &str,
) -> Result<(), DiskError> {
    let wrong = |rule: String| DiskError::Record { what: "EFI system", rule };
    let record = Record::read(file, loader, RecordKind::Loader).map_err(wrong)?;
    let mut payload = PayloadReader::new(file, loader, &record);
    let mut text = Vec::new();
    (&mut payload).take(MAX_LOADER).read_to_end(&mut text).map_err(|source| wrong(source.to_string()))?;
    let sha256 = payload.finish().map_err(|source| wrong(source.to_string()))?;
    if sha256 != record.sha256 {
        return Err(wrong("its loader does not match its SHA-256".to_owned()));
    }
    if text != loader_text(root.unique_guid, image_digest).as_bytes() {
        return Err(wrong("its loader names another root partition or image".to_owned()));
    }
    Ok(())
}

fn os_name(os_release: &str) -> String {
    let value = |key: &str| {
        os_release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(|v| v.trim_matches('"')))
    };
    value("PRETTY_NAME").or_else(|| value("NAME")).unwrap_or_default().to_owned()
}
