//! A firmware file: what it is for, its version, and the digest and size by which its bytes are known.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use redfish::FirmwareVersion;
use serde::{Deserialize, Serialize};

use crate::identity::{Component, InvalidIdentity, Model, Vendor};

const NAME_MAX: usize = 255;
const VERSION_MAX: usize = 128;
/// The most models of one file.
pub(crate) const MAX_MODELS: usize = 500;

/// A SHA-256 digest.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest in hexadecimal digits, without the name of the algorithm.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256Digest {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits.to_ascii_lowercase(), &mut bytes).map_err(|_| {
            InvalidIdentity::new("SHA-256", text, "a SHA-256 is 64 hexadecimal digits, also after `sha256:`")
        })?;
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = InvalidIdentity;

    fn try_from(text: String) -> Result<Self, InvalidIdentity> {
        text.parse()
    }
}

impl From<Sha256Digest> for String {
    fn from(digest: Sha256Digest) -> Self {
        digest.to_string()
    }
}

/// The name of a file, without folders. BMCs choose by its ending how they read the file.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileName(String);

impl FileName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FileName {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let sign = |sign: char| !sign.is_control() && sign != '/' && sign != '\\';
        if text.is_empty() || text.len() > NAME_MAX || text == "." || text == ".." || !text.chars().all(sign)
        {
            let rule = format!("a file name has at most {NAME_MAX} bytes and no folder");
            return Err(InvalidIdentity::new("file name", text, rule));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for FileName {
    type Error = InvalidIdentity;

    fn try_from(text: String) -> Result<Self, InvalidIdentity> {
        text.parse()
    }
}

impl From<FileName> for String {
    fn from(name: FileName) -> Self {
        name.0
    }
}

/// Whether the host must restart before a file is in use.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// The BMC puts the file into use without the host.
    None,
    /// The host restarts.
    Host,
}

impl Restart {
    /// Returns the restart that is assumed for a component when nothing else is known.
    pub const fn of(component: Component) -> Self {
        match component {
            Component::Bmc => Self::None,
            _ => Self::Host,
        }
    }

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
        }
    }
}

impl FromStr for Restart {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        match text {
            "none" => Ok(Self::None),
            "host" => Ok(Self::Host),
            _ => Err(InvalidIdentity::new("kind of restart", text, "the kinds are none and host")),
        }
    }
}

/// A firmware file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "StoredFile")]
pub struct FirmwareFile {
    /// The vendor that made the file.
    pub vendor: Vendor,
    /// The models that the file is for; at least one.
    models: BTreeSet<Model>,
    /// The component that the file is for.
    pub component: Component,
    version: FirmwareVersion,
    /// The name of the file.
    pub filename: FileName,
    /// The digest of the bytes.
    pub sha256: Sha256Digest,
    /// The length in bytes.
    pub size: u64,
    /// Whether the host must restart.
    pub restart: Restart,
}

/// A stored file before it was checked.
#[derive(Deserialize)]
struct StoredFile {
    vendor: Vendor,
    models: BTreeSet<Model>,
    component: Component,
    version: String,
    filename: FileName,
    sha256: Sha256Digest,
    size: u64,
    restart: Restart,
}

impl TryFrom<StoredFile> for FirmwareFile {
    type Error = InvalidIdentity;

    fn try_from(stored: StoredFile) -> Result<Self, InvalidIdentity> {
        let StoredFile { vendor, models, component, version, filename, sha256, size, restart } = stored;
        let file = Self::new((vendor, models, component), &version, (filename, sha256, size))?;
        Ok(Self { restart, ..file })
    }
}

impl FirmwareFile {
    /// A file. The restart is that of the component; see [`Self::restart`].
    ///
    /// # Errors
    /// When there is no model or too many, when the version is empty or too long, or when the file is empty.
    pub fn new(
        (vendor, models, component): (Vendor, BTreeSet<Model>, Component),
        version: &str,
        (filename, sha256, size): (FileName, Sha256Digest, u64),
    ) -> Result<Self, InvalidIdentity> {
        let version = version.trim();
        if version.is_empty() || version.len() > VERSION_MAX || version.chars().any(char::is_control) {
            let rule = format!("a version is printable text of at most {VERSION_MAX} bytes");
            return Err(InvalidIdentity::new("version", version, rule));
        }
        if !(1..=MAX_MODELS).contains(&models.len()) {
            let rule = format!("a file is for 1 to {MAX_MODELS} models");
            return Err(InvalidIdentity::new("list of models", &models.len().to_string(), rule));
        }
        if size == 0 {
            return Err(InvalidIdentity::new("firmware file", filename.as_str(), "the file is empty"));
        }
        let restart = Restart::of(component);
        Ok(Self { vendor, models, component, version: version.into(), filename, sha256, size, restart })
    }

    /// The models that the file is for.
    pub fn models(&self) -> &BTreeSet<Model> {
        &self.models
    }

    /// The version that is installed afterwards.
    pub fn version(&self) -> &FirmwareVersion {
        &self.version
    }

    /// Whether both files are for one component of one model, so that one of them would have to win.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.component == other.component
            && self.vendor == other.vendor
            && self.models.intersection(&other.models).next().is_some()
    }
}

impl fmt::Display for FirmwareFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vendor, component, version, filename, .. } = self;
        write!(f, "{vendor} {component} {version} ({filename})")
    }
}
