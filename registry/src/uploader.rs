//! The clients of uploads.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The client of an upload: uploads are shared out by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uploader {
    /// A user, from any address.
    User(String),
    /// A caller without credentials, by its address if that is known.
    Anonymous(Option<IpAddr>),
    /// The embedding program itself, or a client that is not known any more. It has no share.
    Unknown,
}

impl fmt::Display for Uploader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uploader::User(name) => f.write_str(name),
            Uploader::Anonymous(Some(address)) => write!(f, "anonymous at {address}"),
            Uploader::Anonymous(None) => f.write_str("anonymous"),
            Uploader::Unknown => f.write_str("unknown"),
        }
    }
}
