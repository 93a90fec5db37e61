//! The outer form of a `.deb` file: an `ar` archive with three members.
//!
//! ```text
//! "!<arch>\n" | header (60) "debian-binary"  | "2.0\n"
//!             | header (60) "control.tar.xz" | ...        name 16, mtime 12, owner 6+6, mode 8, size 10, "`\n"
//!             | header (60) "data.tar.xz"    | ...        a member begins at an even offset
//! ```
//!
//! Invariant: every range that is returned lies in the file.

use std::ops::Range;

/// The places of the members of a package.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Members {
    /// The time stamp of the archive, in seconds since 1970: the time of the package's last change.
    pub(crate) time: u64,
    /// The packed archive of the package's description.
    pub(crate) control: Range<usize>,
    /// The packed archive of the package's files.
    pub(crate) data: Range<usize>,
}

/// The most members of a package: three, a signature, and some room.
const MOST_MEMBERS: usize = 16;

/// Finds the members of a package.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn members(bytes: &[u8]) -> Result<Members, &'static str> {
    let mut at = 8;
    if bytes.get(..at) != Some(b"!<arch>\n") {
        return Err("it is not a Debian package: the ar signature is missing");
    }
    let (mut time, mut control, mut data) = (None, None, None);
    for number in 0..MOST_MEMBERS {
        if at >= bytes.len() {
            break;
        }
        let header = bytes.get(at..at + 60).ok_or("the file is cut in the header of a member")?;
        if &header[58..] != b"`\n" {
            return Err("the header of a member is damaged");
        }
        let name = text(&header[..16]).trim_end_matches('/');
        let size: usize =
            text(&header[48..58]).parse().map_err(|_| "the size of a member is not a number")?;
        let content = at + 60..(at + 60).checked_add(size).ok_or("the size of a member is not possible")?;
        if bytes.get(content.clone()).is_none() {
            return Err("the file is shorter than its members: the download was cut");
        }
        match name {
            "debian-binary" if number == 0 => {
                if !bytes[content.clone()].starts_with(b"2.") {
                    return Err("the version of the package's format is not 2");
                }
                time = Some(text(&header[16..28]).parse().unwrap_or(0));
            }
            _ if number == 0 => return Err("the first member is not debian-binary"),
            _ if name.starts_with("control.tar") && control.is_none() => control = Some(content.clone()),
            _ if name.starts_with("data.tar") && data.is_none() => data = Some(content.clone()),
            // Members whose names begin with an underscore are extensions that readers ignore.
            _ if name.starts_with('_') => {}
            _ => return Err("the package has a member that is not expected"),
        }
        at = content.end + content.end % 2;
    }
    match (time, control, data) {
        (Some(time), Some(control), Some(data)) => Ok(Members { time, control, data }),
        _ => Err("the package has no control.tar or no data.tar"),
    }
}

/// A field of a header without its padding.
fn text(field: &[u8]) -> &str {
    str::from_utf8(field).unwrap_or_default().trim_end_matches(' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::ar;

    #[test]
    fn the_members_of_a_package_are_found() {
        let file = ar(&[("debian-binary", b"2.0\n"), ("control.tar.gz", b"abc"), ("data.tar.xz", b"data")]);
        let found = members(&file).unwrap();
        assert_eq!(&file[found.control], b"abc");
        assert_eq!(&file[found.data], b"data");
        assert_eq!(found.time, 1_700_000_000);
    }

    #[test]
    fn every_cut_of_a_package_is_refused() {
        let file = ar(&[("debian-binary", b"2.0\n"), ("control.tar.gz", b"abc"), ("data.tar.xz", b"data")]);
        for end in 0..file.len() {
            assert!(members(&file[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_huge_size_and_a_strange_member_are_refused() {
        let mut file = ar(&[("debian-binary", b"2.0\n"), ("control.tar", b""), ("data.tar", b"")]);
        file[8 + 48..8 + 58].copy_from_slice(b"9999999999");
        assert!(members(&file).is_err());
        for strange in [
            ar(&[("control.tar", b""), ("debian-binary", b"2.0\n"), ("data.tar", b"")]),
            ar(&[("debian-binary", b"3.0\n"), ("control.tar", b""), ("data.tar", b"")]),
            ar(&[("debian-binary", b"2.0\n"), ("control.tar", b"")]),
            ar(&[("debian-binary", b"2.0\n"), ("control.tar", b""), ("data.tar", b""), ("data.tar.xz", b"")]),
            b"not an archive".to_vec(),
        ] {
            assert!(members(&strange).is_err());
        }
    }
}
