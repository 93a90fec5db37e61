//! `shoal iso ls`, `cat` and `info`: read images.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;

use iso9660::{BootEntry, BootMedia, Entry, EntryKind, FileSource, Image, Platform, ReadAt};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::error::CliError;
use super::super::output::{Output, plain};
use super::failed;

/// The buffer size of a copy, in bytes.
const BUFFER_SIZE: usize = 64 << 10;

pub(super) fn list(
    image: &Image<FileSource>,
    path: &str,
    recursive: bool,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let path = path.trim_matches('/');
    let mut entries: Vec<(String, Entry)> = Vec::new();
    if recursive {
        image
            .walk(|path, entry| {
                entries.push((path.to_owned(), entry.clone()));
                ControlFlow::Continue(())
            })
            .map_err(|error| failed(&error))?;
    } else {
        let entry = image.lookup(path).map_err(|error| failed(&error))?;
        if entry.is_dir() {
            let children = image.list(path).map_err(|error| failed(&error))?;
            entries.extend(children.into_iter().map(|child| (child.name.clone(), child)));
        } else {
            entries.push((path.to_owned(), entry));
        }
    }
    if output.json {
        let rows: Vec<Value> = entries.iter().map(|(path, entry)| row(path, entry)).collect();
        return output.document(&json!({"entries": rows}));
    }
    let width = entries.iter().map(|(_, entry)| entry.len.to_string().len()).max().unwrap_or(0);
    // An image may have hundred thousands of entries, so lines are buffered.
    let mut out = BufWriter::new(&mut *output.out);
    for (path, entry) in &entries {
        let target = match &entry.kind {
            EntryKind::Symlink(target) => format!(" -> {target}"),
            _ => String::new(),
        };
        let line =
            format!("{}  {:>width$}  {:20}  {path}{target}", mode(entry), entry.len, date(entry.modified));
        writeln!(out, "{}", plain(&line))?;
    }
    Ok(out.flush()?)
}

fn row(path: &str, entry: &Entry) -> Value {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink(_) => "symlink",
        _ => "other",
    };
    let target = match &entry.kind {
        EntryKind::Symlink(target) => Some(target),
        _ => None,
    };
    json!({
        "path": path,
        "kind": kind,
        "len": entry.len,
        "mode": entry.mode.map(|mode| format!("{:04o}", mode & 0o7777)),
        "modified": Some(date(entry.modified)).filter(|date| !date.is_empty()),
        "target": target,
    })
}

/// The mode in the format of `ls -l`; without Rock Ridge only the file type is known.
fn mode(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink(_) => 'l',
        _ => '?',
    };
    let Some(mode) = entry.mode else { return format!("{kind}?????????") };
    let bits = "rwxrwxrwx".chars().enumerate();
    let bits = bits.map(|(at, letter)| if mode & (0o400 >> at) == 0 { '-' } else { letter });
    std::iter::once(kind).chain(bits).collect()
}

fn date(seconds: Option<i64>) -> String {
    seconds
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .map(|stamp| stamp.to_string())
        .unwrap_or_default()
}

pub(super) fn cat(image: &Image<FileSource>, path: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let file = image.open_file(path.trim_start_matches('/')).map_err(|error| failed(&error))?;
    let mut buffer = vec![0; BUFFER_SIZE];
    let mut offset = 0;
    while offset < file.len() {
        let length = usize::try_from(file.len() - offset).unwrap_or(BUFFER_SIZE).min(BUFFER_SIZE);
        let buffer = &mut buffer[..length];
        file.read_exact_at(offset, buffer).map_err(|error| {
            CliError::failed(format!("cannot read {} from the image: {error}", plain(path)))
        })?;
        output.out.write_all(buffer)?;
        offset += length as u64;
    }
    Ok(output.out.flush()?)
}

pub(super) fn info(image: &Image<FileSource>, digest: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    let volume = image.volume();
    let boot = image.boot_entries().map_err(|error| failed(&error))?;
    let images = image.boot_images().map_err(|error| failed(&error))?;
    let images: Vec<String> = images.into_iter().map(|image| plain(&image.path)).collect();
    let sha256 = if digest { Some(sha256(image)?) } else { None };
    let namespaces: Vec<String> = image.namespaces().iter().map(ToString::to_string).collect();
    if output.json {
        let boot: Vec<Value> = boot
            .iter()
            .map(|entry| {
                json!({
                    "platform": platform(entry), "media": media(entry), "bootable": entry.bootable,
                    "offset": entry.extent.offset, "len": entry.extent.len,
                })
            })
            .collect();
        return output.document(&json!({
            "volume_id": volume.volume_id, "joliet_volume_id": volume.joliet_volume_id,
            "publisher": volume.publisher, "preparer": volume.preparer, "application": volume.application,
            "sectors": volume.sectors, "bytes": image.source().len(), "namespaces": namespaces,
            "created": Some(date(volume.created)).filter(|date| !date.is_empty()),
            "udf": volume.has_udf, "boot": boot, "boot_images": images, "sha256": sha256,
        }));
    }
    let boot: Vec<String> = boot
        .iter()
        .map(|entry| {
            let state = if entry.bootable { "" } else { ", not bootable" };
            format!(
                "{} ({}{state}, {} bytes at {})",
                platform(entry),
                media(entry),
                entry.extent.len,
                entry.extent.offset
            )
        })
        .collect();
    output.fields(&[
        ("volume", plain(&volume.volume_id)),
        ("Joliet volume", plain(volume.joliet_volume_id.as_deref().unwrap_or_default())),
        ("publisher", plain(&volume.publisher)),
        ("preparer", plain(&volume.preparer)),
        ("application", plain(&volume.application)),
        ("created", date(volume.created)),
        ("names", namespaces.join(", ")),
        ("sectors", volume.sectors.to_string()),
        ("bytes", image.source().len().to_string()),
        ("boots", boot.join("; ")),
        ("boot images", images.join(", ")),
        ("sha256", sha256.unwrap_or_default()),
    ])
}

/// The SHA-256 of the whole image, in hex.
fn sha256(image: &Image<FileSource>) -> Result<String, CliError> {
    let source = image.source();
    let (mut hash, mut buffer, mut offset) = (Sha256::new(), vec![0; BUFFER_SIZE], 0);
    while offset < source.len() {
        let length = usize::try_from(source.len() - offset).unwrap_or(BUFFER_SIZE).min(BUFFER_SIZE);
        source
            .read_exact_at(offset, &mut buffer[..length])
            .map_err(|error| CliError::failed(format!("cannot read the image: {error}")))?;
        hash.update(&buffer[..length]);
        offset += length as u64;
    }
    Ok(hex::encode(hash.finalize()))
}

fn platform(entry: &BootEntry) -> String {
    match entry.platform {
        Platform::X86 => "BIOS".to_owned(),
        Platform::Efi => "UEFI".to_owned(),
        Platform::Other(id) => format!("platform {id}"),
        _ => "another platform".to_owned(),
    }
}

fn media(entry: &BootEntry) -> String {
    match entry.media {
        BootMedia::NoEmulation => "no emulation".to_owned(),
        BootMedia::Floppy(bytes) => format!("floppy of {bytes} bytes"),
        BootMedia::HardDisk => "hard disk".to_owned(),
        _ => "another medium".to_owned(),
    }
}
