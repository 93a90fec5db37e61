//! Why an image cannot be pulled, from a registry or from a medium.

use beacon::Class;

/// An image cannot be pulled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// The registry refused a request for good.
    #[error("{what}: the registry responded with {status}{hint}")]
    Refused {
        /// The request, in words.
        what: String,
        /// The status code.
        status: u16,
        /// The meaning of the status for a pull, appended to the message.
        hint: &'static str,
    },
    /// The registry did not respond in time.
    #[error("{what}: {reason}")]
    Unreachable {
        /// The request, in words.
        what: String,
        /// The failure of the last attempt.
        reason: String,
    },
    /// A document breaks a rule.
    #[error("{what}: {reason}")]
    Document {
        /// The document.
        what: String,
        /// The rule.
        reason: String,
    },
    /// Content does not match its digest.
    #[error("{what}: the digest is {expected}, the content hashes to {actual}")]
    Digest {
        /// The content.
        what: String,
        /// The digest that was asked for.
        expected: String,
        /// The digest of the content.
        actual: String,
    },
}

impl PullError {
    /// Returns the class of a failure for this reason.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. } => Class::Medium,
            Self::Refused { .. } | Self::Document { .. } | Self::Digest { .. } => Class::Image,
        }
    }
}
