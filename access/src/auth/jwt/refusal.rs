//! The bearer that a verified token proves, and the reasons why a token is refused.

use thiserror::Error;

use crate::auth::Role;

/// The maximum length of a token; a longer one is refused without parsing. Base64 of it still fits in a header.
pub(super) const MAX_JWT_BYTES: usize = 6000;

/// The name and role that a token proves.
#[derive(Debug, Eq, PartialEq)]
pub(in crate::auth) struct Bearer {
    pub(in crate::auth) name: String,
    pub(in crate::auth) role: Role,
}

/// The reason why a token is refused. For the log, not for the caller.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(in crate::auth) enum JwtError {
    #[error("it is longer than {MAX_JWT_BYTES} bytes")]
    TooLong,
    #[error("it does not have three parts in base64url")]
    Form,
    #[error("its signature is wrong")]
    Signature,
    #[error("its alg is that of no configured key")]
    Algorithm,
    #[error("no configured key has its alg and kid")]
    UnknownKey,
    #[error("it is another type of token")]
    Type,
    #[error("it has critical extensions")]
    Critical,
    #[error("its {0} is malformed or incomplete")]
    Unreadable(&'static str),
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
    #[error("its issuer is another one")]
    Issuer,
    #[error("its audience is another one")]
    Audience,
    #[error("its role claim contains no role of a user")]
    Role,
    #[error("the key set could not be fetched yet")]
    NoKeySet,
}
