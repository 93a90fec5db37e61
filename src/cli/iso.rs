//! `shoal iso`: looking into ISO 9660 images, whoever made them.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Subcommand;
use iso9660::{BootEntry, BootMedia, Entry, EntryKind, FileSource, Image, Platform, ReadAt, ReadError};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::CliError;
use super::exit::Exit;
use super::output::{Output, plain};

/// A file is written out in pieces of this size.
const PIECE: usize = 64 << 10;

/// What to do with an image.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List a directory of an image
    Ls {
        /// The image
        image: PathBuf,
        /// The directory or file in it
        #[arg(default_value = "/")]
        path: String,
        /// With everything below it
        #[arg(long, short = 'R', conflicts_with = "path")]
        recursive: bool,
    },
    /// Write a file of an image to standard output
    Cat {
        /// The image
        image: PathBuf,
        /// The file in it
        path: String,
    },
    /// Show what an image says about itself
    Info {
        /// The image
        image: PathBuf,
    },
}

/// Runs a command.
pub(super) fn run(command: Command, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        Command::Ls { image, path, recursive } => list(&open(image)?, &path, recursive, output),
        Command::Cat { image, path } => cat(&open(image)?, &path, output),
        Command::Info { image } => info(&open(image)?, output),
    }
}

fn open(path: PathBuf) -> Result<Image<FileSource>, CliError> {
    let source = FileSource::open(&path).map_err(|source| CliError::Input { path: path.clone(), source })?;
    Image::open(source).map_err(|error| failed(&error))
}

fn failed(error: &ReadError) -> CliError {
    let exit = if matches!(error, ReadError::NotFound { .. }) { Exit::NotFound } else { Exit::Failed };
    CliError::Local { message: plain(&error.to_string()), exit }
}

fn list(
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
    for (path, entry) in &entries {
        let target = match &entry.kind {
            EntryKind::Symlink(target) => format!(" -> {target}"),
            _ => String::new(),
        };
        let line =
            format!("{}  {:>width$}  {:20}  {path}{target}", mode(entry), entry.len, date(entry.modified));
        output.line(plain(&line))?;
    }
    Ok(())
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

/// As `ls -l` writes it; without Rock Ridge only the kind is known.
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

fn cat(image: &Image<FileSource>, path: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let file = image.open_file(path.trim_start_matches('/')).map_err(|error| failed(&error))?;
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    while offset < file.len() {
        let length = usize::try_from(file.len() - offset).unwrap_or(PIECE).min(PIECE);
        let piece = &mut piece[..length];
        file.read_exact_at(offset, piece).map_err(|error| {
            CliError::failed(format!("cannot read {} from the image: {error}", plain(path)))
        })?;
        output.out.write_all(piece)?;
        offset += length as u64;
    }
    Ok(output.out.flush()?)
}

fn info(image: &Image<FileSource>, output: &mut Output<'_>) -> Result<(), CliError> {
    let volume = image.volume();
    let boot = image.boot_entries().map_err(|error| failed(&error))?;
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
            "udf": volume.has_udf, "boot": boot,
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
        ("UDF", if volume.has_udf { "also there, not read".to_owned() } else { String::new() }),
        ("sectors", volume.sectors.to_string()),
        ("bytes", image.source().len().to_string()),
        ("boots", boot.join("; ")),
    ])
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
