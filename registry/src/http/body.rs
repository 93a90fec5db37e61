//! Reading request bodies under limits of size, silence, total time and memory.
//!
//! ```text
//!  connection --frames--> gathered (256 KiB) --append--> blocking thread: write + hash
//!                            ^ while some are written the next ones are gathered: twice that per upload
//! ```
//!
//! At intervals the written part is flushed to the disk in the background, so that the fsync at the end has little left
//! to do. One flush at a time per upload, and the upload does not wait for it. When it fails, the session ends.
//!
//! A client must keep a minimum rate: the bytes are counted over each 30 s in which the registry waits for them. Otherwise
//! a byte now and then would hold a place that other clients wait for. A body that keeps it may take as long as it needs:
//! the total time grows with the bytes that have arrived.
//!
//! Small frames are copied together, so that a client that sends single bytes cannot hold a network buffer with each.
//! Large frames are passed on without a copy. A frame is as long as the read buffer of the server at most; see
//! [`READ_BUFFER`].

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
const LARGE_FRAME: usize = READ_BUFFER / 2;
/// The read buffer that suits this registry, for programs that configure their HTTP server. Each upload under way holds
/// some of them, and a larger one is no faster: a piece is written and hashed while it is in the processor's cache.
pub const READ_BUFFER: usize = 64 << 10;
/// The number of bytes written between two flushes to the disk.
const EARLY_EVERY: u64 = 64 << 20;
/// Practically without end, and still representable as a point in time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// The number of bytes of a refused body that are read at least; [`DRAIN_TIME`] limits the time of that.
const DRAIN_LEAST: usize = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// The waiting time over which the rate of a client is measured.
const RATE_WINDOW: Duration = Duration::from_secs(30);

/// A request body being read under the time limits of the configuration.
pub(super) struct RequestBody<'a> {
    body: &'a mut Body,
    silence: Duration,
    /// The longest time that the registry waits for the body, beyond the time that the received bytes take at the least rate.
    patience: Duration,
    /// The time that the registry has waited.
    waited: Duration,
    /// The bytes that have arrived.
    received: u64,
    min_rate: u64,
    rate: UploadRate,
}

/// The rate of a client in the present window.
struct UploadRate {
    /// The bytes of a window of the slowest client.
    least: u64,
    waited: Duration,
    received: u64,
}

impl UploadRate {
    fn new(config: &Config) -> Self {
        let least = config.upload_min_rate.saturating_mul(RATE_WINDOW.as_secs());
        Self { least, waited: Duration::ZERO, received: 0 }
    }

    /// Adds the bytes that came after a wait; returns whether the client is fast enough.
    fn keeps_up(&mut self, waited: Duration, bytes: usize) -> bool {
        self.waited += waited;
        self.received = self.received.saturating_add(bytes as u64);
        if self.waited < RATE_WINDOW {
            return true;
        }
        let enough = self.received >= self.least;
        (self.waited, self.received) = (Duration::ZERO, 0);
        enough
    }
}

/// The end of a body.
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
            patience: config.upload_timeout.min(LONGEST),
            waited: Duration::ZERO,
            received: 0,
            min_rate: config.upload_min_rate,
            rate: UploadRate::new(config),
        }
    }

    /// The time that the registry still waits for the whole body. The received bytes had as much time as the slowest client needs
    /// for them, so that a large body is cut for its rate only.
    fn time_left(&self) -> Duration {
        let needed = Duration::from_secs(self.received.checked_div(self.min_rate).unwrap_or(0)).min(LONGEST);
        (self.patience + needed).saturating_sub(self.waited)
    }

    /// The next piece of data; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let began = Instant::now();
            let deadline = began + self.time_left().min(self.silence);
            let frame = timeout_at(deadline, self.body.frame()).await.map_err(|_| timed_out())?;
            let length = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                // The end of the body: no rate is needed any more.
                Some(Err(_)) | None => usize::MAX,
            };
            let waited = began.elapsed();
            self.waited += waited;
            self.received = self.received.saturating_add(length as u64);
            if !self.rate.keeps_up(waited, length) {
                return Err(timed_out());
            }
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
        let session = Arc::clone(sink.session());
        let mut slot = Slot::Idle(sink);
        let mut gathered = Gathered::default();
        let mut left = limit;
        let mut early: Option<JoinHandle<()>> = None;
        let ending = loop {
            let next = tokio::select! {
                next = self.next() => next,
                () = session.stopped() => Err(Error::UploadCancelled(session.id).into()),
            };
            let data = match next {
                Ok(Some(data)) => data,
                Ok(None) => break BodyEnd::Complete,
                Err(error) => break BodyEnd::Broken(error),
            };
            let length = data.len() as u64;
            if length > left {
                break BodyEnd::TooLong;
            }
            left -= length;
            gathered.add(data);
            if gathered.length < CHUNK {
                continue;
            }
            let sink = slot.settle().await?;
            if sink.offset() / EARLY_EVERY != (sink.offset() + gathered.length as u64) / EARLY_EVERY
                && early.as_ref().is_none_or(JoinHandle::is_finished)
            {
                early = Some(tokio::task::spawn_blocking(sink.write_back()));
            }
            slot = Slot::Writing(sink.append_aside(gathered.take()));
        };
        let mut pieces = gathered.take();
        let last = pieces.pop().unwrap_or_default();
        let sink = slot.settle().await?;
        let sink =
            if pieces.is_empty() { sink } else { Slot::Writing(sink.append_aside(pieces)).settle().await? };
        Ok((sink, last, ending))
    }
}

/// Frames of a body that wait to be written, in their order.
#[derive(Default)]
struct Gathered {
    pieces: Vec<Bytes>,
    /// Small frames, after all pieces.
    small: BytesMut,
    /// The bytes of all frames together.
    length: usize,
}

impl Gathered {
    fn add(&mut self, frame: Bytes) {
        self.length += frame.len();
        if frame.len() < LARGE_FRAME {
            if self.small.len() + frame.len() > self.small.capacity() {
                self.end_small();
                self.small.reserve(READ_BUFFER);
            }
            self.small.extend_from_slice(&frame);
        } else {
            self.end_small();
            self.pieces.push(frame);
        }
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    fn take(&mut self) -> Vec<Bytes> {
        self.end_small();
        self.length = 0;
        std::mem::take(&mut self.pieces)
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
    fn append_aside(self, pieces: Vec<Bytes>) -> JoinHandle<Result<Sink, Error>> {
        tokio::task::spawn_blocking(move || {
            // Each piece is released when it is written.
            pieces.into_iter().try_fold(self, |sink, piece| sink.append(&piece))
        })
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

    #[test]
    fn gathered_frames_keep_their_order_and_hold_little_more_than_their_bytes() {
        let mut gathered = Gathered::default();
        let mut sent = Vec::new();
        for number in 0..2000_usize {
            let length = [1, 100, LARGE_FRAME - 1, LARGE_FRAME, READ_BUFFER][number * number % 5];
            let frame = Bytes::from(vec![number as u8; length]);
            sent.extend_from_slice(&frame);
            gathered.add(frame);
        }
        assert_eq!(gathered.length, sent.len());
        assert_eq!(gathered.take().concat(), sent);
        assert_eq!((gathered.length, gathered.take().len()), (0, 0));
        // Single bytes, as the worst client sends them, each in a network buffer of its own.
        let mut gathered = Gathered::default();
        (0..CHUNK).for_each(|_| gathered.add(Bytes::from_static(b"x")));
        assert_eq!(gathered.pieces.len() + 1, CHUNK / READ_BUFFER);
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

    /// The end of a body whose frames have `length` bytes and come every `seconds`: whether it was complete, and its duration.
    async fn paced(length: usize, seconds: u64, count: usize) -> (bool, Duration) {
        paced_under(&config(), length, seconds, count).await
    }

    async fn paced_under(config: &Config, length: usize, seconds: u64, count: usize) -> (bool, Duration) {
        let frames = stream::iter(0..count).then(move |_| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![0; length]))
        });
        let (mut body, began) = (Body::from_stream(frames), Instant::now());
        let read = RequestBody::new(&mut body, config).collect(usize::MAX).await;
        (read.is_ok(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_minimum_rate_is_refused_after_half_a_minute() {
        assert_eq!(paced(1, 10, 300).await, (false, Duration::from_secs(30)));
        // Fast enough, on average over half a minute.
        assert_eq!(paced(120 << 10, 29, 10).await, (true, Duration::from_secs(290)));
        // A body that ends in time needs no rate.
        assert_eq!(paced(1, 14, 2).await, (true, Duration::from_secs(28)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_keeps_the_minimum_rate_may_take_longer_than_the_time_for_one_without_bytes() {
        assert_eq!(paced(120 << 10, 10, 400).await, (true, Duration::from_secs(4000)));
        // As slow as allowed, and too slow after more than an hour.
        assert_eq!(paced(60 << 10, 15, 300).await, (true, Duration::from_secs(4500)));
        let slower = stream::iter(0..300).then(|number| async move {
            tokio::time::sleep(Duration::from_secs(15)).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![0; if number < 260 { 60 << 10 } else { 10 }]))
        });
        let (mut body, began) = (Body::from_stream(slower), Instant::now());
        assert!(RequestBody::new(&mut body, &config()).collect(usize::MAX).await.is_err());
        assert_eq!(began.elapsed(), Duration::from_secs(260 * 15 + 30));
        // Without a minimum rate only the time limit is left.
        let any_rate = Config { upload_min_rate: 0, ..config() };
        assert_eq!(paced_under(&any_rate, 1, 10, 400).await, (false, Duration::from_secs(3600)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_that_is_not_sent_is_not_waited_for() {
        let begun = Instant::now();
        assert!(!drain(&mut Body::from_stream(pieces(1).chain(stream::pending())), &config()).await);
        assert_eq!(begun.elapsed(), DRAIN_TIME);
    }
}
