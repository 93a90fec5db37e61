//! The secrets of web sessions: the cookie of a browser, and the proof that a change comes from its own pages.
//!
//! ```text
//!   Set-Cookie: __Host-shoal=<40 × [a-z2-7]>; Path=/; Secure; HttpOnly; SameSite=Strict       200 random bits
//!                             │
//!                             ├─ SHA-256 ───────────────> stored, looked up with each request
//!                             └─ HMAC-SHA-256(., csrf) ─> X-CSRF-Token, which pages send with each change
//! ```
//!
//! Invariants: a cookie is made here and nowhere else, so that no client chooses one (session fixation); a request with two
//! cookies of this name has none, because it is unknown which one the controller set; no type shows the secret. With the
//! prefix `__Host-` a browser takes the cookie from this host only, over a secure connection, for the whole host.
//!
//! Plain HTTP has no cookie of its own: there is one form, and a browser that does not treat loopback as secure ignores it.
//!
//! RFC 6265; docs/operating.md.

use std::fmt;

use axum::http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use secrets::{NoRandomness, base32_lower, hmac_sha256, random_bytes, same_secret, token_hash};

/// The name of the cookie.
pub const SESSION_COOKIE: &str = "__Host-shoal";
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Strict";
const RANDOM_BYTES: usize = 25;
const SECRET_CHARS: usize = RANDOM_BYTES / 5 * 8;

/// The secret of a web session, the value of its cookie.
pub struct SessionSecret(SecretString);

impl SessionSecret {
    /// A new secret.
    ///
    /// # Errors
    /// [`NoRandomness`] when the operating system returns no random bytes.
    pub fn generate() -> Result<Self, NoRandomness> {
        let bytes = Zeroizing::new(random_bytes::<RANDOM_BYTES>()?);
        Ok(Self(base32_lower(bytes.as_slice())))
    }

    /// The secret in the cookie of a request; `None` without a cookie that has the form of one.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut values = lines.flat_map(session_cookies);
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let shaped = text.len() == SECRET_CHARS
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte));
        shaped.then(|| Self(SecretString::from(text)))
    }

    /// The SHA-256 of the secret in hexadecimal, which is stored and looked up.
    pub fn hash(&self) -> String {
        token_hash(self.0.expose_secret())
    }

    /// The proof that a changing request comes from a page of this controller. Other sites cannot read it, and it cannot be computed
    /// from what is stored.
    pub fn csrf_token(&self) -> SecretString {
        SecretString::from(hex::encode(hmac_sha256(self.0.expose_secret().as_bytes(), b"csrf")))
    }

    /// Whether `presented` is the proof for this session. Constant-time.
    pub fn accepts(&self, presented: &str) -> bool {
        same_secret(self.csrf_token().expose_secret(), presented)
    }

    /// The value of `Set-Cookie` that gives the session to a browser. The cookie ends with the browser or the session.
    pub fn set_cookie(&self) -> HeaderValue {
        let text = format!("{SESSION_COOKIE}={}; {ATTRIBUTES}", self.0.expose_secret());
        let mut value = HeaderValue::from_str(&text).unwrap_or_else(|_| remove_cookie());
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(redacted)")
    }
}

/// The value of `Set-Cookie` that removes the cookie from a browser.
pub fn remove_cookie() -> HeaderValue {
    HeaderValue::from_static("__Host-shoal=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0")
}

/// The values of the cookies with our name in one line of `Cookie`.
fn session_cookies(line: &str) -> impl Iterator<Item = &str> {
    line.split(';').filter_map(|pair| pair.trim().strip_prefix(SESSION_COOKIE)?.strip_prefix('='))
}

/// Entry points of the fuzz targets.
pub mod fuzz {
    use super::{HeaderMap, HeaderValue, SESSION_COOKIE, SessionSecret, header};

    /// Lines of `Cookie`, separated by line ends, are read. A secret that is found is written as it was read.
    ///
    /// # Panics
    /// When the cookie of a found secret is read as another one.
    pub fn cookies(data: &[u8]) {
        let mut headers = HeaderMap::new();
        for line in data.split(|byte| *byte == b'\n').take(64) {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                headers.append(header::COOKIE, value);
            }
        }
        if let Some(secret) = SessionSecret::of(&headers) {
            let mut again = HeaderMap::new();
            let set = secret.set_cookie();
            let pair = set.to_str().unwrap_or_default().split(';').next().unwrap_or_default().to_owned();
            assert!(pair.starts_with(SESSION_COOKIE), "the cookie has our name");
            if let Ok(value) = HeaderValue::from_str(&pair) {
                again.append(header::COOKIE, value);
            }
            let read = SessionSecret::of(&again).map(|secret| secret.hash());
            assert_eq!(read, Some(secret.hash()), "the cookie that is set is the one that is read");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "abcdefghijklmnopqrstuvwxyz234567abcdefgh";

    fn found(lines: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_str(line).unwrap());
        }
        SessionSecret::of(&headers).is_some()
    }

    #[test]
    fn the_cookie_is_read_among_others_and_not_when_it_is_there_twice() {
        let ours = format!("{SESSION_COOKIE}={SECRET}");
        for lines in [vec![ours.as_str()], vec!["theme=dark", &ours], vec![&format!("a=b; {ours};c=d")]] {
            assert!(found(&lines), "{lines:?}");
        }
        for lines in [
            vec![],
            vec![""],
            vec!["shoal=abc"],
            vec![&format!("{ours}; {ours}")],
            vec![&ours, &ours],
            vec![&format!("{SESSION_COOKIE}=; {ours}")],
            vec![&format!("{SESSION_COOKIE}x={SECRET}")],
            vec![&format!("x{ours}")],
            vec![&format!("__host-shoal={SECRET}")],
            vec![&format!("{SESSION_COOKIE}=\"{SECRET}\"")],
            vec![&ours[..ours.len() - 1]],
            vec![&format!("{ours}a")],
            vec![&ours.to_uppercase()],
        ] {
            assert!(!found(&lines), "{lines:?}");
        }
    }

    #[test]
    fn a_secret_is_new_each_time_and_its_cookie_has_every_protection() {
        let (one, other) = (SessionSecret::generate().unwrap(), SessionSecret::generate().unwrap());
        assert_ne!(one.hash(), other.hash());
        let set = one.set_cookie();
        assert!(set.is_sensitive());
        let set = set.to_str().unwrap();
        let (pair, attributes) = set.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Strict");
        assert!(found(&[pair]));
        let secret = pair.split_once('=').unwrap().1;
        assert!(!format!("{one:?}").contains(&secret[..6]));
        assert!(remove_cookie().to_str().unwrap().starts_with("__Host-shoal=; Path=/; Secure;"));
    }

    #[test]
    fn a_proof_belongs_to_one_session() {
        let (one, other) = (SessionSecret::generate().unwrap(), SessionSecret::generate().unwrap());
        let token = one.csrf_token();
        assert!(one.accepts(token.expose_secret()));
        assert!(!other.accepts(token.expose_secret()));
        assert!(!one.accepts(""));
        assert_ne!(token.expose_secret(), one.hash(), "the stored hash is no proof");
    }

    proptest! {
        #[test]
        fn any_cookie_is_read_or_ignored(line in "[ -~]{0,120}", ours in any::<bool>()) {
            let line = if ours { format!("{line}; {SESSION_COOKIE}={SECRET}") } else { line };
            fuzz::cookies(line.as_bytes());
        }
    }
}
