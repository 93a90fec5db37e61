//! The catalogues of Lenovo: an XML file beside each package, or a JSON index of packages.
//!
//! ```text
//!   lnvgy_fw_uefi_ive176h-3.20_anyos_32-64.xml    <INSTANCE …>
//!                                                   <PROPERTY NAME="Version"><VALUE>3.20  <PROPERTY NAME="payload"><VALUE>….uxz
//!                                                   <PROPERTY.ARRAY NAME="applicableMachineTypes"> … <VALUE>[7X06]
//!   lnvgy_index.json                              {"Data": [{"FixID": "lnvgy_fw_…", "ComponentID": "UEFI",
//!                                                            "Files": [{"Type": "Fix", "URL": ….uxz, "FileHash": …}]}]}
//! ```
//!
//! A model is a machine type of four characters. The version is the number in it, else the one in the name of the package.

use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::xml::{Piece, Xml};
use super::{Checksum, Each, Limited, Listed, Malformed, add_model, utf8, words};
use crate::identity::{Model, Vendor};

/// The beginning of the names of packages and of what describes them.
pub(crate) const PREFIX: &str = "lnvgy_";
const VENDOR: &str = "lenovo";
/// The most bytes of a document.
const MAX_BYTES: u64 = 64 << 20;

pub(crate) fn read(input: impl Read, path: &Path, each: &mut Each<'_>) -> Result<(), Malformed> {
    let input = Limited::new(input, MAX_BYTES);
    if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("json")) {
        return index(input, each);
    }
    let package = path.file_stem().unwrap_or_default().to_string_lossy();
    if let Some(listed) = self::package(input, &package)? {
        let _one_entry = each(listed);
    }
    Ok(())
}

/// The XML of one package.
pub(crate) fn package(input: impl Read, package: &str) -> Result<Option<Listed>, Malformed> {
    let mut xml = Xml::new(utf8(input)?);
    let (mut property, mut text) = (String::new(), String::new());
    let (mut version, mut payload, mut category) = (String::new(), String::new(), String::new());
    let mut models = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    while let Some(piece) = xml.next()? {
        match piece {
            Piece::Start(element) => {
                text.clear();
                if element.name.starts_with("PROPERTY") {
                    property = element.attribute("NAME").unwrap_or_default().to_ascii_lowercase();
                }
                open.push(element.name);
            }
            Piece::Text(more) => text.push_str(&more),
            Piece::End => {
                let name = open.pop().unwrap_or_default();
                let value = text.trim();
                match (name.as_str(), property.as_str()) {
                    ("VALUE", "version") => set(&mut version, value),
                    ("VALUE", "payload") => set(&mut payload, value),
                    ("VALUE", "category") => set(&mut category, value),
                    ("VALUE", "applicablemachinetypes") => {
                        machine_types(value).for_each(|kind| add_model(&mut models, kind));
                    }
                    (ended, _) if ended.starts_with("PROPERTY") => property.clear(),
                    _ => {}
                }
                text.clear();
            }
        }
    }
    if payload.is_empty() {
        return Ok(None);
    }
    Ok(listed(package, (payload, None), &version, &category, models))
}

fn set(place: &mut String, value: &str) {
    if place.is_empty() {
        *place = value.to_owned();
    }
}

/// The machine types in brackets: `[7X06][7X05]`.
fn machine_types(text: &str) -> impl Iterator<Item = &str> {
    text.split('[').skip(1).filter_map(|rest| rest.split(']').next())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Index {
    data: Vec<Package>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Package {
    #[serde(rename = "FixID")]
    fix_id: String,
    #[serde(rename = "ComponentID", default)]
    component_id: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    files: Vec<PackageFile>,
}

#[derive(Deserialize)]
struct PackageFile {
    #[serde(rename = "Type", default)]
    kind: String,
    #[serde(rename = "URL", default)]
    url: String,
    #[serde(rename = "FileHash", default)]
    hash: Option<String>,
}

/// The JSON index of packages.
pub(crate) fn index(input: impl Read, each: &mut Each<'_>) -> Result<(), Malformed> {
    let input = BufReader::new(utf8(input)?);
    let index: Index = serde_json::from_reader(input).map_err(super::json)?;
    for package in index.data {
        let Some(file) = package.files.iter().find(|file| file.kind == "Fix") else { continue };
        let name = file.url.split(['?', '#']).next().unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        let checksum = file.hash.as_deref().and_then(Checksum::of_hex);
        let version = package.version.as_deref().unwrap_or_default();
        let component = &package.component_id;
        let listed = listed(&package.fix_id, (name, checksum), version, component, BTreeSet::new());
        if listed.is_some_and(|listed| each(listed).is_break()) {
            break;
        }
    }
    Ok(())
}

fn listed(
    package: &str,
    (path, checksum): (String, Option<Checksum>),
    version: &str,
    category: &str,
    models: BTreeSet<Model>,
) -> Option<Listed> {
    // `lnvgy_fw_uefi_ive176h-3.20_anyos_32-64`: the kind, the build and the version.
    let parts: Vec<&str> = package.split('_').collect();
    let dotted = version.split_whitespace().find(|word| word.contains('.'));
    let named = parts.iter().filter_map(|part| part.split_once('-')).map(|(_, number)| number);
    let version = dotted.or_else(|| named.into_iter().find(|number| number.contains('.'))).unwrap_or(version);
    Some(Listed {
        path,
        vendor: VENDOR.parse::<Vendor>().ok()?,
        component: words::component(&[parts.get(2).copied().unwrap_or_default(), category]),
        title: package.to_owned(),
        version: version.to_owned(),
        // A package is for machines, whatever its component.
        systems: models.clone(),
        devices: models,
        size: None,
        checksum,
        restart: None,
    })
}
