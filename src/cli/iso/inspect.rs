//! `shoal iso ls`, `cat` and `info`: read images.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use iso9660::{
    BootCatalog, BootEntry, BootMedia, Entry, EntryKind, FileSource, Image, Platform, ReadAt, ReadError,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{TreeArgs, failed};
use client::error::CliError;
use client::output::{Format, Output, plain, yaml};

/// The buffer size of a copy, in bytes.
const BUFFER_SIZE: usize = 64 << 10;

pub(super) fn list(
    path: &Path,
    tree: &TreeArgs,
    inside: &str,
    recursive: bool,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let image = tree.open(path, output)?;
    let inside = inside.trim_matches('/');
    let mut rows = Rows::new(output, image.source().len());
    let mut written = Ok(());
    let mut show = |path: &str, entry: &Entry| {
        written = rows.add(path, entry);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let below = |path: &str| if inside.is_empty() { path.to_owned() } else { format!("{inside}/{path}") };
    let read = match image.lookup(inside) {
        Ok(entry) if !entry.is_dir() => {
            let _shown = show(inside, &entry);
            Ok(())
        }
        Ok(_) if recursive => image.walk_from(inside, |path, entry| show(&below(path), entry)),
        // The directory of the boot images is no directory of the tree.
        Ok(_) | Err(ReadError::NotFound { .. }) => image.visit(inside, |entry| show(&entry.name, entry)),
        Err(error) => Err(error),
    };
    written?;
    rows.end(read.is_ok())?;
    read.map_err(|error| tree.failed(&image, &error))
}

/// Writes entries one by one, because an image can have millions: `ls` does not keep them.
struct Rows<'o> {
    out: BufWriter<&'o mut dyn Write>,
    format: Format,
    any: bool,
    /// The width of the column of lengths: few files are longer than the image.
    width: usize,
}

impl<'o> Rows<'o> {
    fn new(output: &'o mut Output<'_>, bytes: u64) -> Rows<'o> {
        let out = BufWriter::new(&mut *output.out as &mut dyn Write);
        Rows { out, format: output.format, any: false, width: bytes.to_string().len() }
    }

    fn add(&mut self, path: &str, entry: &Entry) -> Result<(), CliError> {
        match self.format {
            Format::Json => {
                let between = if self.any { "," } else { "{\n  \"entries\": [" };
                write!(self.out, "{between}\n    {}", row(path, entry))?;
            }
            Format::Yaml => {
                if !self.any {
                    writeln!(self.out, "entries:")?;
                }
                for line in yaml(&json!([row(path, entry)])).lines() {
                    writeln!(self.out, "  {line}")?;
                }
            }
            Format::Name => writeln!(self.out, "{}", plain(path))?,
            Format::Text | Format::Wide => {
                let target = match &entry.kind {
                    EntryKind::Symlink(target) => format!(" -> {target}"),
                    _ => String::new(),
                };
                let (mode, date, width) = (mode(entry), date(entry.modified), self.width);
                let line = format!("{mode}  {:>width$}  {date:20}  {path}{target}", entry.len);
                writeln!(self.out, "{}", plain(&line))?;
            }
        }
        self.any = true;
        Ok(())
    }

    /// Ends the list, also when the image was readable only in part, so that the output is complete JSON.
    fn end(mut self, complete: bool) -> Result<(), CliError> {
        match (self.format, self.any) {
            (Format::Json, true) => self.out.write_all(b"\n  ]\n}\n")?,
            (Format::Json, false) if complete => self.out.write_all(b"{\n  \"entries\": []\n}\n")?,
            (Format::Yaml, false) if complete => self.out.write_all(b"entries: []\n")?,
            _ => {}
        }
        Ok(self.out.flush()?)
    }
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

pub(super) fn cat(
    image: &Path,
    tree: &TreeArgs,
    path: &str,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let image = tree.open(image, output)?;
    let file = image.open_file(path).map_err(|error| tree.failed(&image, &error))?;
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

pub(super) fn info(path: &Path, digest: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    let image = super::open(path)?;
    let volume = image.volume();
    let BootCatalog { entries: boot, faults, .. } = image.boot_catalog().map_err(|error| failed(&error))?;
    let faults: Vec<String> = faults.iter().map(|fault| plain(&fault.to_string())).collect();
    let images = image.boot_images().map_err(|error| failed(&error))?;
    let images: Vec<String> = images.into_iter().map(|image| plain(&image.path)).collect();
    let sha256 = if digest { Some(sha256(&image)?) } else { None };
    let namespaces: Vec<String> = image.namespaces().iter().map(ToString::to_string).collect();
    let broken: Vec<String> = (image.unreadable().iter())
        .map(|(namespace, error)| plain(&format!("{namespace}: {error}")))
        .collect();
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
            "unreadable": broken, "udf": volume.has_udf, "boot": boot, "boot_faults": faults, "boot_images": images,
            "sha256": sha256,
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
        ("unreadable", broken.join("; ")),
        ("sectors", volume.sectors.to_string()),
        ("bytes", image.source().len().to_string()),
        ("boots", boot.join("; ")),
        ("boot faults", faults.join("; ")),
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
