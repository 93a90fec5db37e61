//! Hashes of entries, and the heads that name an entry by its number and its hash.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The text whose hash is the predecessor of the first entry of every log. It names the version of the canonical form.
const GENESIS: &str = "shoal audit log, version 1";

/// A SHA-256, in hexadecimal digits as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AuditHash([u8; 32]);

impl AuditHash {
    /// The hash of a canonical form.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl fmt::Display for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for AuditHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || "a hash has 64 lower-case hexadecimal digits".to_owned();
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| refusal())?;
        // Two spellings of one hash would be two texts of one entry.
        (!text.bytes().any(|byte| byte.is_ascii_uppercase())).then_some(Self(bytes)).ok_or_else(refusal)
    }
}

impl TryFrom<String> for AuditHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AuditHash> for String {
    fn from(hash: AuditHash) -> Self {
        hash.to_string()
    }
}

/// The number and the hash of an entry: the newest one of a log, or the last one that was pruned. Written `SEQ:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditHead {
    /// The number of the entry; zero before the first one.
    pub seq: u64,
    /// The hash of the entry.
    pub hash: AuditHash,
}

impl AuditHead {
    /// The predecessor of the first entry: number 0 and the hash of a constant text.
    pub fn genesis() -> Self {
        Self { seq: 0, hash: AuditHash::of(GENESIS) }
    }
}

impl fmt::Display for AuditHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for AuditHead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (seq, hash) = text.split_once(':').ok_or("a head is SEQ:HASH")?;
        let seq = seq.parse().map_err(|_| "the number of a head is a whole number".to_owned())?;
        Ok(Self { seq, hash: hash.parse()? })
    }
}

/// A head that was kept elsewhere: `SEQ:HASH`, or the hash alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHead {
    /// The number of the entry, if it was kept.
    pub seq: Option<u64>,
    /// The hash of the entry.
    pub hash: AuditHash,
}

impl From<AuditHead> for KnownHead {
    fn from(head: AuditHead) -> Self {
        Self { seq: Some(head.seq), hash: head.hash }
    }
}

impl FromStr for KnownHead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains(':') {
            true => text.parse::<AuditHead>().map(Self::from),
            false => Ok(Self { seq: None, hash: text.parse()? }),
        }
    }
}
