//! `oci_url` of a recipe: `[HOST[:PORT]/]NAME[:TAG][@sha256:HEX]`, without a scheme.
//!
//! The grammar is that of the distribution specification (name components of lower-case letters and digits with
//! single separators, tags of at most 128 characters). The first component is a host if it contains a dot or a colon, or
//! is `localhost`, as in other OCI clients. The schema checks a part of this; what pulls the image needs all of it.

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
    /// The rule that the text breaks.
    pub rule: &'static str,
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
#[must_use]
pub fn is_sha256(digest: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_parsed_as_other_oci_clients_do() {
        let parse = |text| {
            let reference = ImageReference::parse(text).unwrap();
            (reference.host.unwrap_or_default(), reference.repository, reference.selector.as_str().to_owned())
        };
        let of =
            |host: &str, repository: &str, selector: &str| (host.into(), repository.into(), selector.into());
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(
            parse("c.internal:8080/os-images/ubuntu-rootfs:22.04"),
            of("c.internal:8080", "os-images/ubuntu-rootfs", "22.04")
        );
        assert_eq!(parse("localhost/a"), of("localhost", "a", "latest"));
        assert_eq!(parse("localhost:5000/a"), of("localhost:5000", "a", "latest"));
        assert_eq!(parse("library/a:1"), of("", "library/a", "1"));
        assert_eq!(parse("a__b/c--d.e"), of("", "a__b/c--d.e", "latest"));
        assert_eq!(parse(&format!("h.x/a:1@{digest}")), of("h.x", "a", &digest));
        for bad in [
            "",
            "http://h.x/a",
            "h.x/",
            "h.x/A",
            "h.x/a:",
            "h.x/a:.x",
            "h.x/../a",
            "h.x/a..b",
            "h.x/a___b",
            "h.x/a@sha256:zz",
            "h.x/a@md5:aa",
            "h.x/-a",
            "h.x/a?b=c",
            "h.x/a/",
            "h.x/a b",
        ] {
            assert!(ImageReference::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reference_parser_panic_or_return_a_path_with_dots(text in "[a-z0-9:/@._%?#A-Z-]{0,60}") {
            if let Ok(reference) = ImageReference::parse(&text) {
                prop_assert!(!reference.repository.split('/').any(|part| part.is_empty() || part == ".."));
                prop_assert!(!reference.selector.as_str().contains(['/', '?', '#', '%']));
            }
        }
    }
}
