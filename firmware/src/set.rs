//! Sets: the files that belong together, and the choice of the set that fits a server.
//!
//! ```text
//!   set "r640-2026-11"   labels vendor, model, …     bmc  vendor  model A  -> file 1
//!                                                    bios vendor  model A  -> file 2      one file per line
//!   choose(sets, vendor, model, labels) -> exactly one set | NoSet | SeveralSets, two different errors
//! ```
//!
//! A set fits a server if its labels `vendor` and `model` name the server; a set without both labels fits if it has a file
//! for a component of the server itself, made for the server's vendor and model. Every wanted label must be the set's.
//!
//! Invariant: a set has at most one file for a component, vendor and model, and no file twice.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::file::FirmwareFile;
use crate::identity::{Component, InvalidIdentity, Model, Vendor};

/// The most files of a set.
pub const MAX_FILES: usize = 500;
const NAME_MAX: usize = 100;
const MAX_LABELS: usize = 32;
const LABEL_MAX: usize = 128;
/// The label with the vendor of the servers.
const VENDOR_LABEL: &str = "vendor";
/// The label with the model of the servers.
const MODEL_LABEL: &str = "model";

/// The name of a set: letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetName(String);

impl SetName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SetName {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !first || text.len() > NAME_MAX || !text.bytes().all(sign) {
            let rule = format!(
                "a name has 1 to {NAME_MAX} letters, digits, `.`, `_` and `-`, and begins with a letter or digit"
            );
            return Err(InvalidIdentity::new("name of a set", text, rule));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for SetName {
    type Error = InvalidIdentity;

    fn try_from(text: String) -> Result<Self, InvalidIdentity> {
        text.parse()
    }
}

impl From<SetName> for String {
    fn from(name: SetName) -> Self {
        name.0
    }
}

/// A file of a set, with the place of its artifact.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// The repository.
    pub repository: String,
    /// The digest of the manifest.
    pub digest: String,
    /// The file.
    pub file: FirmwareFile,
}

/// Why files are no set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SetError {
    /// The set has no file.
    #[error("a set has at least one file")]
    Empty,
    /// The set has too many files.
    #[error("a set has at most {MAX_FILES} files, not {0}")]
    TooMany(usize),
    /// Two files are for one component of one model.
    #[error(
        "the set has two files for {component} of {vendor} {model}: {first} and {second}; a set has one, leave one out"
    )]
    TwoFiles {
        /// The component.
        component: Component,
        /// The vendor.
        vendor: Vendor,
        /// The model.
        model: Model,
        /// The first file, with the digest of its manifest.
        first: String,
        /// The second file, with the digest of its manifest.
        second: String,
    },
    /// A label is invalid.
    #[error(
        "{0:?} is no label: a set has at most {MAX_LABELS} labels, and a key or value has 1 to {LABEL_MAX} printable bytes"
    )]
    Label(String),
}

/// Firmware files that are installed together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FirmwareSet {
    name: SetName,
    labels: BTreeMap<String, String>,
    entries: Vec<Entry>,
}

impl FirmwareSet {
    /// A set. The order of the files has no meaning.
    ///
    /// # Errors
    /// [`SetError`]; two files for one component, vendor and model are both named.
    pub fn new(
        name: SetName,
        labels: BTreeMap<String, String>,
        mut entries: Vec<Entry>,
    ) -> Result<Self, SetError> {
        let text = |text: &str| (1..=LABEL_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        if let Some((key, _)) = labels.iter().find(|(key, value)| !text(key) || !text(value)) {
            return Err(SetError::Label(key.chars().take(LABEL_MAX).collect()));
        }
        if labels.len() > MAX_LABELS {
            return Err(SetError::Label(format!("{} labels", labels.len())));
        }
        entries.sort_by(|a, b| (a.file.component, &a.digest).cmp(&(b.file.component, &b.digest)));
        match entries.len() {
            0 => return Err(SetError::Empty),
            more if more > MAX_FILES => return Err(SetError::TooMany(more)),
            _ => {}
        }
        let mut taken: BTreeMap<(Component, &Vendor, &Model), &Entry> = BTreeMap::new();
        for entry in &entries {
            for model in entry.file.models() {
                let key = (entry.file.component, &entry.file.vendor, model);
                if let Some(first) = taken.insert(key, entry) {
                    return Err(SetError::TwoFiles {
                        component: key.0,
                        vendor: key.1.clone(),
                        model: key.2.clone(),
                        first: shown(first),
                        second: shown(entry),
                    });
                }
            }
        }
        Ok(Self { name, labels, entries })
    }

    /// The name.
    pub fn name(&self) -> &SetName {
        &self.name
    }

    /// The labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// The files, in the order of installation.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the set is for servers of this vendor and model.
    pub fn fits(&self, vendor: &Vendor, model: &Model) -> bool {
        let labelled_vendor =
            self.labels.get(VENDOR_LABEL).map(|text| text.parse::<Vendor>().as_ref() == Ok(vendor));
        let labelled_model =
            self.labels.get(MODEL_LABEL).map(|text| text.parse::<Model>().as_ref() == Ok(model));
        match (labelled_vendor, labelled_model) {
            (Some(vendor), Some(model)) => vendor && model,
            (vendor_fits, model_fits) => {
                vendor_fits.unwrap_or(true)
                    && model_fits.unwrap_or(true)
                    && self.entries.iter().any(|entry| is_for_server(&entry.file, vendor, model))
            }
        }
    }
}

fn is_for_server(file: &FirmwareFile, vendor: &Vendor, model: &Model) -> bool {
    file.component.is_of_server() && file.vendor == *vendor && file.models().contains(model)
}

fn shown(entry: &Entry) -> String {
    format!("{} {}", entry.file, entry.digest)
}

/// Why no set was chosen.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MatchError {
    /// No set fits.
    #[error("no firmware set fits a server {vendor} {model}{labels}; `shoal firmware set create` makes one")]
    NoSet {
        /// The vendor of the server.
        vendor: Vendor,
        /// The model of the server.
        model: Model,
        /// The wanted labels, as text.
        labels: String,
    },
    /// Several sets fit.
    #[error(
        "{} firmware sets fit a server {vendor} {model}{labels}: {}; name one, or give a label that only one has",
        .names.len(), .names.join(", ")
    )]
    SeveralSets {
        /// The vendor of the server.
        vendor: Vendor,
        /// The model of the server.
        model: Model,
        /// The wanted labels, as text.
        labels: String,
        /// The names of the sets.
        names: Vec<String>,
    },
}

/// The one set that fits a server of this vendor and model and has all wanted labels.
///
/// # Errors
/// [`MatchError::NoSet`] when none fits, [`MatchError::SeveralSets`] with their names when more than one does.
pub fn choose<'a>(
    sets: &'a [FirmwareSet],
    vendor: &Vendor,
    model: &Model,
    wanted: &BTreeMap<String, String>,
) -> Result<&'a FirmwareSet, MatchError> {
    let labelled = |set: &&FirmwareSet| wanted.iter().all(|(key, value)| set.labels.get(key) == Some(value));
    let fitting: Vec<&FirmwareSet> =
        sets.iter().filter(|set| set.fits(vendor, model)).filter(labelled).collect();
    let labels = || {
        let all: Vec<String> = wanted.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if all.is_empty() { String::new() } else { format!(" with {}", all.join(", ")) }
    };
    match fitting.as_slice() {
        [one] => Ok(one),
        [] => Err(MatchError::NoSet { vendor: vendor.clone(), model: model.clone(), labels: labels() }),
        many => {
            let mut names: Vec<String> = many.iter().map(|set| set.name.to_string()).collect();
            names.sort();
            let (vendor, model) = (vendor.clone(), model.clone());
            Err(MatchError::SeveralSets { vendor, model, labels: labels(), names })
        }
    }
}
