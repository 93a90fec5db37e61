//! The profile files, embedded and parsed once.
//!
//! ```text
//!   title = "…"
//!   [[detect]]                vendor = ["…"], product, oem, model, manager, media, firmware_from, firmware_before
//!   [flags]
//!   vm_path = { value = "manager", source = "…", verified = true }
//! ```
//!
//! The name of a profile is that of its file. A file that does not parse is a mistake in this program, found by
//! the test that parses all of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::detect::Rule;
use super::flags::{Flags, Profile};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*]
    };
}

/// Name and text of every file.
pub(super) static FILES: &[(&str, &str)] = files![
    "generic",
    "dell-idrac8",
    "dell-idrac9-5",
    "dell-idrac9-6",
    "dell-idrac10",
    "hpe-ilo4",
    "hpe-ilo5",
    "hpe-ilo6",
    "lenovo-xcc",
    "lenovo-xcc3",
    "lenovo-tsm",
    "smc-x11-cfgcd",
    "smc-x12",
    "ami-megarac",
    "openbmc",
    "nvidia-gb200",
    "nvidia-dgx-h100",
    "cisco-ucs",
    "fujitsu-irmc",
    "huawei-ibmc",
    "sushy",
];

/// One deviation from the generic profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The flag.
    pub flag: String,
    /// What it is set to.
    pub value: Value,
    /// Where that is known from.
    pub source: String,
    /// Whether it was seen on hardware, in its captures or in the vendor's own documents or code.
    pub verified: bool,
}

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    detect: Vec<Rule>,
    #[serde(default)]
    flags: BTreeMap<String, Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    value: Value,
    source: String,
    verified: bool,
}

/// A parsed file.
pub(super) struct Vendor {
    pub(super) profile: Profile,
    pub(super) detect: Vec<Rule>,
    pub(super) rows: Vec<Row>,
}

impl Vendor {
    pub(super) fn parse(name: &'static str, text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|why| format!("profile {name}: {why}"))?;
        let rows = file.flags.into_iter().map(|(flag, written)| Row {
            flag,
            value: written.value,
            source: written.source,
            verified: written.verified,
        });
        let rows: Vec<Row> = rows.collect();
        let values: Map<String, Value> =
            rows.iter().map(|row| (row.flag.clone(), row.value.clone())).collect();
        let flags = Flags::parse(&values).map_err(|why| format!("profile {name}: {why}"))?;
        let profile = Profile { name, title: file.title, ..Profile::generic() }.with(&flags);
        Ok(Vendor { profile, detect: file.detect, rows })
    }
}

/// Every profile, in the order of the files.
pub(super) fn vendors() -> &'static [Vendor] {
    static VENDORS: LazyLock<Vec<Vendor>> = LazyLock::new(|| {
        #[expect(
            clippy::expect_used,
            reason = "the files are part of the program; a test parses each of them"
        )]
        let parse = |(name, text): &(&'static str, &str)| Vendor::parse(name, text).expect("a sound profile");
        FILES.iter().map(parse).collect()
    });
    &VENDORS
}
