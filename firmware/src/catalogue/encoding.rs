//! Bytes before they are parsed: a limit, and UTF-16 as UTF-8.

use std::io::{self, Read};

/// A reader that fails after a number of bytes instead of ending, so that a long input is not taken for a whole one.
pub(crate) struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Limited<R> {
    pub(crate) fn new(inner: R, most: u64) -> Self {
        Self { inner, left: most }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(too_long)?;
        Ok(read)
    }
}

/// The error of an input beyond a limit.
pub(super) fn too_long() -> io::Error {
    io::Error::from(io::ErrorKind::FileTooLarge)
}

/// The input as UTF-8: UTF-16 with a byte order mark is converted, the mark of UTF-8 is dropped. A byte order mark that is
/// missing means UTF-8.
pub(crate) fn utf8<R: Read>(mut input: R) -> io::Result<impl Read> {
    let mut head = [0; 3];
    let mut filled = 0;
    while filled < head.len() {
        match input.read(&mut head[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    let (order, skip) = match &head[..filled] {
        [0xFF, 0xFE, ..] => (Some(u16::from_le_bytes as fn([u8; 2]) -> u16), 2),
        [0xFE, 0xFF, ..] => (Some(u16::from_be_bytes as fn([u8; 2]) -> u16), 2),
        [0xEF, 0xBB, 0xBF] => (None, 3),
        _ => (None, 0),
    };
    let rest = io::Cursor::new(head[skip..filled].to_vec()).chain(input);
    Ok(Decoded { input: rest, order, odd: None, high: None, ready: Vec::new(), given: 0 })
}

/// Converts piece by piece; a surrogate without its partner becomes U+FFFD, which no name or version has.
struct Decoded<R> {
    input: R,
    /// How two bytes make a unit of UTF-16; `None` for UTF-8.
    order: Option<fn([u8; 2]) -> u16>,
    odd: Option<u8>,
    high: Option<u16>,
    ready: Vec<u8>,
    given: usize,
}

impl<R: Read> Decoded<R> {
    fn unit(&mut self, unit: u16) {
        let units = self.high.take().into_iter().chain([unit]);
        let units: Vec<u16> = units.collect();
        if units.len() == 1 && (0xD800..0xDC00).contains(&unit) {
            self.high = Some(unit);
            return;
        }
        let mut text = [0; 4];
        for sign in char::decode_utf16(units) {
            let sign = sign.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.ready.extend_from_slice(sign.encode_utf8(&mut text).as_bytes());
        }
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(order) = self.order else { return self.input.read(buffer) };
        while self.given == self.ready.len() {
            self.ready.clear();
            self.given = 0;
            let mut piece = [0; 4096];
            let read = self.input.read(&mut piece)?;
            if read == 0 {
                return Ok(0);
            }
            for &byte in &piece[..read] {
                match self.odd.take() {
                    None => self.odd = Some(byte),
                    Some(first) => self.unit(order([first, byte])),
                }
            }
        }
        let count = buffer.len().min(self.ready.len() - self.given);
        buffer[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}
