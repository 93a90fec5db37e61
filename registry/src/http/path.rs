//! Request paths.
//!
//! ```text
//! /v2/                                  the version check
//! /v2/<name>/blobs/<digest>             blob
//! /v2/<name>/blobs/uploads/             start of an upload
//! /v2/<name>/blobs/uploads/<uuid>       upload session
//! /v2/<name>/manifests/<reference>      manifest
//! /v2/<name>/tags/list                  tags
//! /v2/<name>/referrers/<digest>         referrers of a manifest
//! /v2/_catalog                          repositories
//! /v2/[<name>/]_oci/ext/discover        extensions
//! ```
//!
//! Names contain slashes and may contain the words `blobs`, `manifests`, `tags` and `uploads`, so the path is parsed
//! from its right end. What is left of the fixed words is the name and must satisfy its grammar.
//!
//! Specification: distribution-spec "Endpoints".

use uuid::Uuid;

use super::error::BadPath;
use super::query::decode;
use crate::digest::Digest;
use crate::name::{Reference, RepositoryName};

/// The endpoint a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Base,
    Blob { repository: RepositoryName, digest: Digest },
    UploadStart { repository: RepositoryName },
    Upload { repository: RepositoryName, id: Uuid },
    Manifest { repository: RepositoryName, reference: Reference },
    Tags { repository: RepositoryName },
    Referrers { repository: RepositoryName, subject: Digest },
    Catalog,
    Extensions { repository: Option<RepositoryName> },
}

impl Endpoint {
    /// Parses the path of the request line, still percent-encoded.
    pub(crate) fn parse(path: &str) -> Result<Self, BadPath> {
        let path = decode(path).ok_or(BadPath::Endpoint)?;
        let rest = path.strip_prefix("/v2").ok_or(BadPath::Endpoint)?;
        if rest.is_empty() || rest == "/" {
            return Ok(Endpoint::Base);
        }
        let rest = rest.strip_prefix('/').ok_or(BadPath::Endpoint)?;
        // No component of a name begins with '_', so these two can be no repository.
        if rest == "_catalog" {
            return Ok(Endpoint::Catalog);
        }
        let (head, last) = rest.rsplit_once('/').ok_or(BadPath::Endpoint)?;
        let (name, word) = head.rsplit_once('/').ok_or(BadPath::Endpoint)?;
        match (word, last) {
            ("manifests", reference) => {
                Ok(Endpoint::Manifest { repository: name.parse()?, reference: reference.parse()? })
            }
            ("blobs", "uploads") => Ok(Endpoint::UploadStart { repository: name.parse()? }),
            ("blobs", digest) => Ok(Endpoint::Blob { repository: name.parse()?, digest: digest.parse()? }),
            ("uploads", id) => {
                let name = name.strip_suffix("/blobs").ok_or(BadPath::Endpoint)?;
                let repository = name.parse()?;
                if id.is_empty() {
                    return Ok(Endpoint::UploadStart { repository });
                }
                Ok(Endpoint::Upload { repository, id: id.parse().map_err(|_| BadPath::UploadId)? })
            }
            ("referrers", digest) => {
                Ok(Endpoint::Referrers { repository: name.parse()?, subject: digest.parse()? })
            }
            ("ext", "discover") if name == "_oci" => Ok(Endpoint::Extensions { repository: None }),
            ("ext", "discover") => {
                let name = name.strip_suffix("/_oci").ok_or(BadPath::Endpoint)?;
                Ok(Endpoint::Extensions { repository: Some(name.parse()?) })
            }
            ("tags", "list") => Ok(Endpoint::Tags { repository: name.parse()? }),
            _ => Err(BadPath::Endpoint),
        }
    }

    /// The repository of the endpoint; `None` for an endpoint of the whole registry.
    pub(crate) fn repository(&self) -> Option<&RepositoryName> {
        match self {
            Endpoint::Base | Endpoint::Catalog => None,
            Endpoint::Extensions { repository } => repository.as_ref(),
            Endpoint::Blob { repository, .. }
            | Endpoint::UploadStart { repository }
            | Endpoint::Upload { repository, .. }
            | Endpoint::Manifest { repository, .. }
            | Endpoint::Tags { repository }
            | Endpoint::Referrers { repository, .. } => Some(repository),
        }
    }

    /// The repository of a read, for replacing it by another.
    pub(crate) fn repository_mut(&mut self) -> Option<&mut RepositoryName> {
        match self {
            Endpoint::Blob { repository, .. }
            | Endpoint::Manifest { repository, .. }
            | Endpoint::Tags { repository }
            | Endpoint::Referrers { repository, .. } => Some(repository),
            _ => None,
        }
    }
}

pub(crate) fn blob_path(repository: &RepositoryName, digest: &Digest) -> String {
    format!("/v2/{repository}/blobs/{digest}")
}

pub(crate) fn upload_path(repository: &RepositoryName, id: Uuid) -> String {
    format!("/v2/{repository}/blobs/uploads/{id}")
}

pub(crate) fn referrers_path(repository: &RepositoryName, subject: &Digest) -> String {
    format!("/v2/{repository}/referrers/{subject}")
}

pub(crate) fn manifest_path(repository: &RepositoryName, digest: &Digest) -> String {
    format!("/v2/{repository}/manifests/{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Algorithm, InvalidDigest};
    use crate::name::InvalidRepositoryName;
    use proptest::prelude::*;

    fn name(text: &str) -> RepositoryName {
        text.parse().unwrap()
    }

    #[test]
    fn the_words_of_the_api_are_valid_in_names() {
        let digest = Digest::of(Algorithm::Sha256, b"");
        let parse = |path: &str| Endpoint::parse(path).unwrap();
        assert_eq!(
            parse("/v2/foo/manifests/bar/manifests/latest"),
            Endpoint::Manifest {
                repository: name("foo/manifests/bar"),
                reference: "latest".parse().unwrap()
            }
        );
        assert_eq!(
            parse("/v2/a/blobs/uploads/manifests/uploads"),
            Endpoint::Manifest { repository: name("a/blobs/uploads"), reference: "uploads".parse().unwrap() }
        );
        assert_eq!(
            parse(&format!("/v2/tags/list/blobs/{digest}")),
            Endpoint::Blob { repository: name("tags/list"), digest: digest.clone() }
        );
        assert_eq!(parse("/v2/blobs/blobs/uploads/"), Endpoint::UploadStart { repository: name("blobs") });
        assert_eq!(
            parse("/v2/blobs/uploads/tags/list"),
            Endpoint::Tags { repository: name("blobs/uploads") }
        );
        assert_eq!(parse("/v2/a/blobs/uploads"), Endpoint::UploadStart { repository: name("a") });
        assert_eq!(
            parse(&format!("/v2/a/referrers/b/referrers/{digest}")),
            Endpoint::Referrers { repository: name("a/referrers/b"), subject: digest.clone() }
        );
        assert_eq!(parse("/v2/_catalog"), Endpoint::Catalog);
        assert_eq!(parse("/v2/_oci/ext/discover"), Endpoint::Extensions { repository: None });
        assert_eq!(
            parse("/v2/oci/ext/discover/_oci/ext/discover"),
            Endpoint::Extensions { repository: Some(name("oci/ext/discover")) }
        );
        let encoded = digest.to_string().replace(':', "%3A");
        assert_eq!(
            parse(&format!("/v2/a/blobs/{encoded}")),
            Endpoint::Blob { repository: name("a"), digest }
        );
    }

    #[test]
    fn an_invalid_path_is_refused_with_the_reason() {
        for (path, why) in [
            ("/v2/_catalog/", BadPath::Endpoint),
            ("/v2/a/_catalog", BadPath::Endpoint),
            ("/v2/_oci/ext/other", BadPath::Endpoint),
            ("/v2/oci/ext/discover", BadPath::Endpoint),
            ("/v2/a/b_oci/ext/discover", BadPath::Endpoint),
            ("/v2/_a/_oci/ext/discover", BadPath::Name(InvalidRepositoryName)),
            ("/v2/a/referrers/sha256:00", BadPath::Digest(InvalidDigest::Value)),
            ("/v2/a/referrers/latest", BadPath::Digest(InvalidDigest::Form)),
            ("/v1/", BadPath::Endpoint),
            ("/v2/a", BadPath::Endpoint),
            ("/v2/a/tags/lists", BadPath::Endpoint),
            ("/v2/uploads/x", BadPath::Endpoint),
            ("/v2/a/uploads/x", BadPath::Endpoint),
            ("/v2/%zz/manifests/a", BadPath::Endpoint),
            ("/v2/../manifests/a", BadPath::Name(InvalidRepositoryName)),
            ("/v2/..%2f..%2fetc/manifests/a", BadPath::Name(InvalidRepositoryName)),
            ("/v2//manifests/a", BadPath::Name(InvalidRepositoryName)),
            ("/v2/a//b/manifests/a", BadPath::Name(InvalidRepositoryName)),
            ("/v2/A/blobs/uploads/", BadPath::Name(InvalidRepositoryName)),
            ("/v2/a/blobs/sha256:00", BadPath::Digest(InvalidDigest::Value)),
            ("/v2/a/blobs/uploads/..", BadPath::UploadId),
        ] {
            assert_eq!(Endpoint::parse(path), Err(why), "{path}");
        }
        assert!(matches!(Endpoint::parse("/v2/a/manifests/.."), Err(BadPath::Reference(_))));
        assert!(matches!(Endpoint::parse("/v2/a/manifests/sha256:0"), Err(BadPath::Reference(_))));
    }

    proptest! {
        #[test]
        fn every_path_in_a_response_parses_to_its_endpoint(
            repository in "[a-z0-9]{1,8}([._-][a-z0-9]{1,8}){0,3}(/(blobs|uploads|manifests|tags|list|[a-z0-9]{1,8})){0,4}",
            content in proptest::collection::vec(any::<u8>(), 0..16),
            tag in "[a-zA-Z0-9_][a-zA-Z0-9._-]{0,20}",
        ) {
            let repository = name(&repository);
            let digest = Digest::of(Algorithm::Sha512, &content);
            let id = Uuid::from_u128(u128::from(content.len() as u64));
            prop_assert_eq!(
                Endpoint::parse(&blob_path(&repository, &digest)),
                Ok(Endpoint::Blob { repository: repository.clone(), digest: digest.clone() })
            );
            prop_assert_eq!(
                Endpoint::parse(&upload_path(&repository, id)),
                Ok(Endpoint::Upload { repository: repository.clone(), id })
            );
            prop_assert_eq!(
                Endpoint::parse(&manifest_path(&repository, &digest)),
                Ok(Endpoint::Manifest { repository: repository.clone(), reference: Reference::Digest(digest.clone()) })
            );
            prop_assert_eq!(
                Endpoint::parse(&referrers_path(&repository, &digest)),
                Ok(Endpoint::Referrers { repository: repository.clone(), subject: digest.clone() })
            );
            prop_assert_eq!(
                Endpoint::parse(&format!("/v2/{repository}/manifests/{tag}")),
                Ok(Endpoint::Manifest { repository, reference: Reference::Tag(tag.parse().unwrap()) })
            );
        }

        #[test]
        fn no_path_gives_a_name_with_parent_directories(path in "/v2/[a-z0-9./%_=A-F-]{0,40}/(manifests|blobs|tags)/[a-z0-9.:%/]{0,20}") {
            if let Ok(endpoint) = Endpoint::parse(&path)
                && let Some(repository) = endpoint.repository()
            {
                let directory = repository.to_directory();
                prop_assert!(!directory.contains('/') && !directory.starts_with('.') && !directory.contains(".."));
                prop_assert!(directory.len() <= 200);
            }
        }
    }
}
