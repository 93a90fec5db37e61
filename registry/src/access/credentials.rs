//! The credentials in the `Authorization` header.
//!
//! ```text
//!  Basic  <base64 of user ":" password>      the user has no ":", the password may
//!  Bearer <token>                            letters, digits, "-._~+/" and "=" at the end
//! ```
//!
//! No type in this module prints a password or a token.
//!
//! Specification: RFC 9110 section 11, RFC 7617, RFC 6750.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A longer header is refused without being parsed.
const HEADER_MAX: usize = 16 << 10;
const USER_MAX: usize = 256;
const PASSWORD_MAX: usize = 4096;
/// The base64 of an empty name, a colon, and an empty password.
const EMPTY_BASIC: &str = "Og==";

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret as text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The credentials a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password.
    Basic {
        /// The name of the user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A bearer token.
    Bearer(Secret),
}

impl Credentials {
    /// Credentials of a name and a password; `None` when they are empty, too long or have characters that are not
    /// allowed.
    pub(crate) fn basic(user: &str, password: &str) -> Option<Self> {
        let named = !user.is_empty() && user.len() <= USER_MAX && !user.contains(char::is_control);
        let possible = named && !user.contains(':') && password.len() <= PASSWORD_MAX;
        possible.then(|| Credentials::Basic { user: user.to_owned(), password: password.to_owned().into() })
    }

    /// Whether the header has a scheme and nothing else: `Basic` with an empty name and an empty password, or `Bearer`
    /// without a token. Clients without credentials send that after they saw a challenge.
    pub(crate) fn are_empty(header: &str) -> bool {
        let (scheme, value) = header.trim_ascii().split_once(' ').unwrap_or((header.trim_ascii(), ""));
        let value = value.trim_ascii();
        (scheme.eq_ignore_ascii_case("basic") && (value.is_empty() || value == EMPTY_BASIC))
            || (scheme.eq_ignore_ascii_case("bearer") && value.is_empty())
    }

    /// Parses the header; `None` for another scheme or a malformed value.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        if header.len() > HEADER_MAX {
            return None;
        }
        let (scheme, value) = header.split_once(' ')?;
        let value = value.trim_start_matches(' ');
        if scheme.eq_ignore_ascii_case("basic") {
            let decoded = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
            let (user, password) = decoded.split_once(':')?;
            return Credentials::basic(user, password);
        }
        let token = value.trim_end_matches('=');
        let of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        let bearer =
            scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.bytes().all(of_token);
        bearer.then(|| Credentials::Bearer(value.to_owned().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(text: &str) -> Option<Credentials> {
        Credentials::parse(&format!("Basic {}", STANDARD.encode(text)))
    }

    #[test]
    fn a_password_may_contain_a_colon_and_a_name_may_not() {
        let expected = Credentials::basic("ann", "open: sesame: ä").unwrap();
        assert_eq!(basic("ann:open: sesame: ä"), Some(expected));
        assert_eq!(Credentials::basic("an:n", "x"), None);
    }

    #[test]
    fn malformed_headers_give_no_credentials() {
        for header in
            ["", "Basic", "Basic ", "Basic ann:x", "Digest x", "Bearer", "Bearer ", "Bearer =", "Bearer a b"]
        {
            assert_eq!(Credentials::parse(header), None, "{header:?}");
        }
        for text in ["ann", ":x", "a\nn:x", "\u{0}:x"] {
            assert_eq!(basic(text), None, "{text:?}");
        }
        assert_eq!(basic(&format!("{}:x", "a".repeat(257))), None);
        assert_eq!(basic(&format!("a:{}", "x".repeat(PASSWORD_MAX + 1))), None);
        assert!(basic(&format!("a:{}", "x".repeat(PASSWORD_MAX))).is_some());
        assert_eq!(Credentials::parse(&format!("Bearer {}", "x".repeat(HEADER_MAX))), None);
        assert!(Credentials::parse("bearer abc.def-_~+/==").is_some());
    }

    #[test]
    fn credentials_without_name_password_and_token_are_empty() {
        assert_eq!(STANDARD.encode(":"), EMPTY_BASIC);
        for header in ["Basic Og==", "basic  Og==", "Basic", "Basic ", "Bearer", "bearer "] {
            assert!(Credentials::are_empty(header), "{header:?}");
        }
        let password_only = format!("Basic {}", STANDARD.encode(":x"));
        for header in ["", "Og==", "Digest", "Basic x", "Bearer x", "Bearer =", &password_only] {
            assert!(!Credentials::are_empty(header), "{header:?}");
        }
    }

    #[test]
    fn neither_password_nor_token_is_ever_printed() {
        let shown = format!("{:?} {:?}", basic("ann:sesame"), Credentials::parse("Bearer sesame"));
        assert!(shown.contains("ann") && !shown.contains("sesame"), "{shown}");
    }
}
