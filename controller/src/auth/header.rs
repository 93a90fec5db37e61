//! The `Authorization` header, as text.
//!
//! ```text
//! Basic  1*SP base64( user-id ":" password )     RFC 7617; the first colon divides
//! Bearer 1*SP token                              RFC 6750; letters, digits, - . _ ~ + / and closing =
//! ```
//!
//! Schemes are compared without case. Everything has a bound before it is looked at, and control characters are
//! refused because names end up in logs. Anything else is `None`: why a header is unreadable helps nobody but a
//! guesser.
//!
//! DESIGN section 9.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::password::MAX_PASSWORD_BYTES;

/// No longer header is looked at: room for a name and a password in base64, or for a token.
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// No longer user name is looked up.
pub(super) const MAX_NAME_BYTES: usize = 128;

/// Some clients leave the padding away.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a caller presented.
#[derive(Debug)]
pub(super) enum PresentedCredentials {
    /// A name and a secret.
    Basic {
        /// The user-id.
        name: String,
        /// The password, or a token in its place.
        password: SecretString,
    },
    /// A secret alone.
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

/// Whether a text can be the name of somebody.
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
