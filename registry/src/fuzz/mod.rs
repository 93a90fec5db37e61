//! Harnesses for the parsers of untrusted input. The fuzz targets and the tests call these functions.

mod import;

use std::hint::black_box;

use crate::access::{Credentials, read_htpasswd};
use crate::digest::Digest;
use crate::http::path::Endpoint;
use crate::http::range::{ChunkRange, Selection, select};
use crate::http::{path, query};
use crate::links::Links;
use crate::manifest::{RequiredContent, parse_manifest};

/// Parses `data` as a media type, a line feed and a manifest, and checks that a manifest that parses once parses again
/// with its stored media type to an equal result, and that its references are read alike before and after it is stored.
///
/// # Panics
///
/// When the results differ.
pub fn manifest(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let content_type = std::str::from_utf8(&data[..end]).ok().filter(|kind| !kind.is_empty());
    let document = data.get(end + 1..).unwrap_or_default();
    let Ok(parsed) = parse_manifest(content_type, document) else { return };
    let again = parse_manifest(Some(&parsed.media_type), document);
    let again = again.unwrap_or_else(|refusal| unreachable!("refused at the second parse: {refusal}"));
    assert_eq!(again.media_type, parsed.media_type);
    assert_eq!(again.referral, parsed.referral);
    let pushed = Links::read(document);
    let pushed =
        pushed.unwrap_or_else(|refusal| unreachable!("accepted without readable references: {refusal}"));
    assert_eq!(Links::read_stored(document).ok(), Some(pushed.clone()));
    assert_eq!(pushed.subject, parsed.referral.map(|referral| referral.subject));
    let (RequiredContent::Blobs(required) | RequiredContent::Children(required)) = parsed.requires;
    assert!(required.len() <= document.len());
    for descriptor in &required {
        if let Ok(digest) = Digest::try_from(descriptor.digest()) {
            assert_eq!(digest.to_string(), descriptor.digest().as_ref());
            assert!(pushed.content.contains(&digest));
        }
    }
}

/// Parses `data` as a path, a reference, a query and both range headers, and checks that a parsed path formats to
/// itself and that a selected part is inside the representation.
///
/// # Panics
///
/// When one of these does not hold.
pub fn request_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Endpoint::parse(text) {
        Ok(Endpoint::Blob { repository, digest }) => {
            let canonical = path::blob_path(&repository, &digest);
            assert_eq!(Endpoint::parse(&canonical), Ok(Endpoint::Blob { repository, digest }));
        }
        Ok(Endpoint::Upload { repository, id }) => {
            let canonical = path::upload_path(&repository, id);
            assert_eq!(Endpoint::parse(&canonical), Ok(Endpoint::Upload { repository, id }));
        }
        Ok(Endpoint::Referrers { repository, subject }) => {
            let canonical = path::referrers_path(&repository, &subject);
            assert_eq!(Endpoint::parse(&canonical), Ok(Endpoint::Referrers { repository, subject }));
        }
        Ok(endpoint) => {
            if let Some(name) = endpoint.repository() {
                assert!(!name.to_directory().contains(['/', '%']));
            }
        }
        Err(_) => {}
    }
    if let Ok(reference) = text.parse::<crate::Reference>() {
        assert_eq!(reference.to_string().parse(), Ok(reference));
    }
    black_box(query::value(Some(text), "digest"));
    assert_eq!(query::decode(&query::encode(text)).as_deref(), Some(text));
    for length in [0, 1, data.len() as u64, u64::MAX] {
        if let Selection::Part { first, last } = select(Some(text), length) {
            assert!(first <= last && last < length);
        }
    }
    if let Some(chunk) = ChunkRange::parse(text) {
        assert!(chunk.length() > 0);
    }
}

/// Parses `data` as an `Authorization` header and as an htpasswd file, and checks that neither prints a secret, and
/// that only well-formed lines add users.
///
/// # Panics
///
/// When one of these does not hold.
pub fn credentials(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Credentials::parse(text) {
        Some(Credentials::Basic { user, password }) => {
            assert!(!user.is_empty() && !user.contains(':') && !user.contains(char::is_control));
            assert_eq!(format!("{password:?}"), "[redacted]");
            let again = Credentials::basic(&user, password.expose());
            assert_eq!(again, Some(Credentials::Basic { user, password }));
        }
        Some(Credentials::Bearer(token)) => {
            assert!(!token.expose().contains(|c: char| c.is_whitespace() || c.is_control()));
            assert_eq!(format!("{token:?}"), "[redacted]");
        }
        None => {}
    }
    let file = read_htpasswd(text);
    for (user, hash) in &file.users {
        assert!(!user.is_empty() && !user.contains([':', '\n']));
        assert!((4..=15).contains(&hash.cost()));
        assert!(text.lines().any(|line| line.starts_with(&format!("{user}:$2"))));
    }
    assert!(file.problems.iter().all(|(line, _)| (1..=text.lines().count()).contains(line)));
}

/// Imports what `data` describes: an archive or a directory, described by lines, or the bytes of an archive. The module
/// `fuzz::import` lists the invariants. Works on a disk; quick where the temporary directory is in memory.
///
/// # Panics
///
/// When one of these does not hold.
pub fn import(data: &[u8]) {
    import::import_by(data, &|store, source, name| store.import(source, name));
}

#[cfg(test)]
mod tests {
    use super::{credentials, import, manifest, request_path};
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn every_seed_passes() {
        for (corpus, oracle) in [
            ("registry_path", request_path as fn(&[u8])),
            ("registry_manifest", manifest as fn(&[u8])),
            ("registry_credentials", credentials as fn(&[u8])),
        ] {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(corpus);
            let mut seeds = 0;
            for file in std::fs::read_dir(directory).unwrap() {
                oracle(&std::fs::read(file.unwrap().path()).unwrap());
                seeds += 1;
            }
            assert!(seeds >= 8, "{corpus}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_violate_no_invariant(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            request_path(&data);
            manifest(&data);
            credentials(&data);
        }

        #[test]
        fn nearly_valid_imports_violate_no_invariant(
            seed in 0usize..20,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            import(&changed("registry_import", seed, changes));
        }

        #[test]
        fn nearly_valid_credentials_violate_no_invariant(
            data in "((Basic|bearer) +[A-Za-z0-9+/._=-]{0,40})|([a-z:#]{0,6}(:\\$2[ayb]\\$[0-9]{2}\\$[A-Za-z0-9./]{50,55})?\r?\n?){0,4}"
        ) {
            credentials(data.as_bytes());
        }

        #[test]
        fn nearly_valid_requests_violate_no_invariant(
            data in "(/v2/[a-z0-9._/-]{0,30}/(blobs|manifests|blobs/uploads|tags|referrers)/[a-z0-9:%._-]{0,80})|(bytes=)?[0-9]{0,21}-[0-9]{0,21}"
        ) {
            request_path(data.as_bytes());
        }

        #[test]
        fn nearly_valid_manifests_violate_no_invariant(
            seed in 0usize..16,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            manifest(&changed("registry_manifest", seed, changes));
        }
    }

    /// A seed with some of its bytes replaced.
    fn changed(corpus: &str, seed: usize, changes: Vec<(prop::sample::Index, u8)>) -> Vec<u8> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(corpus);
        let mut files: Vec<_> =
            std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let mut data = std::fs::read(&files[seed % files.len()]).unwrap();
        for (place, byte) in changes {
            let place = place.index(data.len());
            data[place] = byte;
        }
        data
    }
}
