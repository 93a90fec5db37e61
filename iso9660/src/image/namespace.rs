//! The sets of names of an image.

use std::fmt;

/// The set of names by which an image is read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Namespace {
    /// The names of a UDF file system. A path matches without regard to case when no exact match exists.
    Udf,
    /// POSIX names, modes and links; paths are case-sensitive.
    RockRidge,
    /// Unicode names. A path matches without regard to case when no exact match exists.
    Joliet,
    /// ISO 9660 identifiers in lower case, without version and trailing dot. A path matches without regard to case, and
    /// with or without version and dot.
    Plain,
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Namespace::Udf => "UDF",
            Namespace::RockRidge => "Rock Ridge",
            Namespace::Joliet => "Joliet",
            Namespace::Plain => "plain ISO 9660",
        })
    }
}
