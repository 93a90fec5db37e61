//! Content digests: `algorithm ":" encoded`, as the image specification writes them.
//!
//! ```text
//! sha256:<64 lowercase hex>      the algorithm every client supports; tags pushed by name use it
//! sha512:<128 lowercase hex>     accepted wherever a client uses it
//! ```
//!
//! A [`Digest`] exists only in canonical form, so its text is a safe file name, and equal content never has two names.
//! Upper-case hex, other algorithms and other lengths do not parse.
//!
//! Specification: image-spec `descriptor.md`, "Digests".

use std::fmt;
use std::str::FromStr;

use oci_spec::image as oci;
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest as _, Sha256, Sha512};

/// A content digest in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

/// A hash function of content digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256, which every registry and client must support.
    Sha256,
    /// SHA-512, which registries and clients may support.
    Sha512,
}

/// Why a text is not a digest of this registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDigest {
    /// There is no `:` between algorithm and value.
    #[error("a digest is written algorithm:hex")]
    Form,
    /// The algorithm is not one of [`Algorithm`].
    #[error("the digest algorithm is not supported; use sha256 or sha512")]
    Algorithm,
    /// The value is not lowercase hex of the algorithm's length.
    #[error("the digest value is not lowercase hex of the algorithm's length")]
    Value,
}

impl Digest {
    /// The digest of `bytes` under `algorithm`.
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The hash function.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The value as lowercase hex.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl Algorithm {
    /// Every algorithm, in the order of their names.
    pub const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

    /// The name before the colon, which is also the name of the directory in the pool.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    fn hex_length(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha512 => 128,
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.as_str(), self.hex)
    }
}

impl FromStr for Algorithm {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        Algorithm::ALL.into_iter().find(|known| known.as_str() == text).ok_or(InvalidDigest::Algorithm)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let (algorithm, hex) = text.split_once(':').ok_or(InvalidDigest::Form)?;
        let algorithm: Algorithm = algorithm.parse()?;
        let lowercase_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if hex.len() != algorithm.hex_length() || !hex.bytes().all(lowercase_hex) {
            return Err(InvalidDigest::Value);
        }
        Ok(Digest { algorithm, hex: hex.to_owned() })
    }
}

impl TryFrom<&oci::Digest> for Digest {
    type Error = InvalidDigest;

    fn try_from(digest: &oci::Digest) -> Result<Self, InvalidDigest> {
        digest.as_ref().parse()
    }
}

impl From<&Digest> for oci::Digest {
    #[expect(
        clippy::expect_used,
        reason = "our grammar is a subset of the crate's: both take canonical sha256/512"
    )]
    fn from(digest: &Digest) -> Self {
        digest.to_string().parse().expect("a canonical digest")
    }
}

/// A running hash.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Hasher::Sha256(_) => Algorithm::Sha256,
            Hasher::Sha512(_) => Algorithm::Sha512,
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hash) => hash.update(bytes),
            Hasher::Sha512(hash) => hash.update(bytes),
        }
    }

    /// The state of the hash, for [`Hasher::from_state`].
    pub(crate) fn state(&self) -> Vec<u8> {
        match self {
            Hasher::Sha256(hash) => hash.serialize().to_vec(),
            Hasher::Sha512(hash) => hash.serialize().to_vec(),
        }
    }

    /// Continues a hash; `None` when `state` is not a state of this algorithm.
    pub(crate) fn from_state(algorithm: Algorithm, state: &[u8]) -> Option<Self> {
        match algorithm {
            Algorithm::Sha256 => Some(Hasher::Sha256(Sha256::deserialize(state.try_into().ok()?).ok()?)),
            Algorithm::Sha512 => Some(Hasher::Sha512(Sha512::deserialize(state.try_into().ok()?).ok()?)),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        let algorithm = self.algorithm();
        let hex = match self {
            Hasher::Sha256(hash) => hex::encode(hash.finalize()),
            Hasher::Sha512(hash) => hex::encode(hash.finalize()),
        };
        Digest { algorithm, hex }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_empty_content_is_the_published_one() {
        assert_eq!(
            Digest::of(Algorithm::Sha256, b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            Digest::of(Algorithm::Sha512, b"").to_string(),
            "sha512:cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
             47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e"
        );
    }

    #[test]
    fn only_the_canonical_form_parses() {
        let digest = Digest::of(Algorithm::Sha256, b"x").to_string();
        assert_eq!(digest.parse::<Digest>().unwrap().to_string(), digest);
        assert_eq!(digest.to_uppercase().parse::<Digest>(), Err(InvalidDigest::Algorithm));
        assert_eq!(
            format!("sha256:{}", &digest[7..].to_uppercase()).parse::<Digest>(),
            Err(InvalidDigest::Value)
        );
        assert_eq!("sha256:../../etc/passwd".parse::<Digest>(), Err(InvalidDigest::Value));
        assert_eq!("sha256".parse::<Digest>(), Err(InvalidDigest::Form));
        assert_eq!("blake3:00".parse::<Digest>(), Err(InvalidDigest::Algorithm));
        assert_eq!(digest[..digest.len() - 1].parse::<Digest>(), Err(InvalidDigest::Value));
    }

    #[test]
    fn a_digest_survives_the_descriptor_types() {
        for algorithm in Algorithm::ALL {
            let digest = Digest::of(algorithm, b"content");
            assert_eq!(Digest::try_from(&oci::Digest::from(&digest)).unwrap(), digest);
        }
    }
}
