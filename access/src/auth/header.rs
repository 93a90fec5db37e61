//! Parsing of the `Authorization` header.
//!
//! ```text
//! Basic  1*SP base64( user-id ":" password )     RFC 7617; the first colon separates
//! Bearer 1*SP token                              RFC 6750; letters, digits, - . _ ~ + / and closing =
//! ```
//!
//! Schemes are compared without case. Lengths are bounded before parsing. Control characters are refused because names
//! are logged. Every other header is `None`, without a reason: a reason would only help an attacker.
//!
//! See docs/operating.md.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::password::MAX_PASSWORD_BYTES;

/// The maximum length of a header: a name and a password in base64, or a token.
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// The maximum length of a user name.
pub const MAX_NAME_BYTES: usize = 128;

/// Base64 with optional padding, because some clients omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The credentials in a header.
#[derive(Debug)]
pub(super) enum PresentedCredentials {
    /// A name and a secret.
    Basic {
        /// The user name, which RFC 7617 calls the user-id.
        name: String,
        /// The password, or a token in its place.
        password: SecretString,
    },
    /// A secret without a name: an API token or a JWT.
    Bearer(SecretString),
}

/// Reads the header's value.
pub(super) fn parse(value: &str) -> Option<PresentedCredentials> {
    if value.len() > MAX_HEADER_BYTES {
        return None;
    }
    let (scheme, rest) = value.trim_ascii().split_once(' ')?;
    let credentials = rest.trim_ascii_start();
    if scheme.eq_ignore_ascii_case("basic") {
        basic(credentials)
    } else if scheme.eq_ignore_ascii_case("bearer") {
        bearer(credentials)
    } else {
        None
    }
}

/// Whether a text can be the name of a user.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)
}

fn basic(credentials: &str) -> Option<PresentedCredentials> {
    let bytes = Zeroizing::new(BASE64.decode(credentials).ok()?);
    let (name, password) = str::from_utf8(&bytes).ok()?.split_once(':')?;
    let bounded = !password.is_empty() && password.len() <= MAX_PASSWORD_BYTES;
    let printable = !password.chars().any(char::is_control);
    (is_name(name) && bounded && printable).then(|| PresentedCredentials::Basic {
        name: name.to_owned(),
        password: SecretString::from(password),
    })
}

fn bearer(credentials: &str) -> Option<PresentedCredentials> {
    let token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    (!credentials.is_empty() && credentials.bytes().all(token_byte))
        .then(|| PresentedCredentials::Bearer(SecretString::from(credentials)))
}
