//! A reader of tar archives: ustar, pax and GNU, with sparse files.
//!
//! ```text
//! [pax x | GNU L, K]* header [sparse map] data padding   …   two blocks of zeros
//! ```
//!
//! Invariants: at most [`MAX_EXTENSION`] bytes of extensions are in memory for one member, however much their headers claim.
//! The data of a member is exactly what its header says; the end of the stream inside of it is an error.

use std::io::{self, Read};

use super::refusal::refused;

const BLOCK: usize = 512;
/// Maximum length of all extensions of a member.
const MAX_EXTENSION: u64 = 1024 * 1024;
/// Maximum number of data ranges of a sparse file.
const MAX_RANGES: usize = 65_536;
/// Headers that are no members, one after another.
const MAX_EXTENSIONS: usize = 64;

/// The kind of a member, with its target or device numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// Another name for an earlier member.
    Hardlink(Vec<u8>),
    /// A character device.
    CharDevice(u32, u32),
    /// A block device.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
}

/// One member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The path as it is in the archive.
    pub path: Vec<u8>,
    /// The kind of the member.
    pub kind: MemberKind,
    /// The permissions, with set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of modification: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// The size of the file.
    pub size: u64,
    /// Extended attributes, in the order of the archive.
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// For a sparse file: offset and length of each range with data, ascending. The data follow each other in the archive.
    pub ranges: Option<Vec<(u64, u64)>>,
}

/// Reads the members of an archive. As [`Read`] it gives the data of the current member.
pub struct Archive<R> {
    stream: R,
    /// Bytes of the current member's data that were not read.
    left: u64,
    padding: u64,
    ended: bool,
}

/// The values of the extension headers before a header.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
    xattrs: Vec<(String, Vec<u8>)>,
    sparse: Vec<(String, String)>,
}

fn invalid(text: &str) -> io::Error {
    refused(&format!("tar: {text}"))
}

impl<R: Read> Archive<R> {
    /// Creates the reader.
    pub fn new(stream: R) -> Self {
        Self { stream, left: 0, padding: 0, ended: false }
    }

    /// Returns the next member, after what is left of the current one was skipped. `None` is the end of the archive.
    ///
    /// # Errors
    /// Returns the error of the stream, or `InvalidData` when the archive is damaged or exceeds a limit.
    pub fn next_member(&mut self) -> io::Result<Option<Member>> {
        let mut extensions = Extensions::default();
        let mut budget = MAX_EXTENSION;
        for _ in 0..MAX_EXTENSIONS {
            self.skip_rest()?;
            if self.ended {
                return Ok(None);
            }
            let Some(header) = self.header()? else {
                self.ended = true;
                return Ok(None);
            };
            let stored = number(&header[124..136])?;
            let type_flag = header[156];
            if !matches!(type_flag, b'x' | b'g' | b'L' | b'K') {
                return self.member(&header, extensions, stored).map(Some);
            }
            if stored > budget {
                return Err(invalid("the extensions of a member are longer than 1 MiB"));
            }
            budget -= stored;
            self.begin(stored);
            let mut bytes = Vec::new();
            self.read_to_end(&mut bytes)?;
            match type_flag {
                b'x' => extensions.add_pax(&bytes)?,
                b'L' => extensions.path = Some(until_zero(&bytes).to_vec()),
                b'K' => extensions.link = Some(until_zero(&bytes).to_vec()),
                // Global headers hold comments in practice, such as the commit that an archive was made of.
                _ => {}
            }
        }
        Err(invalid("a member has too many extension headers"))
    }

    fn begin(&mut self, stored: u64) {
        self.left = stored;
        self.padding = (BLOCK as u64 - stored % BLOCK as u64) % BLOCK as u64;
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        for length in [std::mem::take(&mut self.left), std::mem::take(&mut self.padding)] {
            if io::copy(&mut self.stream.by_ref().take(length), &mut io::sink())? < length {
                return Err(invalid("the archive is cut off"));
            }
        }
        Ok(())
    }

    /// Reads a header and checks its sum. A block of zeros, or the end of the stream before a header, is the end.
    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut header = [0; BLOCK];
        let mut length = 0;
        while length < BLOCK {
            match self.stream.read(&mut header[length..]) {
                Ok(0) if length == 0 => return Ok(None),
                Ok(0) => return Err(invalid("the archive is cut off")),
                Ok(read) => length += read,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(source),
            }
        }
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let declared = number(&header[148..156])?;
        let sum = |value: &dyn Fn(u8) -> i64| -> i64 {
            let field = |index: usize| (148..156).contains(&index);
            header.iter().enumerate().map(|(at, byte)| if field(at) { 32 } else { value(*byte) }).sum()
        };
        let matches = |sum: i64| u64::try_from(sum) == Ok(declared);
        if !matches(sum(&i64::from)) && !matches(sum(&|byte| i64::from(byte.cast_signed()))) {
            return Err(invalid("the sum of a header is wrong"));
        }
        Ok(Some(header))
    }

    fn member(&mut self, header: &[u8; BLOCK], found: Extensions, stored: u64) -> io::Result<Member> {
        let id = |pax: Option<u64>, field: &[u8]| -> io::Result<u32> {
            let value = pax.map_or_else(|| number(field), Ok)?;
            u32::try_from(value).map_err(|_| invalid("an owner is out of range"))
        };
        let link = found.link.clone().unwrap_or_else(|| until_zero(&header[157..257]).to_vec());
        let mut path = found.path.clone().unwrap_or_else(|| header_path(header));
        let device = || -> io::Result<(u32, u32)> {
            let part =
                |field: &[u8]| u32::try_from(number(field)?).map_err(|_| invalid("a device is out of range"));
            Ok((part(&header[329..337])?, part(&header[337..345])?))
        };
        let kind = match header[156] {
            b'0' | 0 | b'7' if path.ends_with(b"/") => MemberKind::Directory,
            b'0' | 0 | b'7' | b'S' => MemberKind::File,
            b'1' => MemberKind::Hardlink(link),
            b'2' => MemberKind::Symlink(link),
            b'3' => device().map(|(major, minor)| MemberKind::CharDevice(major, minor))?,
            b'4' => device().map(|(major, minor)| MemberKind::BlockDevice(major, minor))?,
            b'5' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            other => {
                return Err(invalid(&format!("members of type {:?} are not supported", char::from(other))));
            }
        };
        let mut stored = found.size.unwrap_or(stored);
        if kind != MemberKind::File {
            // Some writers give links and directories a size without data.
            stored = 0;
        }
        let mut size = stored;
        let mut ranges = None;
        if header[156] == b'S' {
            size = number(&header[483..495])?;
            ranges = Some(self.old_sparse_map(header)?);
        }
        self.begin(stored);
        if let Some(name) = found.sparse("name") {
            path = name.as_bytes().to_vec();
        }
        if let Some(major) = found.sparse("major") {
            if (major, found.sparse("minor")) != ("1", Some("0")) {
                return Err(invalid("sparse files of this version are not supported"));
            }
            let real = found.sparse("realsize").and_then(|real| real.parse().ok());
            size = real.ok_or_else(|| invalid("a sparse file has no size"))?;
            ranges = Some(self.pax_sparse_map()?);
        } else if found.sparse("map").is_some() || found.sparse("numblocks").is_some() {
            return Err(invalid("sparse files of this version are not supported"));
        }
        if let Some(ranges) = &ranges {
            check_ranges(ranges, size, self.left)?;
        }
        let seconds = || i64::try_from(number(&header[136..148]).unwrap_or(0)).unwrap_or(0);
        Ok(Member {
            path,
            kind,
            mode: u32::try_from(number(&header[100..108])? & 0o7777).unwrap_or(0),
            uid: id(found.uid, &header[108..116])?,
            gid: id(found.gid, &header[116..124])?,
            mtime: found.mtime.unwrap_or_else(|| (seconds(), 0)),
            size,
            xattrs: found.xattrs,
            ranges,
        })
    }

    /// The map of an old GNU sparse file: four ranges in the header, 21 in each block that follows.
    fn old_sparse_map(&mut self, header: &[u8; BLOCK]) -> io::Result<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        let mut add = |fields: &[u8]| -> io::Result<()> {
            for field in fields.chunks_exact(24).filter(|field| field[12] != 0) {
                if ranges.len() == MAX_RANGES {
                    return Err(invalid("a sparse file has too many ranges"));
                }
                ranges.push((number(&field[..12])?, number(&field[12..])?));
            }
            Ok(())
        };
        add(&header[386..482])?;
        let mut more = header[482] != 0;
        while more {
            let mut block = [0; BLOCK];
            self.stream.read_exact(&mut block)?;
            add(&block[..504])?;
            more = block[504] != 0;
        }
        Ok(ranges)
    }

    /// The map of a pax sparse file of version 1.0: decimal lines at the start of the data, padded to a block.
    fn pax_sparse_map(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let mut text: Vec<u64> = Vec::new();
        let mut digits = String::new();
        let mut wanted = None;
        while wanted.is_none_or(|wanted| text.len() < wanted) {
            let mut block = [0; BLOCK];
            self.read_exact(&mut block)?;
            for byte in block {
                match byte {
                    b'0'..=b'9' if digits.len() < 20 => digits.push(char::from(byte)),
                    b'\n' => {
                        let number =
                            digits.parse().map_err(|_| invalid("the map of a sparse file is damaged"))?;
                        digits.clear();
                        match wanted {
                            None => {
                                let count = usize::try_from(number).ok().filter(|count| *count <= MAX_RANGES);
                                let count =
                                    count.ok_or_else(|| invalid("a sparse file has too many ranges"))?;
                                wanted = Some(2 * count);
                            }
                            Some(_) => text.push(number),
                        }
                    }
                    0 if digits.is_empty() => {}
                    _ => return Err(invalid("the map of a sparse file is damaged")),
                }
                if wanted.is_some_and(|wanted| text.len() == wanted) {
                    break;
                }
            }
        }
        Ok(text.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }
}

impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if length == 0 {
            return Ok(0);
        }
        let read = self.stream.read(&mut buffer[..length])?;
        if read == 0 {
            return Err(invalid("the archive is cut off"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl Extensions {
    /// Reads records of the form `LENGTH KEY=VALUE\n`.
    fn add_pax(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let damaged = || invalid("a pax header is damaged");
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(damaged)?;
            let length: usize = std::str::from_utf8(&bytes[..space])
                .ok()
                .and_then(|text| text.parse().ok())
                .filter(|length| *length > space + 2 && *length <= bytes.len())
                .ok_or_else(damaged)?;
            let record = bytes[space + 1..length].strip_suffix(b"\n").ok_or_else(damaged)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(damaged)?;
            let key = std::str::from_utf8(&record[..equals]).map_err(|_| damaged())?;
            self.set(key, &record[equals + 1..])?;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let decimal = || {
            let text = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            text.ok_or_else(|| invalid("a number in a pax header is damaged"))
        };
        match key {
            "path" => self.path = Some(value.to_vec()),
            "linkpath" => self.link = Some(value.to_vec()),
            "size" => self.size = Some(decimal()?),
            "uid" => self.uid = Some(decimal()?),
            "gid" => self.gid = Some(decimal()?),
            "mtime" => self.mtime = std::str::from_utf8(value).ok().and_then(time),
            _ => {
                if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                    self.xattrs.push((name.to_owned(), value.to_vec()));
                } else if let Some(name) = key.strip_prefix("GNU.sparse.") {
                    self.sparse.push((name.to_owned(), String::from_utf8_lossy(value).into_owned()));
                }
            }
        }
        Ok(())
    }

    fn sparse(&self, name: &str) -> Option<&str> {
        self.sparse.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Ranges are ascending, inside the file, and hold together exactly the data.
fn check_ranges(ranges: &[(u64, u64)], size: u64, stored: u64) -> io::Result<()> {
    let mut at = 0_u64;
    let mut sum = 0_u64;
    for (offset, length) in ranges {
        let end = offset.checked_add(*length).filter(|end| *end <= size && *offset >= at);
        at = end.ok_or_else(|| invalid("the map of a sparse file is damaged"))?;
        sum += length;
    }
    if sum == stored { Ok(()) } else { Err(invalid("the map of a sparse file does not match its data")) }
}

fn header_path(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_zero(&header[..100]);
    let prefix = until_zero(&header[345..500]);
    if prefix.is_empty() || &header[257..263] != b"ustar\0" {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number of a header: octal digits, or GNU's binary form with the highest bit set.
fn number(field: &[u8]) -> io::Result<u64> {
    if field.first().is_some_and(|first| first & 0x80 != 0) {
        let mut value = u64::from(field[0] & 0x7f);
        for byte in &field[1..] {
            value = value
                .checked_mul(256)
                .map(|value| value | u64::from(*byte))
                .ok_or_else(|| invalid("a number is out of range"))?;
        }
        return Ok(value);
    }
    let text = until_zero(field).trim_ascii();
    if text.is_empty() {
        return Ok(0);
    }
    let text = std::str::from_utf8(text).map_err(|_| invalid("a number is damaged"))?;
    u64::from_str_radix(text, 8).map_err(|_| invalid("a number is damaged"))
}

/// Seconds and nanoseconds of `1700000000.123`.
fn time(text: &str) -> Option<(i64, u32)> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let seconds: i64 = seconds.parse().ok()?;
    // A time before 1970 with a fraction is rare and rounds to its second.
    Some((seconds, if seconds < 0 { 0 } else { digits.parse().ok()? }))
}
