//! The record that a partition holds in place of a file system: a header and a payload.
//!
//! ```text
//! offset  size  field
//!      0     8  magic "SHOALREC"
//!      8     4  kind: 1 content, 2 loader, 3 config drive
//!     12     4  CRC-32 of the header with this field zero
//!     16     8  payload length
//!     24     8  entries in the payload (files of a tar stream; 1 for text)
//!     32    32  SHA-256 of the payload
//!     64    16  unique GUID of the partition, as in its GPT entry
//!     80     2  length of the subject
//!     82  <=510 subject: the installed content (an image digest), UTF-8
//!   4096     …  payload
//! ```
//!
//! All numbers are little-endian, unused bytes zero. The unique GUID ties the record to its partition, so that a record
//! that an older layout left behind is not taken for a record of the new layout.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
};

use sha2::{Digest, Sha256};

use crate::gpt::GptEntry;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 4096;

const MAGIC: &[u8; 8] = b"SHOALREC";
const SUBJECT_AT: usize = 82;
const MAX_SUBJECT: usize = 510;
const BUFFER_BYTES: usize = 64 * 1024;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The unpacked image.
    Content,
    /// The facts that the boot loader needs: root partition and image digest.
    Loader,
    /// The NoCloud files.
    ConfigDrive,
}

impl RecordKind {
    fn code(self) -> u32 {
        match self {
            Self::Content => 1,
            Self::Loader => 2,
            Self::ConfigDrive => 3,
        }
    }
}

/// Writes one record: payload first, header last.
#[derive(Debug)]
pub struct RecordWriter {
    file: File,
    kind: RecordKind,
    unique_guid: [u8; 16],
    offset: u64,
    capacity: u64,
    written: u64,
    buffer: Vec<u8>,
    sha256: Sha256,
}

impl RecordWriter {
    pub(super) fn new(file: File, entry: &GptEntry, kind: RecordKind) -> Self {
        Self {
            file,
            kind,
            unique_guid: entry.unique_guid.to_bytes_le(),
            offset: entry.offset(),
            capacity: entry.bytes().saturating_sub(HEADER_BYTES as u64),
            written: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            sha256: Sha256::new(),
        }
    }

    /// Maximum length of the payload in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Writes the header. The partition then holds `subject`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written or the subject is too long.
    pub fn finish(mut self, subject: &str, entries: u64) -> io::Result<()> {
        self.flush()?;
        let subject = subject.as_bytes();
        if subject.len() > MAX_SUBJECT {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the subject of a record is too long"));
        }
        let mut header = vec![0u8; HEADER_BYTES];
        header[0..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&self.kind.code().to_le_bytes());
        header[16..24].copy_from_slice(&self.written.to_le_bytes());
        header[24..32].copy_from_slice(&entries.to_le_bytes());
        header[32..64].copy_from_slice(&self.sha256.finalize());
        header[64..80].copy_from_slice(&self.unique_guid);
        header[80..82].copy_from_slice(&(subject.len() as u16).to_le_bytes());
        header[SUBJECT_AT..SUBJECT_AT + subject.len()].copy_from_slice(subject);
        let crc = crc32fast::hash(&header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&header, self.offset)
    }
}

impl Write for RecordWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let queued = self.written + self.buffer.len() as u64;
        if bytes.len() as u64 > self.capacity.saturating_sub(queued) {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the partition has room for {} bytes only; make it larger", self.capacity),
            ));
        }
        let take = bytes.len().min(BUFFER_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..take]);
        if self.buffer.len() == BUFFER_BYTES {
            self.flush()?;
        }
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.offset + HEADER_BYTES as u64 + self.written)?;
        self.sha256.update(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// A header that was read back and verified.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) length: u64,
    pub(super) entries: u64,
    pub(super) sha256: [u8; 32],
    pub(super) subject: String,
}

impl Record {
    /// Reads the header of a partition. The error text is the rule that the header breaks.
    pub(super) fn read(file: &File, entry: &GptEntry, kind: RecordKind) -> Result<Self, String> {
        let mut header = vec![0u8; HEADER_BYTES];
        file.read_exact_at(&mut header, entry.offset()).map_err(|source| source.to_string())?;
        if header[0..8] != *MAGIC {
            return Err("it holds no record".to_owned());
        }
        let mut zeroed = header.clone();
        zeroed[12..16].fill(0);
        if header[12..16] != crc32fast::hash(&zeroed).to_le_bytes() {
            return Err("the checksum of its record does not match".to_owned());
        }
        if header[8..12] != kind.code().to_le_bytes() {
            return Err("its record is of another kind".to_owned());
        }
        if header[64..80] != entry.unique_guid.to_bytes_le() {
            return Err("its record belongs to another partition".to_owned());
        }
        let length = little_u64(&header[16..24]);
        if length > entry.bytes().saturating_sub(HEADER_BYTES as u64) {
            return Err("its record claims more than the partition holds".to_owned());
        }
        let subject_length = usize::from(u16::from_le_bytes([header[80], header[81]])).min(MAX_SUBJECT);
        let mut sha256 = [0u8; 32];
        sha256.copy_from_slice(&header[32..64]);
        Ok(Self {
            length,
            entries: little_u64(&header[24..32]),
            sha256,
            subject: String::from_utf8_lossy(&header[SUBJECT_AT..SUBJECT_AT + subject_length]).into_owned(),
        })
    }
}

/// The payload of a record as a stream that hashes what it reads.
pub(super) struct PayloadReader<'file> {
    file: &'file File,
    position: u64,
    remaining: u64,
    sha256: Sha256,
}

impl<'file> PayloadReader<'file> {
    pub(super) fn new(file: &'file File, entry: &GptEntry, record: &Record) -> Self {
        Self {
            file,
            position: entry.offset() + HEADER_BYTES as u64,
            remaining: record.length,
            sha256: Sha256::new(),
        }
    }

    /// Reads the rest of the payload and returns the SHA-256 of the whole payload.
    pub(super) fn finish(mut self) -> io::Result<[u8; 32]> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.sha256.finalize().into())
    }
}

impl io::Read for PayloadReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..want], self.position)?;
        if read == 0 && want > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.sha256.update(&buffer[..read]);
        self.position += read as u64;
        self.remaining -= read as u64;
        Ok(read)
    }
}

fn little_u64(bytes: &[u8]) -> u64 {
    let mut field = [0u8; 8];
    field.copy_from_slice(bytes);
    u64::from_le_bytes(field)
}
