//! The source of a maintenance image, and the validator that shows whether it has changed.
//!
//! ```text
//! /srv/maintenance.iso        file:///srv/maintenance.iso      File   validated by length and modification time
//! http(s)://host/path?query                                    Web    validated by entity tag
//! oci:repository[:tag][@sha256:…]                              Own    an image of the controller's registry, by digest
//! ```
//!
//! Invariant: a URL is shown without user, password and query, because they may be secrets.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use http::HeaderValue;
use url::Url;

use super::super::body::ImageDigest;
use super::ImportError;

/// A location from which an image can be imported.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum ImageSource {
    File(PathBuf),
    Web(Url),
    Own(OwnName),
}

/// The name of an image in the registry of the controller.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct OwnName {
    /// The repository.
    pub repository: String,
    /// The tag or the digest.
    pub reference: String,
}

impl OwnName {
    /// Parses what follows `oci:`. The registry checks the grammar of both parts.
    fn parse(text: &str) -> Option<Self> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        // A host would have a dot or a port in the first component.
        let first = rest.split('/').next().unwrap_or_default();
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
            _ => (rest, None),
        };
        let has_host = rest.contains('/') && first.contains(['.', ':']);
        let reference = digest.or(tag).unwrap_or("latest");
        (!has_host && !repository.is_empty() && !repository.starts_with('/') && !reference.is_empty())
            .then(|| Self { repository: repository.to_owned(), reference: reference.to_owned() })
    }
}

impl fmt::Display for OwnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.reference.contains(':') { '@' } else { ':' };
        write!(f, "oci:{}{separator}{}", self.repository, self.reference)
    }
}

/// The validator of a source: what identified its content when it was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Validator {
    File { len: u64, modified: SystemTime },
    Tag(HeaderValue),
    Digest(ImageDigest),
}

impl ImageSource {
    /// Parses an absolute path or a URL.
    pub(super) fn parse(location: &str) -> Result<Self, ImportError> {
        if location.starts_with('/') {
            return Ok(Self::File(PathBuf::from(location)));
        }
        if let Some(name) = location.strip_prefix("oci:") {
            return OwnName::parse(name).map(Self::Own).ok_or(ImportError::OwnName);
        }
        let url = Url::parse(location).map_err(|_| ImportError::Malformed)?;
        match url.scheme() {
            "file" => url.to_file_path().map(Self::File).map_err(|()| ImportError::Malformed),
            "http" | "https" => Ok(Self::Web(url)),
            scheme => Err(ImportError::Scheme { scheme: scheme.to_owned() }),
        }
    }
}

/// A URL without user, password and query.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// A location as it may be shown: of a URL with user, password, query or fragment only scheme, host and port.
#[must_use]
pub fn shown_location(location: &str) -> String {
    let Ok(url) = Url::parse(location) else { return location.to_owned() };
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    match url.scheme() {
        "http" | "https" if !plain => format!("{}/***", url.origin().ascii_serialization()),
        _ => location.to_owned(),
    }
}

impl fmt::Debug for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Web(url) => f.write_str(&shown(url)),
            Self::Own(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_file_urls_and_web_urls_are_distinguished() {
        let file = ImageSource::File(PathBuf::from("/srv/a b.iso"));
        assert_eq!(ImageSource::parse("/srv/a b.iso").unwrap(), file);
        assert_eq!(ImageSource::parse("file:///srv/a%20b.iso").unwrap(), file);
        assert_eq!(ImageSource::parse("file:/srv/a%20b.iso").unwrap(), file);
        assert!(matches!(ImageSource::parse("http://192.0.2.1/a.iso").unwrap(), ImageSource::Web(_)));
        assert!(
            matches!(ImageSource::parse("ftp://h/boot"), Err(ImportError::Scheme { scheme }) if scheme == "ftp")
        );
        assert!(matches!(ImageSource::parse("file://elsewhere/a.iso"), Err(ImportError::Malformed)));
        assert!(matches!(ImageSource::parse("a.iso"), Err(ImportError::Malformed)));
    }

    #[test]
    fn an_image_of_the_own_registry_has_a_repository_and_a_tag_or_a_digest() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let parse = |text: &str| match ImageSource::parse(text) {
            Ok(ImageSource::Own(name)) => Some((name.to_string(), name.repository, name.reference)),
            _ => None,
        };
        for (text, repository, reference) in [
            ("oci:maintenance/boot:latest", "maintenance/boot", "latest"),
            ("oci:maintenance/boot", "maintenance/boot", "latest"),
            (&format!("oci:maintenance/boot@{digest}"), "maintenance/boot", &*digest),
            (&format!("oci:maintenance/boot:1@{digest}"), "maintenance/boot", &*digest),
            ("oci:boot:1", "boot", "1"),
        ] {
            let (shown, found, selected) = parse(text).unwrap();
            assert_eq!((&*found, &*selected), (repository, reference));
            assert_eq!(parse(&shown).unwrap().2, reference);
        }
        for bad in [
            "oci:",
            "oci::1",
            "oci:c.internal:8080/boot:1",
            "oci:c.internal/boot:1",
            "oci://c/boot:1",
            "oci:boot@",
        ] {
            assert!(matches!(ImageSource::parse(bad), Err(ImportError::OwnName)), "{bad}");
        }
    }

    #[test]
    fn credentials_of_a_location_are_never_printed() {
        let source = ImageSource::parse("https://user:canary@192.0.2.1/a.iso?sig=canary").unwrap();
        assert_eq!(format!("{source:?}"), "https://192.0.2.1/a.iso");
    }

    #[test]
    fn of_a_url_with_credentials_only_the_host_is_shown() {
        for (location, shown) in [
            ("/srv/a.iso", "/srv/a.iso"),
            ("file:///srv/a.iso", "file:///srv/a.iso"),
            ("https://192.0.2.1:8443/canary/a.iso", "https://192.0.2.1:8443/canary/a.iso"),
            ("https://192.0.2.1:8443/a.iso?sig=canary", "https://192.0.2.1:8443/***"),
            ("https://canary@192.0.2.1/a.iso", "https://192.0.2.1/***"),
            ("http://user:canary@iso.example/a.iso#x", "http://iso.example/***"),
        ] {
            assert_eq!(shown_location(location), shown);
        }
    }
}
