//! `oci_url` of a recipe: `[HOST[:PORT]/]NAME[:TAG][@sha256:HEX]`, without a scheme.
//!
//! The grammar is that of the distribution specification (name components of lower-case letters and digits with
//! single separators, tags of at most 128 characters). The first component is a host if it contains a dot or a colon, or
//! is `localhost`, as in other OCI clients.

use thiserror::Error;

/// A parsed image reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// The host, if the reference has one.
    pub host: Option<String>,
    /// Repository name, which may contain slashes.
    pub repository: String,
    /// Tag or digest of the manifest.
    pub selector: Selector,
}

/// A manifest, selected by tag or by digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// A tag; `latest` if the reference has none.
    Tag(String),
    /// `sha256:` and 64 hex digits.
    Digest(String),
}

impl Selector {
    /// The tag or digest as it is used in URLs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tag(text) | Self::Digest(text) => text,
        }
    }
}

/// The text is not an image reference.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("oci_url {text:?}: {rule}; write HOST:PORT/name:tag or HOST:PORT/name@sha256:…")]
pub struct ImageReferenceError {
    text: String,
    rule: &'static str,
}

impl ImageReference {
    /// Parses a reference.
    ///
    /// # Errors
    /// Returns an error that names the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, ImageReferenceError> {
        let refuse = |rule| ImageReferenceError { text: text.chars().take(256).collect(), rule };
        if text.contains("://") {
            return Err(refuse("it must not have a scheme"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (host, rest) = match rest.split_once('/') {
            Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => {
                (Some(first.to_owned()), rest)
            }
            _ => (None, rest),
        };
        // A colon here separates the tag: the port of the host is already removed.
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
            _ => (rest, None),
        };
        if repository.len() > 255 || !repository.split('/').all(is_component) {
            return Err(refuse("the repository name is not valid"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(refuse("the tag is not valid"));
        }
        let selector = match digest {
            Some(digest) if is_sha256(digest) => Selector::Digest(digest.to_owned()),
            Some(_) => return Err(refuse("the digest is not sha256 and 64 lower-case hex digits")),
            None => Selector::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self { host, repository: repository.to_owned(), selector })
    }
}

/// Whether a text consists of `sha256:` and 64 lower-case hex digits.
pub(super) fn is_sha256(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn is_component(component: &str) -> bool {
    // Alphanumeric runs joined by one of: '.', '_', '__', any number of '-'.
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| alphanumeric(*byte));
    if !ends(bytes.first()) || !ends(bytes.last()) {
        return false;
    }
    component.split(|character: char| character.is_ascii_lowercase() || character.is_ascii_digit()).all(
        |separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-'),
    )
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = tag.as_bytes();
    bytes.first().is_some_and(|byte| word(*byte))
        && bytes.len() <= 128
        && bytes.iter().all(|byte| word(*byte) || matches!(byte, b'.' | b'-'))
}
