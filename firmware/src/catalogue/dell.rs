//! The catalogue of Dell: one XML file for all systems.
//!
//! ```text
//!   <Manifest baseLocation=…>
//!     <SoftwareComponent path=… hashMD5=… size=… vendorVersion=… packageType=… rebootRequired=…>
//!       <Name><Display>…   <ComponentType value="BIOS|FRMW|DRVR|APAC">   <Category value=…><Display>…
//!       <SupportedDevices><Device componentID=…><Display>…
//!       <SupportedSystems><Brand><Display>PowerEdge   <Model systemID=…><Display>R640
//! ```
//!
//! Listed are the types BIOS and FRMW in the form that the BMC takes, which is the package for Windows (`.EXE`) and images of
//! the BMC itself (`.d9`, `.pm`); the same file comes again as a package for Linux, which the BMC refuses.

use std::collections::BTreeSet;
use std::io::Read;

use super::words;
use super::xml::{Element, Piece, Xml};
use super::{Checksum, Each, Listed, Malformed, add_model, utf8};
use crate::file::Restart;
use crate::identity::{Component, Model, Vendor};

const VENDOR: &str = "dell";
/// The endings of the files that the BMC takes.
const ENDINGS: [&str; 7] = ["exe", "d7", "d9", "d10", "pm", "usc", "efi"];

/// The values of an entry that have been read so far.
#[derive(Default)]
struct Entry {
    path: String,
    version: String,
    md5: Option<Checksum>,
    size: Option<u64>,
    restart: Option<Restart>,
    kind: String,
    title: String,
    category: String,
    devices: BTreeSet<Model>,
    brand: String,
    systems: BTreeSet<Model>,
}

pub(crate) fn read(input: impl Read, each: &mut Each<'_>) -> Result<(), Malformed> {
    let mut xml = Xml::new(utf8(input)?);
    let mut open: Vec<String> = Vec::new();
    let mut entry: Option<Entry> = None;
    let mut text = String::new();
    while let Some(piece) = xml.next()? {
        match piece {
            Piece::Start(element) => {
                text.clear();
                match (&mut entry, element.name.as_str()) {
                    (none @ None, "SoftwareComponent") => *none = Some(begun(&element)),
                    (Some(entry), "ComponentType") => {
                        entry.kind = element.attribute("value").unwrap_or_default().to_owned();
                    }
                    (Some(entry), "Brand") => entry.brand.clear(),
                    _ => {}
                }
                open.push(element.name);
            }
            Piece::Text(more) => text.push_str(&more),
            Piece::End => {
                let name = open.pop().unwrap_or_default();
                let inside = open.last().map(String::as_str).unwrap_or_default();
                match (&mut entry, name.as_str()) {
                    (Some(entry), "Display") => entry.display(inside, text.trim()),
                    (found @ Some(_), "SoftwareComponent") => {
                        let listed = found.take().and_then(Entry::listed);
                        if listed.is_some_and(|listed| each(listed).is_break()) {
                            return Ok(());
                        }
                    }
                    _ => {}
                }
                text.clear();
            }
        }
    }
    Ok(())
}

fn begun(element: &Element) -> Entry {
    let text = |name: &str| element.attribute(name).unwrap_or_default().to_owned();
    let version = Some(text("vendorVersion")).filter(|version| !version.is_empty());
    Entry {
        path: text("path"),
        version: version.unwrap_or_else(|| text("dellVersion")),
        md5: element.attribute("hashMD5").and_then(Checksum::of_hex),
        size: element.attribute("size").and_then(|size| size.parse().ok()),
        restart: match element.attribute("rebootRequired") {
            Some("true") => Some(Restart::Host),
            Some("false") => Some(Restart::None),
            _ => None,
        },
        ..Entry::default()
    }
}

impl Entry {
    /// A name for people, of the element that contains it. The first of several languages counts.
    fn display(&mut self, of: &str, text: &str) {
        let set = |place: &mut String| {
            if place.is_empty() {
                *place = text.to_owned();
            }
        };
        match of {
            "Name" => set(&mut self.title),
            "Category" => set(&mut self.category),
            "Brand" => set(&mut self.brand),
            "Device" => add_model(&mut self.devices, text),
            "Model" => {
                // BMCs name the model with its brand, some catalogues without.
                add_model(&mut self.systems, text);
                add_model(&mut self.systems, &format!("{} {text}", self.brand));
            }
            _ => {}
        }
    }

    fn listed(self) -> Option<Listed> {
        let component = match self.kind.as_str() {
            "BIOS" => Some(Component::Bios),
            "FRMW" => words::component(&[&self.category, &self.title]),
            _ => return None,
        };
        let ending = self.path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        if !ENDINGS.contains(&ending.as_str()) {
            return None;
        }
        let vendor: Vendor = VENDOR.parse().ok()?;
        Some(Listed {
            path: self.path,
            vendor,
            title: self.title,
            version: self.version,
            component,
            systems: self.systems,
            devices: self.devices,
            size: self.size,
            checksum: self.md5,
            restart: self.restart,
        })
    }
}
