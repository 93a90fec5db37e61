//! The catalogue of HPE: `fwrepodata/fwrepo.json`, one object whose names are files.
//!
//! ```text
//!   {"U30_2.36.fwpkg": {"description": "System ROM …", "version": "2.36", "reboot_required": "yes", "target": ["GUID"], …}}
//! ```
//!
//! It states neither models of servers nor checksums. The operator gives the models.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};

use serde::Deserialize;

use super::{Each, Limited, Listed, Malformed, utf8, words};
use crate::file::Restart;
use crate::identity::Vendor;

const VENDOR: &str = "hpe";
/// The most bytes of the document.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    description: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    reboot_required: Option<String>,
}

pub(crate) fn read(input: impl Read, each: &mut Each<'_>) -> Result<(), Malformed> {
    let input = BufReader::new(utf8(Limited::new(input, MAX_BYTES))?);
    let entries: BTreeMap<String, Entry> = serde_json::from_reader(input).map_err(super::json)?;
    let Ok(vendor) = VENDOR.parse::<Vendor>() else { return Ok(()) };
    for (path, entry) in entries {
        let listed = Listed {
            path,
            vendor: vendor.clone(),
            component: words::component(&[&entry.description]),
            title: entry.description,
            version: entry.version,
            systems: BTreeSet::new(),
            devices: BTreeSet::new(),
            size: None,
            checksum: None,
            restart: match entry.reboot_required.as_deref() {
                Some("yes" | "true") => Some(Restart::Host),
                Some("no" | "false") => Some(Restart::None),
                _ => None,
            },
        };
        if each(listed).is_break() {
            break;
        }
    }
    Ok(())
}
