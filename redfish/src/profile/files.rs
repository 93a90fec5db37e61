//! The profile files, embedded and parsed once.
//!
//! ```text
//!   title = "…"
//!   [[detect]]                vendor = ["…"], product, oem, model, manager, media, firmware_from, firmware_before
//!   [flags]
//!   vm_path = { value = "manager", source = "…", verified = true }
//! ```
//!
//! The name of a profile is that of its file. A test parses every file, so a file that does not parse never reaches
//! a release.

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

/// Name and text of every file; of two rules with one weight, that of the earlier file is taken.
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
    /// Name of the flag.
    pub flag: String,
    /// Value of the flag.
    pub value: Value,
    /// The source from which the value is known.
    pub source: String,
    /// Whether it was seen on hardware or in a capture of it, or is in the vendor's documents or code, or in the code of
    /// another Redfish client.
    pub verified: bool,
}

/// The text of a file, parsed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    title: String,
    #[serde(default)]
    detect: Vec<Rule>,
    #[serde(default)]
    flags: BTreeMap<String, RowText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText {
    value: Value,
    source: String,
    verified: bool,
}

/// A parsed file.
pub(super) struct ProfileFile {
    pub(super) profile: Profile,
    pub(super) detect: Vec<Rule>,
    pub(super) rows: Vec<Row>,
}

impl ProfileFile {
    pub(super) fn parse(name: &'static str, text: &str) -> Result<Self, String> {
        let text: FileText = toml::from_str(text).map_err(|why| format!("profile {name}: {why}"))?;
        let rows = text.flags.into_iter().map(|(flag, row)| Row {
            flag,
            value: row.value,
            source: row.source,
            verified: row.verified,
        });
        let rows: Vec<Row> = rows.collect();
        let values: Map<String, Value> =
            rows.iter().map(|row| (row.flag.clone(), row.value.clone())).collect();
        let flags = Flags::parse(&values).map_err(|why| format!("profile {name}: {why}"))?;
        let profile = Profile { name, title: text.title, ..Profile::generic() }.with(&flags);
        Ok(ProfileFile { profile, detect: text.detect, rows })
    }
}

/// Every profile, in the order of the files.
pub(super) fn profile_files() -> &'static [ProfileFile] {
    static PROFILE_FILES: LazyLock<Vec<ProfileFile>> = LazyLock::new(|| {
        #[expect(
            clippy::expect_used,
            reason = "the files are part of the program; a test parses each of them"
        )]
        let parse = |(name, text): &(&'static str, &str)| {
            ProfileFile::parse(name, text).expect("an embedded profile file parses")
        };
        FILES.iter().map(parse).collect()
    });
    &PROFILE_FILES
}
