//! A blob as a reader that survives broken connections.
//!
//! ```text
//! GET blob --body--> thread reads ahead (4 MiB) --> caller, who writes to the disk meanwhile
//!     broken, or silent for a minute --pause--> GET with `Range: bytes=OFFSET-` --> the next bytes
//! ```
//!
//! Invariants: memory is bounded by the read-ahead. The reader ends only after exactly the declared size with the
//! declared digest; anything else is an error. A wrong digest is not tried again.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::Duration,
};

use sha2::{Digest as _, Sha256};

use super::error::PullError;
use super::manifest::Layer;
use super::registry::{FIRST_PAUSE, LONGEST_PAUSE, PATIENCE};
use super::source::{ImageSource, SourceFailure};
use beacon::Class;

const BLOCK: usize = 256 * 1024;
const BLOCKS_AHEAD: usize = 16;
/// A registry that refuses what it was sending may be away behind a proxy that responds in its place: for this time it is asked again.
const AWAY: Duration = Duration::from_secs(30);
/// A connection without a byte for this time is given up.
const STALL: Duration = Duration::from_secs(60);

/// Reads one blob.
pub struct BlobReader<'run> {
    source: &'run dyn ImageSource,
    digest: String,
    size: u64,
    offset: u64,
    sha256: Sha256,
    pump: Option<Pump>,
    pause: Duration,
    last_byte_at: Duration,
    stall: Duration,
    verified: bool,
    resumes: u32,
}

/// A thread that reads ahead. A thread whose connection hangs is left behind; it ends with its connection.
struct Pump {
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    at: usize,
}

impl Pump {
    fn start(mut body: Box<dyn Read + Send>) -> Self {
        let (sender, blocks) = sync_channel(BLOCKS_AHEAD);
        std::thread::spawn(move || {
            loop {
                let mut block = vec![0; BLOCK];
                let read = body.read(&mut block).map(|length| {
                    block.truncate(length);
                    block
                });
                let last = !matches!(&read, Ok(block) if !block.is_empty());
                if sender.send(read).is_err() || last {
                    return;
                }
            }
        });
        Self { blocks, block: Vec::new(), at: 0 }
    }

    fn read(&mut self, buffer: &mut [u8], stall: Duration) -> Result<usize, String> {
        if self.at == self.block.len() {
            self.block = match self.blocks.recv_timeout(stall) {
                Ok(Ok(block)) => block,
                Ok(Err(source)) => return Err(crate::discovery::chain(&source)),
                Err(RecvTimeoutError::Timeout) => return Err("it sends nothing".to_owned()),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            };
            self.at = 0;
        }
        let length = buffer.len().min(self.block.len() - self.at);
        buffer[..length].copy_from_slice(&self.block[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

impl<'run> BlobReader<'run> {
    /// Creates the reader of a layer's blob. The first request is sent by the first read.
    #[must_use]
    pub fn new(source: &'run dyn ImageSource, layer: &Layer) -> Self {
        Self {
            source,
            digest: layer.digest.clone(),
            size: layer.size,
            offset: 0,
            sha256: Sha256::new(),
            pump: None,
            pause: FIRST_PAUSE,
            last_byte_at: source.clock().elapsed(),
            stall: STALL,
            verified: false,
            resumes: 0,
        }
    }

    /// Returns the reader with another time after which a silent connection is given up.
    #[must_use]
    pub fn with_stall(self, stall: Duration) -> Self {
        Self { stall, ..self }
    }

    /// Returns the number of bytes that were read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns how many times a connection was replaced by another one.
    #[must_use]
    pub fn resumes(&self) -> u32 {
        self.resumes
    }

    /// The time since the last byte.
    fn waited(&self) -> Duration {
        self.source.clock().elapsed().saturating_sub(self.last_byte_at)
    }

    fn what(&self) -> String {
        format!("pulling {} of {}", self.digest, self.source.name())
    }

    fn open(&mut self) -> Result<Pump, SourceFailure> {
        let opened = self.source.open_blob(&self.digest, self.offset, &self.what())?;
        let mut pump = Pump::start(opened.body);
        match opened.begins {
            Some(start) if start == self.offset => Ok(pump),
            // The registry ignores ranges: the bytes that are known are read again and dropped.
            Some(0) => {
                let mut left = self.offset;
                let mut buffer = vec![0; BLOCK];
                while left > 0 {
                    let length = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
                    match pump.read(&mut buffer[..length], self.stall) {
                        Ok(0) => {
                            return Err(SourceFailure::Transient("the connection ended early".to_owned()));
                        }
                        Ok(read) => left -= read as u64,
                        Err(reason) => return Err(SourceFailure::Transient(reason)),
                    }
                }
                Ok(pump)
            }
            _ => Err(SourceFailure::Transient(
                "the registry sent another range than the one asked for".to_owned(),
            )),
        }
    }

    /// Reads once, from the open connection or a new one.
    fn attempt(&mut self, buffer: &mut [u8]) -> Result<usize, SourceFailure> {
        let mut pump = match self.pump.take() {
            Some(pump) => pump,
            None => self.open()?,
        };
        let length = usize::try_from(self.size - self.offset).unwrap_or(usize::MAX).min(buffer.len());
        match pump.read(&mut buffer[..length], self.stall) {
            Ok(0) => Err(SourceFailure::Transient("the connection ended early".to_owned())),
            Ok(read) => {
                self.pump = Some(pump);
                Ok(read)
            }
            Err(reason) => Err(SourceFailure::Transient(reason)),
        }
    }

    fn verify(&mut self) -> io::Result<()> {
        self.pump = None;
        let actual = format!("sha256:{}", hex::encode(std::mem::take(&mut self.sha256).finalize()));
        self.verified = actual == self.digest;
        if self.verified {
            return Ok(());
        }
        self.source.failed(Class::Image);
        let (what, expected) = (self.what(), self.digest.clone());
        Err(io::Error::new(io::ErrorKind::InvalidData, PullError::Digest { what, expected, actual }))
    }
}

impl Read for BlobReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.offset == self.size {
                return if self.verified { Ok(0) } else { self.verify().map(|()| 0) };
            }
            let reason = match self.attempt(buffer) {
                Ok(read) => {
                    self.sha256.update(&buffer[..read]);
                    self.offset += read as u64;
                    self.pause = FIRST_PAUSE;
                    self.last_byte_at = self.source.clock().elapsed();
                    return Ok(read);
                }
                // A token expires while a large blob streams: the next request asks for another one.
                Err(SourceFailure::Permanent(PullError::Refused { status: 401, .. })) if self.resumes > 0 => {
                    "the token expired".to_owned()
                }
                Err(SourceFailure::Permanent(PullError::Refused {
                    status: status @ (403 | 404), ..
                })) if self.offset > 0 && self.waited() < AWAY => {
                    format!("the registry responded with {status} to a request for the rest")
                }
                Err(SourceFailure::Permanent(error)) => {
                    self.source.failed(error.class());
                    return Err(io::Error::other(error));
                }
                Err(SourceFailure::Transient(reason)) => reason,
            };
            let waited = self.waited();
            if waited + self.pause > PATIENCE {
                self.source.failed(Class::Medium);
                return Err(io::Error::other(PullError::Unreachable { what: self.what(), reason }));
            }
            self.source.try_again();
            self.resumes += 1;
            self.source.clock().sleep(self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }
}
