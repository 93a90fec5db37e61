//! The credentials of a NATS connection, as the text of a file.
//!
//! ```text
//!   -----BEGIN NATS USER JWT-----            a .creds file: the JWT is sent, the key signs the server's random text
//!   eyJ0eXAiOiJKV1Q…
//!   ------END NATS USER JWT------
//!   -----BEGIN USER NKEY SEED-----
//!   SUAIO3FHUX5PNV2L…
//!   ------END USER NKEY SEED------
//!
//!   SUAIO3FHUX5PNV2L…                        a key alone: its public half is sent, the key signs
//!   USER:PASSWORD  or  TOKEN                 is sent as it is
//! ```
//!
//! A seed is base32 of two bytes with its kinds (seed, user), the 32 bytes of an Ed25519 seed, and a CRC-16
//! (<https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/nkey_auth>, `nats-io/nkeys`).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

/// The longest file of credentials.
const MAX_BYTES: usize = 64 << 10;
/// The kind of a seed, in the upper five bits of its first byte: its text begins with `S`.
const SEED: u8 = 18 << 3;
/// The kind of a user, in the eight bits after it: its text goes on with `U`.
const USER: u8 = 20 << 3;
/// The length of a seed as text.
const SEED_LETTERS: usize = 58;

/// Credentials: a user with a key, a user with a password, or a token.
#[derive(Clone, Debug)]
pub struct NatsCredentials(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// The key signs a random text of the server and is not sent. Without a JWT the server knows the public key.
    Signed {
        jwt: Option<SecretString>,
        key: Arc<Ed25519KeyPair>,
    },
    Password(String, SecretString),
    Token(SecretString),
}

/// Why a text has no credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The text is empty.
    #[error("it is empty; put a token, USER:PASSWORD, an NKEY seed or the content of a .creds file into it")]
    Empty,
    /// The text is too long, or has several lines that are not those of a `.creds` file.
    #[error("it is neither a .creds file nor one line with a token, USER:PASSWORD or an NKEY seed")]
    Form,
    /// The text begins as a `.creds` file or as a seed, and its JWT or its key cannot be read.
    #[error("its JWT or its NKEY seed cannot be read; make the .creds file again")]
    Signed,
}

/// The fields of a login that carry credentials.
#[derive(Default, Serialize)]
pub(crate) struct Login<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nkey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

impl NatsCredentials {
    /// Reads credentials: the content of a `.creds` file, or one line with `USER:PASSWORD`, an NKEY seed or a token.
    ///
    /// # Errors
    /// When the text is in none of these forms.
    pub fn parse(text: &str) -> Result<Self, CredentialsError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(CredentialsError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(CredentialsError::Form);
        }
        if text.starts_with("-----BEGIN") {
            let jwt = block(text, "NATS USER JWT").ok_or(CredentialsError::Signed)?;
            let key = key(block(text, "USER NKEY SEED").ok_or(CredentialsError::Signed)?)?;
            return Ok(Self(Kind::Signed { jwt: Some(SecretString::from(jwt)), key }));
        }
        if text.chars().any(|letter| letter.is_control() || letter == ' ') {
            return Err(CredentialsError::Form);
        }
        Ok(Self(match text.split_once(':') {
            Some((user, password)) => Kind::Password(user.to_owned(), SecretString::from(password)),
            None if text.len() == SEED_LETTERS && text.starts_with("SU") => {
                Kind::Signed { jwt: None, key: key(text)? }
            }
            None => Kind::Token(SecretString::from(text)),
        }))
    }

    /// Whether the credentials are sent to the server, so that the connection must be encrypted.
    pub fn are_sent(&self) -> bool {
        !matches!(self.0, Kind::Signed { .. })
    }

    /// The fields of a login. `None`: there is a key, and no text of the server to sign.
    pub(crate) fn login(&self, nonce: Option<&str>) -> Option<Login<'_>> {
        Some(match &self.0 {
            Kind::Signed { jwt, key } => Login {
                sig: Some(URL_SAFE_NO_PAD.encode(key.sign(nonce?.as_bytes()))),
                nkey: jwt.is_none().then(|| public(key)),
                jwt: jwt.as_ref().map(ExposeSecret::expose_secret),
                ..Login::default()
            },
            Kind::Password(user, password) => {
                Login { user: Some(user), pass: Some(password.expose_secret()), ..Login::default() }
            }
            Kind::Token(token) => Login { auth_token: Some(token.expose_secret()), ..Login::default() },
        })
    }
}

/// The line between the first and the last line of a block.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim).skip_while(|line| !is_mark(line, "BEGIN", name)).skip(1);
    let content = lines.find(|line| !line.is_empty())?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
    (content.bytes().all(plain) && is_mark(lines.next()?, "END", name)).then_some(content)
}

fn is_mark(line: &str, side: &str, name: &str) -> bool {
    line.starts_with("-----") && line.trim_matches('-') == format!("{side} {name}")
}

/// The key of a seed.
fn key(seed: &str) -> Result<Arc<Ed25519KeyPair>, CredentialsError> {
    let bytes = Zeroizing::new(BASE32_NOPAD.decode(seed.as_bytes()).map_err(|_| CredentialsError::Signed)?);
    let [first, second, seed @ .., low, high] = bytes.as_slice() else {
        return Err(CredentialsError::Signed);
    };
    let user = (first << 5) | (second >> 3);
    let sum = u16::from_le_bytes([*low, *high]);
    if first & 0xf8 != SEED || user != USER || sum != crc16(&bytes[..bytes.len() - 2]) {
        return Err(CredentialsError::Signed);
    }
    let key = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| CredentialsError::Signed)?;
    Ok(Arc::new(key))
}

/// The public half of a key as text: `U…`.
fn public(key: &Ed25519KeyPair) -> String {
    let mut bytes = vec![USER];
    bytes.extend_from_slice(key.public_key().as_ref());
    let sum = crc16(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    BASE32_NOPAD.encode(&bytes)
}

/// CRC-16/XMODEM: polynomial 0x1021, start 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 }
        })
    })
}

/// The seed of a user for tests, and its public half.
#[cfg(test)]
pub(crate) fn test_user() -> (String, String) {
    let mut bytes = vec![SEED | (USER >> 5), USER << 3];
    bytes.extend(1..=32_u8);
    let sum = crc16(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let seed = BASE32_NOPAD.encode(&bytes);
    let public = public(&key(&seed).unwrap());
    (seed, public)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ED25519, UnparsedPublicKey};

    fn login(text: &str) -> serde_json::Value {
        serde_json::to_value(NatsCredentials::parse(text).unwrap().login(Some("random")).unwrap()).unwrap()
    }

    #[test]
    fn a_line_is_a_token_or_a_user_with_a_password() {
        assert_eq!(login("s3cr3t\n"), serde_json::json!({ "auth_token": "s3cr3t" }));
        assert_eq!(login("shoal:pass:word"), serde_json::json!({ "user": "shoal", "pass": "pass:word" }));
        assert!(NatsCredentials::parse("s3cr3t").unwrap().are_sent());
    }

    #[test]
    fn a_key_signs_the_text_of_the_server_and_is_not_sent() {
        let (seed, public) = test_user();
        assert!(seed.starts_with("SU") && public.starts_with('U') && seed.len() == SEED_LETTERS);
        let file = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\nKeep it secret.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        for (text, field, value) in
            [(seed.as_str(), "nkey", public.as_str()), (&file, "jwt", "eyJ0.eyJq.c2ln")]
        {
            let sent = login(text);
            assert_eq!(sent[field], value);
            assert_eq!(sent.as_object().unwrap().len(), 2, "{sent}");
            let signature = URL_SAFE_NO_PAD.decode(sent["sig"].as_str().unwrap()).unwrap();
            let key = BASE32_NOPAD.decode(public.as_bytes()).unwrap();
            UnparsedPublicKey::new(&ED25519, &key[1..33]).verify(b"random", &signature).unwrap();
            let credentials = NatsCredentials::parse(text).unwrap();
            assert!(!credentials.are_sent() && credentials.login(None).is_none());
        }
    }

    #[test]
    fn credentials_are_not_printed() {
        let (seed, _) = test_user();
        for text in ["s3cr3t", "shoal:s3cr3t", &seed] {
            let shown = format!("{:?}", NatsCredentials::parse(text).unwrap());
            assert!(!shown.contains("s3cr3t") && !shown.contains(&seed), "{shown}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_words() {
        let (seed, _) = test_user();
        let account = seed.replacen("SU", "SA", 1);
        let mut damaged = seed.clone();
        damaged.replace_range(20..21, if &seed[20..21] == "A" { "B" } else { "A" });
        let jwt = "-----BEGIN NATS USER JWT-----\neyJ0\n------END NATS USER JWT------\n";
        let block = |seed: &str| {
            format!("{jwt}-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------")
        };
        for (text, why) in [
            (" \n", CredentialsError::Empty),
            ("one\ntwo", CredentialsError::Form),
            ("-----BEGIN NATS USER JWT-----\nnothing", CredentialsError::Signed),
            (jwt, CredentialsError::Signed),
            (&block(&account), CredentialsError::Signed),
            (&block("SUAIO"), CredentialsError::Signed),
            (&block("not a seed"), CredentialsError::Signed),
            (&damaged, CredentialsError::Signed),
        ] {
            assert_eq!(NatsCredentials::parse(text).map(drop), Err(why), "{text}");
        }
        assert_eq!(NatsCredentials::parse(&"x".repeat(MAX_BYTES + 1)).map(drop), Err(CredentialsError::Form));
    }

    #[test]
    fn the_sum_is_that_of_the_standard() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
