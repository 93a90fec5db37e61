//! The live event stream: committed events for many subscribers, resumable at any position of the log.
//!
//! ```text
//!  store --"a transaction was committed"--> tail --Arc<Frame>--> broadcast ring --> subscriber: next in order? --> bytes
//!    ^                                                                                |  a gap, lagged, or new
//!    +------------------------------- pages after its cursor <-----------------------+
//! ```
//!
//! A frame is rendered once and shared. A subscriber that sees a gap (it is new, it was slow, the tail was idle) reads from
//! the database until it has caught up, so no event is lost and none is sent twice.
//!
//! Invariants: a subscriber holds one page at most and receives events no faster than it reads; there are at most
//! [`SUBSCRIBERS`]; a stream ends after [`LASTS`] at the latest, so that credentials are checked again when it resumes; that of a
//! web session ends earlier, so that its resumption is a use of the session before the session has ended ([`lasts`]).
//!
//! Specification: WHATWG HTML, server-sent events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{ApiError, Detail};
use super::error_code::{ErrorCode, Rule};
use access::auth::SessionSecret;
use model::{Event, Phase, RunId};
use store::{EventFilter, Store, StoreError};

/// The maximum of open streams.
const SUBSCRIBERS: usize = 2048;
/// Events per page read from the database.
const PAGE: u32 = 256;
/// Events a subscriber may lag behind before it reads from the database again.
const RING: usize = 4096;
/// After this time without events a comment is sent, so that both sides detect a dead connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The longest life of a stream.
const LASTS: Duration = Duration::from_secs(3600);
/// The pause of the tail after a failed read of the database.
const REFUSED: Duration = Duration::from_secs(1);

/// One event in the format of server-sent events.
struct Frame {
    seq: i64,
    run: Option<RunId>,
    bytes: Bytes,
}

impl Frame {
    fn new(event: &Event) -> Self {
        let data = serde_json::to_string(event).unwrap_or_else(|_| "{}".to_owned());
        let bytes = format!("id: {}\nevent: {}\ndata: {data}\n\n", event.seq, event.kind).into();
        Self { seq: event.seq, run: event.run, bytes }
    }
}

/// The live events of a store.
#[derive(Clone)]
pub struct Feed(Arc<Inner>);

struct Inner {
    store: Store,
    live: broadcast::Sender<Arc<Frame>>,
    stream_permits: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Feed {
    /// Creates a feed that ends with all its streams at `stop`.
    pub fn new(store: Store, stop: CancellationToken) -> Self {
        let (live, _) = broadcast::channel(RING);
        Self(Arc::new(Inner { store, live, stream_permits: Arc::new(Semaphore::new(SUBSCRIBERS)), stop }))
    }

    /// Broadcasts committed events while there are subscribers, until `stop`.
    pub async fn run(&self) {
        let Inner { store, live, stop, .. } = &*self.0;
        let mut commits = store.commits();
        let mut cursor = 0;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = commits.changed() => if changed.is_err() { return },
            }
            if live.receiver_count() == 0 {
                continue;
            }
            if let Err(error) = tail(store, live, &mut cursor).await {
                tracing::warn!(error = %model::error_chain(&error), "the event stream could not read the log; trying again");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(REFUSED) => {}
                }
            }
        }
    }

    /// Responds with a stream of the events after a position, of one run or of all. It ends after `lasts` at the latest.
    ///
    /// # Errors
    /// When as many streams are open as there may be.
    pub fn respond(&self, run: Option<RunId>, after: i64, lasts: Duration) -> Result<Response, ApiError> {
        let Ok(permit) = Arc::clone(&self.0.stream_permits).try_acquire_owned() else {
            return Err(ApiError::new(
                ErrorCode::TooManyStreams,
                format!("{SUBSCRIBERS} event streams are open, which is the maximum; close some, or read the events in pages"),
            )
            .header(header::RETRY_AFTER, "5"));
        };
        let subscriber = Subscriber::new(&self.0, (run, after), lasts, permit);
        let frames = stream::unfold(subscriber, |mut subscriber| async move {
            let bytes = subscriber.next().await?;
            Some((Ok::<_, std::convert::Infallible>(bytes), subscriber))
        });
        let mut response = Response::new(Body::from_stream(frames));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}

async fn tail(
    store: &Store,
    live: &broadcast::Sender<Arc<Frame>>,
    cursor: &mut i64,
) -> Result<(), StoreError> {
    // After a time without subscribers old events are skipped: a new subscriber reads them from the database.
    *cursor = (*cursor).max(store.last_seq().await? - i64::from(PAGE));
    loop {
        let page = store.events(EventFilter { run: None, after: *cursor, limit: PAGE }).await?;
        let full = page.len() == PAGE as usize;
        for event in page {
            *cursor = event.seq;
            // Fails only without a subscriber.
            let _no_subscriber = live.send(Arc::new(Frame::new(&event)));
        }
        if !full {
            return Ok(());
        }
    }
}

struct Subscriber {
    live: broadcast::Receiver<Arc<Frame>>,
    inner: Arc<Inner>,
    run: Option<RunId>,
    /// All events up to this sequence number were sent or do not match the run.
    cursor: i64,
    behind: bool,
    ended: bool,
    ready: VecDeque<Bytes>,
    /// When a comment shows the client that the stream is alive: some time after the last bytes, whatever other jobs do.
    quiet_until: Instant,
    until: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Subscriber {
    fn new(
        inner: &Arc<Inner>,
        (run, after): (Option<RunId>, i64),
        lasts: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            // Before the first read, so that every later commit is in the ring.
            live: inner.live.subscribe(),
            inner: Arc::clone(inner),
            run,
            cursor: after,
            behind: true,
            ended: false,
            ready: VecDeque::from([Bytes::from_static(b"retry: 2000\n\n")]),
            quiet_until: Instant::now() + KEEP_ALIVE,
            until: Instant::now() + lasts,
            _permit: permit,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        let bytes = self.next_bytes().await?;
        self.quiet_until = Instant::now() + KEEP_ALIVE;
        Some(bytes)
    }

    async fn next_bytes(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            if self.ended {
                return None;
            }
            if self.behind {
                if let Err(error) = self.catch_up().await {
                    // The client reconnects with the last event it received.
                    tracing::warn!(error = %model::error_chain(&error), "an event stream ends early");
                    return None;
                }
                continue;
            }
            tokio::select! {
                () = self.inner.stop.cancelled() => return None,
                () = tokio::time::sleep_until(self.until) => return None,
                () = tokio::time::sleep_until(self.quiet_until) => return Some(Bytes::from_static(b": nothing new\n\n")),
                frame = self.live.recv() => match frame {
                    Ok(frame) if frame.seq <= self.cursor => {}
                    Ok(frame) if frame.seq == self.cursor + 1 => self.take(&frame),
                    Ok(_) | Err(RecvError::Lagged(_)) => self.behind = true,
                    Err(RecvError::Closed) => return None,
                },
            }
        }
    }

    fn take(&mut self, frame: &Frame) {
        self.cursor = frame.seq;
        match self.run {
            None => self.ready.push_back(frame.bytes.clone()),
            Some(run) if frame.run == Some(run) => {
                self.ready.push_back(frame.bytes.clone());
                // Only a read of the job shows whether this was its last event.
                self.behind = true;
            }
            Some(_) => {}
        }
    }

    /// Reads the next page from the database.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let store = self.inner.store.clone();
        // In this order: a commit after the first two reads is in the page, never only in them.
        let newest = store.last_seq().await?;
        let ended = match self.run {
            Some(run) => store.job(run).await?.is_none_or(|job| job.run.phase == Phase::Ended),
            None => false,
        };
        let page = store.events(EventFilter { run: self.run, after: self.cursor, limit: PAGE }).await?;
        self.take_page(&page, &LogEnd { newest, ended });
        Ok(())
    }

    /// Sends a page that was read after `end`; the stream ends when the job has ended and its events are sent.
    fn take_page(&mut self, page: &[Event], end: &LogEnd) {
        for event in page {
            self.cursor = event.seq;
            self.ready.push_back(Frame::new(event).bytes);
        }
        if page.len() == PAGE as usize {
            return;
        }
        self.cursor = self.cursor.max(end.newest);
        // The page may contain the last event of a job that ended after `end` was read, so the job is read again.
        self.behind = self.run.is_some() && !page.is_empty() && !end.ended;
        if end.ended {
            self.ended = true;
            self.ready.push_back(Bytes::from_static(b"event: end\ndata: {}\n\n"));
        }
    }
}

/// The end of the log and of the job, read before a page.
struct LogEnd {
    newest: i64,
    ended: bool,
}

/// Whether a client accepts a stream.
pub fn accepts_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|kind| {
        kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
    })
}

/// How long a stream of this caller lasts. An open page sends nothing in a quiet period, and its session would end by its idle time
/// while the page is watched. So the stream ends within half of that time; the page resumes it, which is a use of the session.
pub fn lasts(headers: &HeaderMap, idle: Duration) -> Duration {
    match headers.get(header::AUTHORIZATION).is_none() && SessionSecret::of(headers).is_some() {
        true => LASTS.min(idle / 2),
        false => LASTS,
    }
}

/// The position to resume after: `Last-Event-ID`, which a reconnecting client sends, before `after`. `None` is the end of the log,
/// which a client names as `latest` because it does not know the number.
///
/// # Errors
/// When one of the two is no position in the log.
pub fn resume_position(headers: &HeaderMap, after: Option<&str>) -> Result<Option<i64>, ApiError> {
    let (name, text) = match headers.get("last-event-id") {
        Some(value) => ("Last-Event-ID", value.to_str().ok()),
        None if after == Some("latest") => return Ok(None),
        None => ("after", Some(after.unwrap_or("0"))),
    };
    text.and_then(|text| text.parse().ok()).filter(|place| *place >= 0).map(Some).ok_or_else(|| {
        ApiError::invalid(vec![Detail::new(
            name,
            Rule::Range,
            format!("{name} is the seq of an event, a number from 0; after may also be latest"),
        )])
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use model::{NewEvent, Time};

    /// Reads a stream up to the event `last`; collects the sequence numbers of all events on the way.
    async fn read(body: &mut Body, seen: &mut Vec<i64>, last: i64) {
        let mut text = String::new();
        while seen.last() != Some(&last) {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            text.push_str(std::str::from_utf8(&frame).unwrap());
            while let Some(end) = text.find("\n\n") {
                let block: String = text.drain(..end + 2).collect();
                seen.extend(block.lines().find_map(|line| line.strip_prefix("id: ")?.parse::<i64>().ok()));
            }
        }
    }

    #[tokio::test]
    async fn a_subscriber_that_lags_behind_the_ring_receives_every_event_once() {
        let folder = tempfile::tempdir().unwrap();
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let store = Store::open(&folder.path().join("shoal.db"), now).unwrap();
        let stop = CancellationToken::new();
        let feed = Feed::new(store.clone(), stop.clone());
        let tail = tokio::spawn({
            let feed = feed.clone();
            async move { feed.run().await }
        });
        let append = async |count: usize| {
            let events = (0..count).map(|_| NewEvent::info("test.tick", "tick")).collect();
            store.append(None, None, events, now).await.unwrap();
        };
        let mut body = feed.respond(None, 0, LASTS).unwrap().into_body();
        let mut seen = Vec::new();
        append(3).await;
        read(&mut body, &mut seen, 3).await;

        // A fast subscriber shows that all events went through the ring.
        let mut quick = feed.respond(None, 3, LASTS).unwrap().into_body();
        let mut kept_up = Vec::new();
        let total = 3 + RING as i64 + 904;
        for part in 0..5 {
            append(1000).await;
            read(&mut quick, &mut kept_up, 3 + 1000 * (part + 1)).await;
        }
        assert_eq!(kept_up, (4..=total).collect::<Vec<_>>());
        read(&mut body, &mut seen, total).await;
        assert_eq!(seen, (1..=total).collect::<Vec<_>>());

        stop.cancel();
        tail.await.unwrap();
        assert!(body.frame().await.is_none(), "a stream ends when the controller stops");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_a_quiet_job_is_kept_alive_while_other_jobs_have_events() {
        let folder = tempfile::tempdir().unwrap();
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let store = Store::open(&folder.path().join("shoal.db"), now).unwrap();
        let feed = Feed::new(store, CancellationToken::new());
        let permit = Arc::clone(&feed.0.stream_permits).try_acquire_owned().unwrap();
        let mut subscriber = Subscriber::new(&feed.0, (Some(RunId::new()), 0), LASTS, permit);
        (subscriber.behind, subscriber.ready) = (false, VecDeque::new());
        let live = feed.0.live.clone();
        let others = tokio::spawn(async move {
            for seq in 1.. {
                tokio::time::sleep(KEEP_ALIVE / 3).await;
                let frame = Frame { seq, run: Some(RunId::new()), bytes: Bytes::new() };
                let _no_subscriber = live.send(Arc::new(frame));
            }
        });
        for comments in 1..=4 {
            let began = Instant::now();
            let bytes = subscriber.next().await.unwrap();
            assert_eq!((&bytes[..], began.elapsed()), (&b": nothing new\n\n"[..], KEEP_ALIVE), "{comments}");
        }
        others.abort();
    }

    #[tokio::test]
    async fn a_job_that_ends_between_its_read_and_the_page_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let store = Store::open(&folder.path().join("shoal.db"), now).unwrap();
        let feed = Feed::new(store.clone(), CancellationToken::new());
        let permit = Arc::clone(&feed.0.stream_permits).try_acquire_owned().unwrap();
        let run = RunId::new();
        let mut subscriber = Subscriber::new(&feed.0, (Some(run), 0), LASTS, permit);
        store.append(None, None, vec![NewEvent::info("run.ended", "over")], now).await.unwrap();
        let last = store.events(EventFilter { run: None, after: 0, limit: 1 }).await.unwrap();

        subscriber.take_page(&last, &LogEnd { newest: 0, ended: false });
        assert!(
            subscriber.behind && !subscriber.ended,
            "the page may hold the last event, so the job is read again"
        );
        subscriber.take_page(&[], &LogEnd { newest: 1, ended: true });
        assert!(subscriber.ended);
    }

    #[tokio::test]
    async fn streams_are_limited_and_a_closed_one_frees_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let store = Store::open(&folder.path().join("shoal.db"), now).unwrap();
        let feed = Feed::new(store, CancellationToken::new());
        let mut open: Vec<Response> =
            (0..SUBSCRIBERS).map(|_| feed.respond(None, 0, LASTS).unwrap()).collect();
        assert!(feed.respond(None, 0, LASTS).is_err());
        open.pop();
        assert!(feed.respond(None, 0, LASTS).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_of_a_web_session_ends_before_the_session_does() {
        let idle = Duration::from_secs(15 * 60);
        let session = HeaderValue::from_str(&format!("__Host-shoal={}", "a".repeat(40))).unwrap();
        let cookie = HeaderMap::from_iter([(header::COOKIE, session)]);
        let mut token = cookie.clone();
        token.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert_eq!(lasts(&HeaderMap::new(), idle), LASTS);
        assert_eq!(lasts(&token, idle), LASTS, "the cookie is not the login of the request");
        assert_eq!(lasts(&cookie, idle), idle / 2);
        assert_eq!(lasts(&cookie, Duration::from_secs(86_400)), LASTS);

        let folder = tempfile::tempdir().unwrap();
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let store = Store::open(&folder.path().join("shoal.db"), now).unwrap();
        let feed = Feed::new(store, CancellationToken::new());
        let permit = Arc::clone(&feed.0.stream_permits).try_acquire_owned().unwrap();
        let mut subscriber = Subscriber::new(&feed.0, (None, 0), lasts(&cookie, idle), permit);
        (subscriber.behind, subscriber.ready) = (false, VecDeque::new());
        let began = Instant::now();
        while subscriber.next().await.is_some() {}
        assert_eq!(began.elapsed(), idle / 2);
    }
}
