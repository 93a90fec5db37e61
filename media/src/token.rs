//! The paths and URLs of images for BMCs.
//!
//! ```text
//! http://192.0.2.7:8080/t7q2xk4nd5w3mz6bcv2rj4hpyaq/task.iso
//! '---- base ---------''------- one directory ------' '-- artifact.suffix
//!
//! http://192.0.2.7:8080/f7q2xk4nd5w3mz6bcv2rj4hpyaq/BIOS_2.19.1.hpm
//!                        `- firmware                 `-- the name of the file: BMCs choose by its end how they read it
//! ```
//!
//! Some firmware refuses `?` and `&`, some refuses hyphens in names, some an image at the root of the server, some a
//! URL of 128 bytes and more. A generated path is therefore one directory deep and consists of `[a-z0-9]`, `/` and one
//! dot; the name of a firmware file keeps its letters, digits, dots, hyphens and underscores. [`media_url`] checks the whole URL, because a URL that a BMC refuses fails a job an hour later with an error that
//! does not name the cause. The token is a capability: every client that knows the URL can read the image until the grant
//! ends, so a token is never printed.

use std::fmt;

use model::{RunId, Snapshot};
use secrecy::{ExposeSecret as _, SecretString};
use secrets::{JobTokens, TokenSeed, token_hash};
use serde::{Deserialize, Serialize};
use url::Url;

pub use model::Artifact;

/// The length of the shortest token.
pub const TOKEN_MIN: usize = 16;
/// The length of the longest token.
pub const TOKEN_MAX: usize = 64;
/// Every media URL has fewer bytes than this.
pub const MEDIA_URL_LIMIT: usize = 128;
/// The most characters of the name of a firmware file in a URL.
const FILE_NAME_MAX: usize = 48;

/// The file suffix of the path. Both suffixes serve the same bytes; some firmware accepts only `.img` for USB slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suffix {
    /// The suffix `.iso`.
    Iso,
    /// The suffix `.img`.
    Img,
}

impl Suffix {
    /// The suffix without its dot.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iso => "iso",
            Self::Img => "img",
        }
    }
}

/// A media token: 16 to 64 characters of `[a-z0-9]`. It is a secret; `Debug` shows its length only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MediaToken(String);

impl MediaToken {
    /// Parses a token; `None` when the text does not have the form of one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let shaped = (TOKEN_MIN..=TOKEN_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        shaped.then(|| Self(text.to_owned()))
    }

    /// Derives the token for one use of one image of a job. It is equal after a crash, and different for another image, slot
    /// plan or attempt.
    #[must_use]
    pub fn derive(tokens: &JobTokens, job: RunId, image: &ImageUse<'_>) -> Self {
        let ImageUse { artifact, digest, slot_plan, attempt } = image;
        let image = format!("{}:{digest}", artifact.as_str());
        let token: SecretString = tokens.grant_token(&job.to_string(), &image, slot_plan, *attempt);
        // Derived tokens have the form of a media token: 32 characters of `a-z2-7`.
        Self(token.expose_secret().to_owned())
    }

    /// The text of the token, for use in a URL only.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The SHA-256 of the token in hexadecimal, which is stored and looked up. The time of a lookup by hash does not depend
    /// on how much of a guessed token is right.
    #[must_use]
    pub fn hash(&self) -> String {
        token_hash(&self.0)
    }
}

impl fmt::Debug for MediaToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MediaToken({} characters)", self.0.len())
    }
}

/// One use of one image of a job. Each use has its own token, so that no URL ever serves other bytes than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageUse<'a> {
    /// The name under which the image is served.
    pub artifact: Artifact,
    /// The digest of the image in hexadecimal.
    pub digest: &'a str,
    /// The slot plan, or another name for what the image is used for.
    pub slot_plan: &'a str,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// The parts of the path of a media request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaPath {
    /// The token of the grant.
    pub token: MediaToken,
    /// The requested image.
    pub artifact: Artifact,
    /// The last segment of the path. It selects the artifact of a task or boot image; of a firmware image it selects nothing.
    pub file_name: String,
}

impl MediaPath {
    /// Parses a path of exactly the form `/t<token>/{task,boot}.{iso,img}` or `/f<token>/<file name>`; `None` for every other
    /// path.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        if path.len() >= MEDIA_URL_LIMIT {
            return None;
        }
        let (rest, is_firmware) = match path.strip_prefix("/t") {
            Some(rest) => (rest, false),
            None => (path.strip_prefix("/f")?, true),
        };
        let (token, name) = rest.split_once('/')?;
        let artifact = match name {
            _ if is_firmware && is_file_name(name) => Artifact::Firmware,
            _ if is_firmware => return None,
            "task.iso" | "task.img" => Artifact::Task,
            "boot.iso" | "boot.img" => Artifact::Boot,
            _ => return None,
        };
        Some(Self { token: MediaToken::parse(token)?, artifact, file_name: name.to_owned() })
    }
}

/// Whether a text can be the name of a firmware file in a URL.
fn is_file_name(name: &str) -> bool {
    let plain = |sign: u8| sign.is_ascii_alphanumeric() || matches!(sign, b'.' | b'-' | b'_');
    !name.starts_with('.') && !name.is_empty() && name.len() <= FILE_NAME_MAX && name.bytes().all(plain)
}

/// The name of a firmware file in a URL: its plain characters. A name that is too long keeps its ending only,
/// by which BMCs choose how they read the file.
fn file_name_in_url(name: &str, most: usize) -> String {
    let plain = |sign: &char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-' | '_');
    let kept: String = name.chars().filter(plain).collect();
    let kept = kept.trim_start_matches('.');
    if kept.len() <= most.min(FILE_NAME_MAX) && is_file_name(kept) {
        return kept.to_owned();
    }
    match kept.rsplit_once('.') {
        Some((_, ending)) if (1..=8).contains(&ending.len()) => format!("firmware.{ending}"),
        _ => "firmware.bin".to_owned(),
    }
}

/// The path of one image.
#[must_use]
pub fn media_path(token: &MediaToken, artifact: Artifact, suffix: Suffix) -> String {
    format!("/t{}/{}.{}", token.reveal(), artifact.as_str(), suffix.as_str())
}

/// The reason why no media URL can be made from a base URL. The error texts contain no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaUrlError {
    /// The base is not a URL.
    #[error("the media base URL is malformed ({0}): give it as http://HOST[:PORT]")]
    Malformed(url::ParseError),
    /// The scheme is not http or https.
    #[error("the media base URL has the scheme {0}: a BMC fetches media over http or https")]
    Scheme(String),
    /// The base has a path, so that the image would be more than one directory deep.
    #[error(
        "the media base URL has a path: some BMCs read images one directory deep only, so give scheme, host and port alone"
    )]
    Path,
    /// The base has a query or fragment.
    #[error(
        "the media base URL has a query or a fragment: some BMCs refuse ? and & in image URLs, so remove it"
    )]
    Query,
    /// The base has a user or password.
    #[error(
        "the media base URL has a user name or password: some BMCs refuse or disclose them, so remove them"
    )]
    Credentials,
    /// The whole URL is too long.
    #[error(
        "the media URL would have {length} bytes and some BMCs refuse {MEDIA_URL_LIMIT} and more: use a shorter host name or an address"
    )]
    TooLong {
        /// Bytes of the URL.
        length: usize,
    },
}

/// The URL of an image for a BMC: `base` (`http(s)://HOST[:PORT]`) and the path of the image.
///
/// # Errors
/// [`MediaUrlError`] when the URL would be malformed or is of a form that some BMCs refuse.
pub fn media_url(
    base: &str,
    token: &MediaToken,
    artifact: Artifact,
    suffix: Suffix,
) -> Result<String, MediaUrlError> {
    url_below(base, &media_path(token, artifact, suffix))
}

/// The URL of a firmware image for a BMC: `base` (`http(s)://HOST[:PORT]`), a directory with the token, and the name of the file.
///
/// # Errors
/// [`MediaUrlError`] when the URL would be malformed or is of a form that some BMCs refuse.
pub fn firmware_url(base: &str, token: &MediaToken, file_name: &str) -> Result<String, MediaUrlError> {
    let path = |most| format!("/f{}/{}", token.reveal(), file_name_in_url(file_name, most));
    match url_below(base, &path(FILE_NAME_MAX)) {
        Err(MediaUrlError::TooLong { .. }) => url_below(base, &path(0)),
        other => other,
    }
}

/// The URL of a path below a base, if BMCs accept both.
fn url_below(base: &str, path: &str) -> Result<String, MediaUrlError> {
    let base = Url::parse(base).map_err(MediaUrlError::Malformed)?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(MediaUrlError::Scheme(base.scheme().to_owned()));
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err(MediaUrlError::Credentials);
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(MediaUrlError::Query);
    }
    if base.path() != "/" {
        return Err(MediaUrlError::Path);
    }
    let url = format!("{}{path}", base.as_str().trim_end_matches('/'));
    if url.len() >= MEDIA_URL_LIMIT {
        return Err(MediaUrlError::TooLong { length: url.len() });
    }
    Ok(url)
}

/// The seed of the tokens in the input of a run, as every workflow with media stores it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeedOfRun {
    /// The seed, made when the run was created.
    pub token_seed: TokenSeed,
}

/// The stored input of a run has no seed of its tokens.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the stored input of this run has no seed of its tokens; create it again")]
pub struct NoTokenSeed;

/// The tokens of a run, derived from the seed in its input.
///
/// # Errors
/// [`NoTokenSeed`] when the input has none.
pub fn tokens_of(snapshot: &Snapshot) -> Result<JobTokens, NoTokenSeed> {
    let seed = SeedOfRun::deserialize(&*snapshot.input).map_err(|_| NoTokenSeed)?;
    Ok(JobTokens::new(&seed.token_seed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "7q2xk4nd5w3mz6bcv2rj4hpyaq";

    fn token() -> MediaToken {
        MediaToken::parse(TEXT).unwrap()
    }

    #[test]
    fn a_path_is_taken_apart_and_put_together() {
        for artifact in [Artifact::Task, Artifact::Boot] {
            for suffix in [Suffix::Iso, Suffix::Img] {
                let path = media_path(&token(), artifact, suffix);
                let file_name = format!("{}.{}", artifact.as_str(), suffix.as_str());
                assert_eq!(
                    MediaPath::parse(&path),
                    Some(MediaPath { token: token(), artifact, file_name }),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn the_url_of_a_firmware_file_ends_with_its_name_and_is_taken_apart_again() {
        let long = format!("{}.hpm", "x".repeat(60));
        for (name, shown) in [
            ("BIOS_2.19.1.hpm", "BIOS_2.19.1.hpm"),
            ("iDRAC 9 (A00).d9", "iDRAC9A00.d9"),
            ("..hidden", "hidden"),
            (long.as_str(), "firmware.hpm"),
            ("Ü", "firmware.bin"),
        ] {
            let url = firmware_url("http://192.0.2.7:8080", &token(), name).unwrap();
            assert_eq!(url, format!("http://192.0.2.7:8080/f{TEXT}/{shown}"));
            let parsed = MediaPath::parse(&url["http://192.0.2.7:8080".len()..]).unwrap();
            assert_eq!((parsed.artifact, parsed.file_name.as_str()), (Artifact::Firmware, shown));
            assert_eq!(parsed.token, token());
        }
        let host = format!("http://{}.example", "a".repeat(50));
        let url = firmware_url(&host, &token(), "a-name-with-a-good-many-characters.bin").unwrap();
        assert!(url.ends_with("/firmware.bin") && url.len() < MEDIA_URL_LIMIT, "{url}");
        for path in ["/f/x.bin", "/fshort/x.bin", "/firmware/x", "/firmware-sets/x"] {
            assert_eq!(MediaPath::parse(path), None, "{path}");
        }
        for name in ["", ".x", "a/b", "a%20b", "a?b"] {
            assert_eq!(MediaPath::parse(&format!("/f{TEXT}/{name}")), None, "{name}");
        }
    }

    #[test]
    fn other_paths_are_not_media() {
        let long = "a".repeat(TOKEN_MAX + 1);
        for path in [
            String::new(),
            "/".to_owned(),
            "/task.iso".to_owned(),
            format!("/{TEXT}/task.iso"),
            format!("/t{TEXT}/task.raw"),
            format!("/t{TEXT}/task.iso/"),
            format!("/t{TEXT}/x/task.iso"),
            format!("/t{TEXT}//task.iso"),
            format!("//t{TEXT}/task.iso"),
            format!("/t{}/task.iso", TEXT.to_uppercase()),
            format!("/t{}-/task.iso", TEXT),
            format!("/t{}%41/task.iso", TEXT),
            "/tshort/task.iso".to_owned(),
            format!("/t{long}/task.iso"),
            format!("/t{}/boot.iso", "a".repeat(4000)),
        ] {
            assert_eq!(MediaPath::parse(&path), None, "{path}");
        }
    }

    #[test]
    fn a_url_is_the_base_and_the_path() {
        let url = |base: &str| media_url(base, &token(), Artifact::Boot, Suffix::Iso);
        assert_eq!(url("http://192.0.2.7").unwrap(), format!("http://192.0.2.7/t{TEXT}/boot.iso"));
        assert_eq!(url("http://192.0.2.7:8080/").unwrap(), format!("http://192.0.2.7:8080/t{TEXT}/boot.iso"));
        assert_eq!(
            url("https://[2001:db8::7]:443").unwrap(),
            format!("https://[2001:db8::7]/t{TEXT}/boot.iso")
        );
        assert_eq!(
            url("HTTP://Media-1.Example/").unwrap(),
            format!("http://media-1.example/t{TEXT}/boot.iso")
        );
    }

    #[test]
    fn every_url_below_the_longest_base_is_short_enough() {
        let base = format!("https://{}.{}:65535", "a".repeat(33), "b".repeat(32));
        assert_eq!(base.len(), model::MEDIA_BASE_MAX);
        let signing = secrets::KeyRing::from_bytes(&[7; secrets::KEY_BYTES]);
        let tokens = JobTokens::new(&secrets::TokenSeeds::new(&signing).seed("a run"));
        let image =
            ImageUse { artifact: Artifact::Boot, digest: &"0".repeat(64), slot_plan: "separate", attempt: 9 };
        let token = MediaToken::derive(&tokens, RunId(uuid::Uuid::nil()), &image);
        for suffix in [Suffix::Iso, Suffix::Img] {
            for artifact in [Artifact::Task, Artifact::Boot] {
                media_url(&base, &token, artifact, suffix).unwrap();
            }
        }
        firmware_url(&base, &token, &"x".repeat(200)).unwrap();
    }

    #[test]
    fn a_base_that_some_bmc_would_refuse_is_an_error() {
        let url = |base: &str| media_url(base, &token(), Artifact::Task, Suffix::Img).unwrap_err();
        assert!(matches!(url("192.0.2.7:80"), MediaUrlError::Malformed(_) | MediaUrlError::Scheme(_)));
        assert_eq!(url("ftp://192.0.2.7"), MediaUrlError::Scheme("ftp".into()));
        assert_eq!(url("http://192.0.2.7/media"), MediaUrlError::Path);
        assert_eq!(url("http://192.0.2.7/?a=b"), MediaUrlError::Query);
        assert_eq!(url("http://192.0.2.7/#a"), MediaUrlError::Query);
        assert_eq!(url("http://user:pw@192.0.2.7/"), MediaUrlError::Credentials);
        assert!(
            matches!(url(&format!("http://{}.example", "a".repeat(60) + "." + &"b".repeat(40))), MediaUrlError::TooLong { length } if length >= MEDIA_URL_LIMIT)
        );
    }

    #[test]
    fn a_token_is_never_printed() {
        let parsed = MediaPath::parse(&media_path(&token(), Artifact::Task, Suffix::Iso)).unwrap();
        assert!(!format!("{parsed:?}").contains(&TEXT[..8]));
    }

    #[test]
    fn a_derived_token_has_the_form_of_a_media_token_and_belongs_to_one_use_of_one_image() {
        let signing = secrets::KeyRing::from_bytes(&[7; secrets::KEY_BYTES]);
        let tokens = JobTokens::new(&secrets::TokenSeeds::new(&signing).seed("a run"));
        let job = RunId(uuid::Uuid::from_u128(1));
        let first = ImageUse { artifact: Artifact::Task, digest: "00", slot_plan: "separate", attempt: 1 };
        let uses = [
            first,
            ImageUse { artifact: Artifact::Boot, ..first },
            ImageUse { digest: "01", ..first },
            ImageUse { slot_plan: "single", ..first },
            ImageUse { attempt: 2, ..first },
        ];
        let texts = uses.map(|image| MediaToken::derive(&tokens, job, &image).reveal().to_owned());
        assert!(texts.iter().all(|text| MediaToken::parse(text).is_some()));
        assert_eq!(std::collections::BTreeSet::from(texts.clone()).len(), uses.len());
        assert_eq!(MediaToken::derive(&tokens, job, &first).reveal(), texts[0]);
        let other = RunId(uuid::Uuid::from_u128(2));
        assert_ne!(MediaToken::derive(&tokens, other, &first).reveal(), texts[0]);
    }

    #[test]
    fn the_hash_is_the_sha256_of_the_text() {
        assert_eq!(
            MediaToken::parse("aaaaaaaaaaaaaaaa").unwrap().hash(),
            "0c0beacef8877bbf2416eb00f2b5dc96354e26dd1df5517320459b1236860f8c"
        );
    }

    proptest! {
        #[test]
        fn every_parsed_path_is_generated_again(path in "/t[a-z0-9]{10,70}/(task|boot)\\.(iso|img|bin)") {
            if let Some(parsed) = MediaPath::parse(&path) {
                prop_assert_eq!(format!("/t{}/{}", parsed.token.reveal(), parsed.file_name), path);
            }
        }

        #[test]
        fn every_generated_url_satisfies_the_rules(text in "[a-z0-9]{16,64}", port in 1u16.., boot in any::<bool>()) {
            let token = MediaToken::parse(&text).unwrap();
            let artifact = if boot { Artifact::Boot } else { Artifact::Task };
            let url = media_url(&format!("http://255.255.255.255:{port}"), &token, artifact, Suffix::Iso).unwrap();
            prop_assert!(url.len() < MEDIA_URL_LIMIT);
            let path = &url["http://".len()..];
            prop_assert_eq!(path.matches('/').count(), 2);
            prop_assert!(!path.contains(['?', '&', '-', '_', '%']));
        }
    }
}
