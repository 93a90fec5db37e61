//! The functions of the fuzz targets: one for each parser of bytes from outside. The tests run them over their inputs too.

use std::ops::ControlFlow;

use crate::artifact::read_manifest;
use crate::catalogue::{Limited, Listed, dell, hpe, lenovo};
use crate::file::MAX_MODELS;

/// The most bytes that a target reads; the limits of the parsers are above it.
const MAX: u64 = 8 << 20;

fn small(listed: &Listed) {
    let models = listed.systems.len().max(listed.devices.len());
    assert!(models <= MAX_MODELS + 1, "{models} models");
}

fn each(listed: Listed) -> ControlFlow<()> {
    small(&listed);
    ControlFlow::Continue(())
}

/// The XML catalogue of all systems.
pub fn catalogue_dell(data: &[u8]) {
    let _malformed = dell::read(Limited::new(data, MAX), &mut each);
}

/// The JSON catalogue of a repository.
pub fn catalogue_hpe(data: &[u8]) {
    let _malformed = hpe::read(data, &mut each);
}

/// The XML file of a package, and the JSON index of packages.
pub fn catalogue_lenovo(data: &[u8]) {
    if let Ok(Some(listed)) = lenovo::package(data, "lnvgy_fw_uefi_a-1.0_x") {
        small(&listed);
    }
    let _malformed = lenovo::index(data, &mut each);
}

/// The manifest of an artifact. What can be read is written and read again without a difference.
pub fn artifact(data: &[u8]) {
    if let Ok(Some(file)) = read_manifest(data) {
        let again = read_manifest(&crate::artifact::manifest(&file));
        assert_eq!(again.as_ref().map(Option::as_ref), Ok(Some(&file)));
    }
}
