//! Catalogues of vendors: which files a folder should have, what they are for, and their checksums. Offline.
//!
//! ```text
//!   folder --open--> format --read, one entry at a time--> Listed: path, version, component?, models, size?, checksum?
//!                                                             |
//!   Listed + what the operator adds --check: the file is read once--> Checked: ready, or why not
//! ```
//!
//! | format | file | states |
//! |---|---|---|
//! | `dell` | `Catalog.xml`, UTF-8 or UTF-16, also `.gz` | models, component, size, MD5, restart |
//! | `hpe` | `fwrepodata/fwrepo.json` | version, description, restart; no model, no checksum |
//! | `lenovo` | one XML for each package, or a JSON index | models (machine types) in the XML, checksum in the JSON index |
//!
//! What a catalogue does not state is not guessed: a file without a model or a component is not ready until the operator gives it.
//! Models of servers and of devices stay apart until the component is known, which decides between them.
//!
//! Invariants: reading needs memory for one entry, however long the catalogue is; a document type, an entity other than the five
//! of XML, nesting deeper than [`xml::MAX_DEPTH`] and sizes beyond the limits end it with an error; a path that leaves the folder is
//! not followed.

mod check;
pub(crate) mod dell;
mod encoding;
pub(crate) mod hpe;
pub(crate) mod lenovo;
mod words;
mod xml;

pub(crate) use words::component as component_of;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use flate2::read::MultiGzDecoder;

pub use check::{Additions, CatalogueProblem, CheckResult, Checked, check};
pub(crate) use encoding::{Limited, utf8};

use crate::file::{MAX_MODELS, Restart, Sha256Digest};
use crate::identity::{Component, InvalidIdentity, Model, Vendor};

/// The most bytes of a catalogue after decompression.
const MAX_BYTES: u64 = 1 << 30;
/// The most files of a folder that are looked at for catalogues.
const MAX_LISTED: usize = 100_000;
/// The most entries that are read of all catalogues together.
const MAX_ENTRIES: usize = 200_000;

/// The checksum of a file in a catalogue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksum {
    /// MD5: it finds damage, not an attacker.
    Md5([u8; 16]),
    /// SHA-256.
    Sha256(Sha256Digest),
}

impl Checksum {
    /// A checksum by the number of its hexadecimal digits; `None` when it is of neither kind.
    pub(crate) fn of_hex(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let mut md5 = [0; 16];
        if hex::decode_to_slice(&text, &mut md5).is_ok() {
            return Some(Self::Md5(md5));
        }
        text.parse().ok().map(Self::Sha256)
    }
}

/// One file of a catalogue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// The path that the catalogue states, with `/`.
    pub path: String,
    /// The vendor of the catalogue.
    pub vendor: Vendor,
    /// The title of the file in the catalogue.
    pub title: String,
    /// The version.
    pub version: String,
    /// The component, if the catalogue states one that is known.
    pub component: Option<Component>,
    /// The models of servers that the catalogue states.
    pub systems: BTreeSet<Model>,
    /// The models of devices that the catalogue states.
    pub devices: BTreeSet<Model>,
    /// The length in bytes, if it is stated.
    pub size: Option<u64>,
    /// The checksum, if one of a known kind is stated.
    pub checksum: Option<Checksum>,
    /// Whether the host must restart, if it is stated.
    pub restart: Option<Restart>,
}

impl Listed {
    /// The stated models for a component: those of servers for a part of the server itself, else those of devices. All of them
    /// while the component is unknown.
    pub fn models(&self, component: Option<Component>) -> BTreeSet<Model> {
        match component {
            Some(component) if component.is_of_server() => self.systems.clone(),
            Some(_) => self.devices.clone(),
            None => self.systems.union(&self.devices).cloned().collect(),
        }
    }
}

/// Adds a model, unless there are too many for one file already: one more than a file may have is enough to refuse it.
pub(crate) fn add_model(models: &mut BTreeSet<Model>, text: &str) {
    if models.len() <= MAX_MODELS {
        models.extend(text.parse::<Model>().ok());
    }
}

/// Why a catalogue cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The folder has no catalogue of a known name.
    #[error(
        "{} has no catalogue: expected Catalog.xml, Catalog.xml.gz, fwrepodata/fwrepo.json, or the XML or JSON files of \
         packages; name the file with --catalogue and its --format", .0.display()
    )]
    NotFound(PathBuf),
    /// A file cannot be read.
    #[error("read the catalogue {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The document is not of the format.
    #[error("the catalogue {} is not of the format {format}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The format.
        format: Format,
        /// The fault of the document.
        why: Malformed,
    },
    /// There are too many entries.
    #[error("the catalogues have more than {MAX_ENTRIES} entries; name one with --catalogue")]
    TooMany,
}

/// The fault of a catalogue's document.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The XML cannot be parsed.
    #[error("it is not well-formed XML ({0})")]
    Xml(String),
    /// The XML has a document type or an entity of its own.
    #[error("it has a document type or an entity of its own, which no vendor's catalogue has")]
    Entity,
    /// Elements are nested too deep.
    #[error("its elements are nested more than {} levels deep", xml::MAX_DEPTH)]
    Depth,
    /// One text, tag or the whole document is too long.
    #[error("it or one of its parts is longer than a catalogue can be")]
    Size,
    /// The JSON cannot be parsed.
    #[error("it is not the JSON of this format ({0})")]
    Json(String),
    /// The document has no entry.
    #[error("it lists no file")]
    Empty,
    /// A read failed.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The format of a catalogue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// One XML file for all systems.
    Dell,
    /// One JSON file for a repository.
    Hpe,
    /// One XML file for each package, or a JSON index.
    Lenovo,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Dell, Self::Hpe, Self::Lenovo];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dell => "dell",
            Self::Hpe => "hpe",
            Self::Lenovo => "lenovo",
        }
    }

    fn read(self, input: impl Read, path: &Path, each: &mut Each<'_>) -> Result<(), Malformed> {
        match self {
            Self::Dell => dell::read(input, each),
            Self::Hpe => hpe::read(input, each),
            Self::Lenovo => lenovo::read(input, path, each),
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Format {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        Self::ALL.into_iter().find(|known| known.as_str() == text.to_ascii_lowercase()).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            InvalidIdentity::new("catalogue format", text, format!("the formats are {known}"))
        })
    }
}

/// Receives the entries; `Break` ends the reading.
pub(crate) type Each<'a> = dyn FnMut(Listed) -> ControlFlow<()> + 'a;

/// Finds the catalogues of a folder with their formats, in the order of their names.
///
/// # Errors
/// [`CatalogueError::NotFound`] when there is none; [`CatalogueError::Read`] when the folder cannot be listed.
pub fn find(folder: &Path) -> Result<Vec<(PathBuf, Format)>, CatalogueError> {
    for (name, format) in [
        ("Catalog.xml", Format::Dell),
        ("Catalog.xml.gz", Format::Dell),
        ("Catalog.gz", Format::Dell),
        ("fwrepodata/fwrepo.json", Format::Hpe),
        ("fwrepo.json", Format::Hpe),
    ] {
        let path = folder.join(name);
        if path.is_file() {
            return Ok(vec![(path, format)]);
        }
    }
    let failed = |source| CatalogueError::Read { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)?.take(MAX_LISTED) {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if name.starts_with(lenovo::PREFIX) && (name.ends_with(".xml") || name.ends_with(".json")) {
            found.push((path, Format::Lenovo));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    if found.is_empty() { Err(CatalogueError::NotFound(folder.to_owned())) } else { Ok(found) }
}

/// Reads catalogues, one entry at a time. Blocks on the disk.
///
/// # Errors
/// [`CatalogueError`]; entries before the error were given.
pub fn read(catalogues: &[(PathBuf, Format)], each: &mut dyn FnMut(Listed)) -> Result<(), CatalogueError> {
    let mut entries = 0;
    for (path, format) in catalogues {
        let mut too_many = false;
        let before = entries;
        let file = File::open(path).map_err(|source| CatalogueError::Read { path: path.clone(), source })?;
        let compressed = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gz"));
        let input: Box<dyn Read> =
            if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        let mut count = |listed: Listed| {
            entries += 1;
            if entries > MAX_ENTRIES {
                too_many = true;
                return ControlFlow::Break(());
            }
            each(listed);
            ControlFlow::Continue(())
        };
        let done = format.read(Limited::new(input, MAX_BYTES), path, &mut count);
        if too_many {
            return Err(CatalogueError::TooMany);
        }
        let done = if done.is_ok() && entries == before { Err(Malformed::Empty) } else { done };
        done.map_err(|why| CatalogueError::Malformed { path: path.clone(), format: *format, why })?;
    }
    Ok(())
}

/// The problem of a JSON document.
fn json(error: serde_json::Error) -> Malformed {
    match error.io_error_kind() {
        Some(io::ErrorKind::FileTooLarge) => Malformed::Size,
        _ => Malformed::Json(error.to_string()),
    }
}
