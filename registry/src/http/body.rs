//! Reading what clients send, under every bound at once: size, silence, total time, memory.
//!
//! ```text
//!  connection --frames--> pending (256 KiB) --append--> blocking thread: write + hash
//!                            ^ while one chunk is written the next one gathers: two chunks per upload
//! ```
//!
//! Now and then what was written so far is sent on to the disk, beside all of this: the fsync at the end finds little
//! left to do. One at a time per upload, and nobody waits for it.
//!
//! Frames are copied together, so that a client that sends single bytes cannot pin a network buffer with each;
//! only large frames are passed on as they are.

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
/// Frames from here on are written without being copied.
const LARGE_FRAME: usize = 64 << 10;
/// How much is written before the disk gets to see it.
const EARLY_EVERY: u64 = 64 << 20;
/// As long as forever, and still a point in time that exists.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// How much is at least, and how long, still read of a body after its request was refused.
const DRAIN_LEAST: usize = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A request body being read under the time limits of the configuration.
pub(super) struct Incoming<'a> {
    body: &'a mut Body,
    silence: Duration,
    deadline: Instant,
}

/// How a body ended.
pub(super) enum Ending {
    Complete,
    /// It was longer than allowed; nothing beyond the limit was written.
    TooLong,
    /// The connection broke or a time limit passed; what came before was written.
    Broken(ApiError),
}

impl<'a> Incoming<'a> {
    pub(super) fn new(body: &'a mut Body, config: &Config) -> Self {
        Incoming {
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
                // Trailers say nothing here.
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

    /// Writes the body, at most `limit` bytes of it, to an upload session. The last of it is handed back: whatever is done
    /// next with the session writes it first.
    pub(super) async fn store(&mut self, sink: Sink, limit: u64) -> Result<(Sink, Bytes, Ending), Error> {
        let mut slot = Slot::Idle(sink);
        let mut pending = BytesMut::new();
        let mut left = limit;
        let mut early: Option<JoinHandle<()>> = None;
        let ending = loop {
            let data = match self.next().await {
                Ok(Some(data)) => data,
                Ok(None) => break Ending::Complete,
                Err(error) => break Ending::Broken(error),
            };
            let length = data.len() as u64;
            if length > left {
                break Ending::TooLong;
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

/// Where the sink of an upload is.
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
    /// Writes on a blocking thread while the caller goes on.
    fn append_aside(self, chunk: Bytes) -> JoinHandle<Result<Sink, Error>> {
        tokio::task::spawn_blocking(move || self.append(&chunk))
    }
}

/// Reads what is left of a refused body, within bounds; whether all of it was read. Who is still sending when the
/// connection closes sees a reset instead of the refusal, and clients send manifests whole before they were asked who
/// they are: as much as one of those has is always read. Nothing of it is kept.
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
    let message = "the body came too slowly: ask for the upload's status and continue from there";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, Code::BlobUploadInvalid, message)
}

fn broken() -> ApiError {
    let message = "the body ended early: ask for the upload's status and continue from there";
    ApiError::new(StatusCode::BAD_REQUEST, Code::BlobUploadInvalid, message)
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, StreamExt as _};

    use super::*;

    fn config() -> Config {
        Config::new("unused")
    }

    /// A body of so many pieces of 64 KiB.
    fn pieces(count: usize) -> impl stream::Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
        stream::iter((0..count).map(|_| Ok(Bytes::from_static(&[0; 64 << 10]))))
    }

    #[tokio::test]
    async fn a_refused_body_is_read_as_far_as_a_manifest_may_go() {
        for (count, read) in [(0, true), (80, true), (81, false)] {
            assert_eq!(drain(&mut Body::from_stream(pieces(count)), &config()).await, read, "{count}");
        }
        let small = Config { max_manifest_size: 1, ..config() };
        for (count, read) in [(16, true), (17, false)] {
            assert_eq!(drain(&mut Body::from_stream(pieces(count)), &small).await, read, "{count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_that_does_not_come_is_not_waited_for() {
        let begun = Instant::now();
        assert!(!drain(&mut Body::from_stream(pieces(1).chain(stream::pending())), &config()).await);
        assert_eq!(begun.elapsed(), DRAIN_TIME);
    }
}
