//! Reading request bodies under limits of size, silence, total time and memory.
//!
//! ```text
//!  connection --frames--> pending (256 KiB) --append--> blocking thread: write + hash
//!                            ^ while one chunk is written the next one is collected: two chunks per upload
//! ```
//!
//! At intervals the written part is flushed to the disk in the background, so that the fsync at the end has little left
//! to do. One flush at a time per upload, and the upload does not wait for it.
//!
//! Small frames are copied together, so that a client that sends single bytes cannot hold a network buffer with each.
//! Large frames are passed on without a copy.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{ApiError, Code};
use crate::config::Config;
use crate::error::Error;
use crate::store::Sink;

const CHUNK: usize = 256 << 10;
/// Frames of at least this size are written without being copied.
const LARGE_FRAME: usize = 64 << 10;
/// The number of bytes written between two flushes to the disk.
const EARLY_EVERY: u64 = 64 << 20;
/// Practically without end, and still representable as a point in time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// How many bytes at least, and for how long, a body is still read after its request was refused.
const DRAIN_LEAST: usize = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A request body being read under the time limits of the configuration.
pub(super) struct RequestBody<'a> {
    body: &'a mut Body,
    silence: Duration,
    deadline: Instant,
}

/// How a body ended.
pub(super) enum BodyEnd {
    Complete,
    /// The body was longer than allowed; nothing beyond the limit was written.
    TooLong,
    /// The connection broke or a time limit passed; what came before was written.
    Broken(ApiError),
}

impl<'a> RequestBody<'a> {
    pub(super) fn new(body: &'a mut Body, config: &Config) -> Self {
        RequestBody {
            body,
            silence: config.upload_read_timeout.min(LONGEST),
            deadline: Instant::now() + config.upload_timeout.min(LONGEST),
        }
    }

    /// The next piece of data; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let deadline = self.deadline.min(Instant::now() + self.silence);
            let frame = timeout_at(deadline, self.body.frame()).await.map_err(|_| timed_out())?;
            match frame {
                None => return Ok(None),
                Some(Err(_)) => return Err(broken()),
                // Trailers are ignored.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Ok(Some(data)),
                    _ => continue,
                },
            }
        }
    }

    /// Reads at most `limit` bytes; `None` when there are more.
    pub(super) async fn collect(&mut self, limit: usize) -> Result<Option<Bytes>, ApiError> {
        let mut collected = BytesMut::new();
        while let Some(data) = self.next().await? {
            if data.len() > limit - collected.len() {
                return Ok(None);
            }
            collected.extend_from_slice(&data);
        }
        Ok(Some(collected.freeze()))
    }

    /// Writes the body, at most `limit` bytes of it, to an upload session. The last piece is returned unwritten: the
    /// next operation on the session writes it first.
    pub(super) async fn store(&mut self, sink: Sink, limit: u64) -> Result<(Sink, Bytes, BodyEnd), Error> {
        let mut slot = Slot::Idle(sink);
        let mut pending = BytesMut::new();
        let mut left = limit;
        let mut early: Option<JoinHandle<()>> = None;
        let ending = loop {
            let data = match self.next().await {
                Ok(Some(data)) => data,
                Ok(None) => break BodyEnd::Complete,
                Err(error) => break BodyEnd::Broken(error),
            };
            let length = data.len() as u64;
            if length > left {
                break BodyEnd::TooLong;
            }
            left -= length;
            let chunk = if pending.is_empty() && data.len() >= LARGE_FRAME {
                data
            } else {
                pending.extend_from_slice(&data);
                if pending.len() < CHUNK {
                    continue;
                }
                pending.split().freeze()
            };
            let sink = slot.settle().await?;
            if sink.offset() / EARLY_EVERY != (sink.offset() + chunk.len() as u64) / EARLY_EVERY
                && early.as_ref().is_none_or(JoinHandle::is_finished)
            {
                let session = Arc::clone(sink.session());
                early = Some(tokio::task::spawn_blocking(move || session.write_back()));
            }
            slot = Slot::Writing(sink.append_aside(chunk));
        };
        Ok((slot.settle().await?, pending.freeze(), ending))
    }
}

/// Whether the sink of an upload is here or on a blocking thread.
enum Slot {
    Idle(Sink),
    Writing(JoinHandle<Result<Sink, Error>>),
}

impl Slot {
    async fn settle(self) -> Result<Sink, Error> {
        match self {
            Slot::Idle(sink) => Ok(sink),
            Slot::Writing(write) => write.await.map_err(|_| Error::Stopped)?,
        }
    }
}

impl Sink {
    /// Writes on a blocking thread while the caller continues.
    fn append_aside(self, chunk: Bytes) -> JoinHandle<Result<Sink, Error>> {
        tokio::task::spawn_blocking(move || self.append(&chunk))
    }
}

/// Reads the rest of a refused body, within limits; returns whether all of it was read. A client that is still sending
/// when the connection closes sees a reset instead of the refusal, and clients send whole manifests before they are
/// asked for credentials: so the size of a manifest is always read. The bytes are discarded.
pub(super) async fn drain(body: &mut Body, config: &Config) -> bool {
    let mut left = config.max_manifest_size.max(DRAIN_LEAST);
    let to_the_end = async {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            let length = frame.data_ref().map_or(0, Bytes::len);
            if length > left {
                return false;
            }
            left -= length;
        }
        true
    };
    timeout(DRAIN_TIME, to_the_end).await.unwrap_or(false)
}

fn timed_out() -> ApiError {
    let message = "the body was sent too slowly: query the upload's status and continue from there";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, Code::BlobUploadInvalid, message)
}

fn broken() -> ApiError {
    let message = "the body ended early: query the upload's status and continue from there";
    ApiError::new(StatusCode::BAD_REQUEST, Code::BlobUploadInvalid, message)
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, StreamExt as _};

    use super::*;

    fn config() -> Config {
        Config::new("unused")
    }

    /// A body of `count` pieces of 64 KiB.
    fn pieces(count: usize) -> impl stream::Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
        stream::iter((0..count).map(|_| Ok(Bytes::from_static(&[0; 64 << 10]))))
    }

    #[tokio::test]
    async fn a_refused_body_is_read_up_to_the_size_of_a_manifest() {
        for (count, read) in [(0, true), (80, true), (81, false)] {
            assert_eq!(drain(&mut Body::from_stream(pieces(count)), &config()).await, read, "{count}");
        }
        let small = Config { max_manifest_size: 1, ..config() };
        for (count, read) in [(16, true), (17, false)] {
            assert_eq!(drain(&mut Body::from_stream(pieces(count)), &small).await, read, "{count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_that_is_not_sent_is_not_waited_for() {
        let begun = Instant::now();
        assert!(!drain(&mut Body::from_stream(pieces(1).chain(stream::pending())), &config()).await);
        assert_eq!(begun.elapsed(), DRAIN_TIME);
    }
}
