//! Where an image comes from, and how we know that it is still the same one.
//!
//! ```text
//! /srv/maintenance.iso        file:///srv/maintenance.iso      File   validated by length and modification time
//! http(s)://host/path?query                                    Web    validated by entity tag
//! ```
//!
//! Invariant: what is shown of a web location has neither user, password nor query, since those may be secrets.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use http::HeaderValue;
use url::Url;

use super::ImportError;

/// A location that can be imported.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Source {
    File(PathBuf),
    Web(Url),
}

/// What a source looked like when it was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Validator {
    File { len: u64, modified: SystemTime },
    Tag(HeaderValue),
}

impl Source {
    /// Takes an absolute path or a URL.
    pub(super) fn parse(location: &str) -> Result<Self, ImportError> {
        if location.starts_with('/') {
            return Ok(Self::File(PathBuf::from(location)));
        }
        let url = Url::parse(location).map_err(|_| ImportError::Malformed)?;
        match url.scheme() {
            "file" => url.to_file_path().map(Self::File).map_err(|()| ImportError::Malformed),
            "http" | "https" => Ok(Self::Web(url)),
            scheme => Err(ImportError::Scheme { scheme: scheme.to_owned() }),
        }
    }
}

/// A URL without what may be secret in it.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Web(url) => f.write_str(&shown(url)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_told_apart() {
        let file = Source::File(PathBuf::from("/srv/a b.iso"));
        assert_eq!(Source::parse("/srv/a b.iso").unwrap(), file);
        assert_eq!(Source::parse("file:///srv/a%20b.iso").unwrap(), file);
        assert_eq!(Source::parse("file:/srv/a%20b.iso").unwrap(), file);
        assert!(matches!(Source::parse("http://192.0.2.1/a.iso").unwrap(), Source::Web(_)));
        assert!(
            matches!(Source::parse("oci:tools/boot:1"), Err(ImportError::Scheme { scheme }) if scheme == "oci")
        );
        assert!(matches!(Source::parse("file://elsewhere/a.iso"), Err(ImportError::Malformed)));
        assert!(matches!(Source::parse("a.iso"), Err(ImportError::Malformed)));
    }

    #[test]
    fn credentials_of_a_location_are_never_printed() {
        let source = Source::parse("https://user:canary@192.0.2.1/a.iso?sig=canary").unwrap();
        assert_eq!(format!("{source:?}"), "https://192.0.2.1/a.iso");
    }
}
