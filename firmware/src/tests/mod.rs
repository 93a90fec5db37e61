//! Tests of the crate through its public functions.

mod artifact;
mod catalogue;
mod matching;
mod plan;
mod recognise;
mod verified;
mod version;

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Component, Entry, FirmwareFile, FirmwareSet, Sha256Digest};

/// A file for models divided by `;`.
fn file(vendor: &str, models: &str, component: Component, version: &str) -> FirmwareFile {
    let models = models.split(';').map(|model| model.parse().unwrap()).collect();
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().zip(version.bytes().chain(component.as_str().bytes())) {
        *place = byte;
    }
    let name = format!("{component}-{}.bin", version.replace(['/', ' '], "-")).parse().unwrap();
    let of = (vendor.parse().unwrap(), models, component);
    FirmwareFile::new(of, version, (name, Sha256Digest::new(bytes), 1_000)).unwrap()
}

fn entry(file: FirmwareFile) -> Entry {
    let digest = format!("sha256:{}-{}-{}", file.component, file.version(), file.models().first().unwrap());
    Entry { repository: crate::repository(&file.vendor, file.component), digest, file }
}

fn labelled(name: &str, labels: &[(&str, &str)], files: Vec<FirmwareFile>) -> FirmwareSet {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    FirmwareSet::new(name.parse().unwrap(), labels, files.into_iter().map(entry).collect()).unwrap()
}

fn set(files: Vec<FirmwareFile>) -> FirmwareSet {
    labelled("a-set", &[], files)
}

/// Compares a text with a golden file.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "UPDATE_GOLDEN=1 rewrites {}", path.display());
}
