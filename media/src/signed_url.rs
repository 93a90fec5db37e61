//! Signed URLs of task images: a right to read one image of one job until a time, without a login.
//!
//! ```text
//! /media/tasks/<job>/task.iso?expires=1800000000&sig=3q2-7w…
//!                             |                  `-- base64url of HMAC-SHA256(key, method, path, expires, digest)
//!                             `-- seconds since 1970
//! ```
//!
//! The key is derived from the signing key of the installation for this purpose only; URLs of its former version are accepted as long
//! as that version is. The signature names the path, and with it the job, the
//! expiry, and the digest of the image: a URL serves no other bytes than those it was issued for. The range of a request is
//! not signed, because a reader chooses its ranges itself; each is a part of the one image.
//!
//! Invariants: the query has exactly these two parameters, in either order, each once and in its only form;
//! signatures are compared in constant time; whether a URL has expired is decided by its own text, so that this response
//! tells nothing about the signature; neither type shows the signature through `Debug`.
//!
//! A BMC never receives such a URL (decision D1): some refuse queries, and a BMC reads for longer than any useful expiry.
//! An expiry is checked when a request arrives; a response that has begun is sent to its end, unless its grant ends.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use model::{RunId, Time};
use secrets::{Key, KeyRing, same_secret};

use super::body::ImageDigest;

/// The number of characters of a signature: 32 bytes in base64url.
const SIGNATURE_CHARS: usize = 43;
/// The maximum number of digits of an expiry.
const EXPIRES_DIGITS: usize = 11;

/// Signs and verifies the URLs of task images.
pub struct UrlSigner(Key);

impl UrlSigner {
    /// A signer with a key of its own, derived from the signing key of the installation.
    #[must_use]
    pub fn new(signing: &KeyRing) -> Self {
        Self(signing.derive("media-url"))
    }

    /// The path and query that read the task image of `job` with this digest until `expires`. The text is a secret.
    #[must_use]
    pub fn sign(&self, job: RunId, digest: &ImageDigest, expires: Time) -> String {
        let path = signed_path(job);
        let expires = expires.unix_seconds().max(0).to_string();
        let signature = URL_SAFE_NO_PAD.encode(self.0.tag(&signed_parts(&path, &expires, &digest.to_hex())));
        format!("{path}?expires={expires}&sig={signature}")
    }

    /// Whether `query` was signed for the task image of `job` with this digest. Says nothing about the expiry.
    #[must_use]
    pub fn verify(&self, query: &SignedQuery, job: RunId, digest: &ImageDigest, now: Timestamp) -> bool {
        let (path, expires, digest) = (signed_path(job), query.expires.to_string(), digest.to_hex());
        let accepted = self.0.tags(&signed_parts(&path, &expires, &digest), now);
        accepted.iter().any(|tag| same_secret(&URL_SAFE_NO_PAD.encode(tag), &query.signature))
    }
}

impl fmt::Debug for UrlSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UrlSigner")
    }
}

/// The parts of a request that a signature covers. HEAD reads less than GET, so one signature is for both.
fn signed_parts<'a>(path: &'a str, expires: &'a str, digest: &'a str) -> [&'a [u8]; 4] {
    [b"GET", path.as_bytes(), expires.as_bytes(), digest.as_bytes()]
}

fn signed_path(job: RunId) -> String {
    format!("/media/tasks/{job}/task.iso")
}

/// The query of a signed URL, not yet verified.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedQuery {
    /// Seconds since 1970.
    expires: i64,
    signature: String,
}

impl SignedQuery {
    /// Whether a query has a parameter of a signed URL. Such a request is decided by its signature, never by credentials.
    #[must_use]
    pub fn is_meant(query: &str) -> bool {
        query.split('&').any(|pair| matches!(pair.split('=').next(), Some("expires" | "sig")))
    }

    /// Parses a query of exactly the form `expires=SECONDS&sig=SIGNATURE`, in either order; `None` for every other text.
    #[must_use]
    pub fn parse(query: &str) -> Option<Self> {
        let (first, second) = query.split_once('&')?;
        let (expires, signature) = match (first.strip_prefix("expires="), second.strip_prefix("sig=")) {
            (Some(expires), Some(signature)) => (expires, signature),
            _ => (second.strip_prefix("expires=")?, first.strip_prefix("sig=")?),
        };
        let digits = !expires.is_empty()
            && expires.len() <= EXPIRES_DIGITS
            && expires.bytes().all(|byte| byte.is_ascii_digit())
            && (expires == "0" || !expires.starts_with('0'));
        let text = signature.len() == SIGNATURE_CHARS
            && signature.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if !digits || !text {
            return None;
        }
        Some(Self { expires: expires.parse().ok()?, signature: signature.to_owned() })
    }

    /// Whether the time of the URL has passed. Decided by its text alone.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires <= now.as_second()
    }
}

impl fmt::Debug for SignedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedQuery").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Entry points of the fuzz targets.
pub mod fuzz {
    use super::{ImageDigest, KeyRing, RunId, SignedQuery, Timestamp, UrlSigner};

    /// A query is parsed and verified. No query that a fuzzer finds has the signature of the key.
    ///
    /// # Panics
    /// When a query is accepted, or one that parses is not recognised as a signed one.
    pub fn signed_query(data: &[u8]) {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let Some(query) = SignedQuery::parse(text) else { return };
        assert!(SignedQuery::is_meant(text), "a query that parses is a signed one");
        let signer = UrlSigner::new(&KeyRing::from_bytes(&[7; secrets::KEY_BYTES]));
        let (job, digest) = (RunId(uuid::Uuid::nil()), ImageDigest::new([0; 32]));
        assert!(!signer.verify(&query, job, &digest, Timestamp::UNIX_EPOCH), "a signature was guessed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXPIRES: i64 = 1_800_000_000;

    fn signer(byte: u8) -> UrlSigner {
        UrlSigner::new(&KeyRing::from_bytes(&[byte; secrets::KEY_BYTES]))
    }

    fn job(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn digest(byte: u8) -> ImageDigest {
        ImageDigest::new([byte; 32])
    }

    fn time(seconds: i64) -> Time {
        Time::from_timestamp(Timestamp::from_second(seconds).unwrap())
    }

    fn query_of(url: &str) -> &str {
        url.split_once('?').unwrap().1
    }

    #[test]
    fn a_signed_url_names_job_expiry_and_image() {
        let url = signer(7).sign(job(1), &digest(1), time(EXPIRES));
        let (path, query) = url.split_once('?').unwrap();
        assert_eq!(path, "/media/tasks/00000000-0000-0000-0000-000000000001/task.iso");
        assert!(query.starts_with("expires=1800000000&sig="), "{query}");
        let parsed = SignedQuery::parse(query).unwrap();
        assert!(signer(7).verify(&parsed, job(1), &digest(1), Timestamp::UNIX_EPOCH));
        assert!(!signer(7).verify(&parsed, job(2), &digest(1), Timestamp::UNIX_EPOCH), "another job");
        assert!(!signer(7).verify(&parsed, job(1), &digest(2), Timestamp::UNIX_EPOCH), "another image");
        assert!(!signer(8).verify(&parsed, job(1), &digest(1), Timestamp::UNIX_EPOCH), "another controller");
        let later = SignedQuery::parse(&query.replace("1800000000", "1800000001")).unwrap();
        assert!(!signer(7).verify(&later, job(1), &digest(1), Timestamp::UNIX_EPOCH), "another expiry");
    }

    #[test]
    fn a_url_expires_in_the_second_that_it_names() {
        let parsed =
            SignedQuery::parse(query_of(&signer(7).sign(job(1), &digest(1), time(EXPIRES)))).unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(!parsed.has_expired(at(EXPIRES - 1)));
        assert!(parsed.has_expired(at(EXPIRES)));
        assert!(parsed.has_expired(at(EXPIRES + 1)));
    }

    #[test]
    fn a_right_has_one_text() {
        let url = signer(7).sign(job(1), &digest(1), time(EXPIRES));
        let query = query_of(&url);
        let (expires, signature) = query.split_once('&').unwrap();
        assert_eq!(SignedQuery::parse(&format!("{signature}&{expires}")), SignedQuery::parse(query));
        for other in [
            "",
            "expires=1800000000",
            signature,
            &format!("{expires}&{expires}"),
            &format!("{query}&"),
            &format!("{query}&x=1"),
            &format!("x=1&{query}"),
            &format!("{query}="),
            &query.replace("expires=", "expires=0"),
            &query.replace("expires=", "expires=+"),
            &query.replace("expires=", "expires=-"),
            &query.replace("expires=1800000000", "expires="),
            &query.replace("expires=1800000000", "expires=999999999999999999999999"),
            &query.replace("sig=", "sig=%41"),
            &query[..query.len() - 1],
            &query.replace("sig=", "SIG="),
        ] {
            assert_eq!(SignedQuery::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_query_with_either_parameter_is_a_signed_one() {
        for query in ["expires=1", "sig=", "x=1&sig=a", "expires", "sig"] {
            assert!(SignedQuery::is_meant(query), "{query}");
        }
        for query in ["", "x=1", "xsig=1", "x=sig", "signature=1"] {
            assert!(!SignedQuery::is_meant(query), "{query}");
        }
    }

    #[test]
    fn the_corpus_of_the_fuzz_target_is_parsed_or_refused() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/signed_url");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() > 5);
        files.iter().for_each(|file| fuzz::signed_query(&std::fs::read(file).unwrap()));
    }

    #[test]
    fn a_signature_is_never_printed() {
        let url = signer(7).sign(job(1), &digest(1), time(EXPIRES));
        let signature = url.split_once("sig=").unwrap().1;
        let printed = format!("{:?} {:?}", SignedQuery::parse(query_of(&url)).unwrap(), signer(7));
        assert!(!printed.contains(&signature[..6]), "{printed}");
    }

    proptest! {
        #[test]
        fn a_changed_query_is_refused(at in 0_usize..66, to in "[ -~]") {
            let url = signer(7).sign(job(1), &digest(1), time(EXPIRES));
            let query = query_of(&url);
            let changed = format!("{}{to}{}", &query[..at], &query[at + 1..]);
            prop_assume!(changed != query);
            let accepted = SignedQuery::parse(&changed)
                .is_some_and(|parsed| signer(7).verify(&parsed, job(1), &digest(1), Timestamp::UNIX_EPOCH));
            prop_assert!(!accepted, "{}", changed);
        }

        #[test]
        fn any_text_is_parsed_or_refused(query in ".{0,120}") {
            fuzz::signed_query(query.as_bytes());
        }
    }
}
