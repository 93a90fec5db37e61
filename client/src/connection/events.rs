//! The event stream of a controller as a doorbell: it says that something changed, and the caller reads what it shows.
//!
//! ```text
//!   changed() ── not connected ──> connect ── stream ──> Ok at once: the caller reads what happened before
//!        │                            └── refused ──> pause, then Ok: the caller polls
//!        └── connected ──> next event, or the tick ── end of the stream ──> not connected
//! ```
//!
//! Invariants: one event holds [`MAX_EVENT_BYTES`] at most; a connection that is silent for three keep-alives is closed; a
//! burst of events is one change; the caller reads at most once in [`GAP`], and once after the last event; a change is known
//! until the caller has read, also if it stops waiting or if its read fails.
//!
//! Specification: WHATWG HTML, server-sent events.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Client;

/// The longest line of an event.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// The controller sends a comment every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);
/// The controller ends a stream after an hour.
const LASTS: Duration = Duration::from_secs(2 * 3600);
/// Events that follow within this time are one change.
const BURST: Duration = Duration::from_millis(100);
/// The shortest time between two reads because of events. The first event after a pause is shown at once.
const GAP: Duration = Duration::from_secs(1);
/// The pause before a stream that was refused is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Notices of changes.
pub(crate) struct Changes<'a> {
    /// The client and its path; without a client no event reports changes, and the pauses pass.
    source: Option<(&'a Client, Vec<String>)>,
    stream: Option<Open>,
    /// A controller that refused the stream is not asked before then.
    retry_at: Option<Instant>,
    /// Whether something has changed that the caller has not read.
    is_due: bool,
    /// The time of the caller's last read because of a change.
    read_at: Option<Instant>,
    /// The last read failed: the caller reads again then, also without an event.
    again_at: Option<Instant>,
}

struct Open {
    response: Response,
    lines: Lines,
    heard_at: Instant,
}

impl<'a> Changes<'a> {
    /// Changes of what a path of the API names, such as `events` for all jobs and servers.
    pub(crate) fn of(client: &'a Client, path: &[&str]) -> Self {
        let path = path.iter().map(|&segment| segment.to_owned()).collect();
        Self::with(Some((client, path)))
    }

    /// Changes of something without events: only the pauses pass.
    pub(crate) fn by_pauses() -> Self {
        Self::with(None)
    }

    fn with(source: Option<(&'a Client, Vec<String>)>) -> Self {
        Self { source, stream: None, retry_at: None, is_due: false, read_at: None, again_at: None }
    }

    /// The read after a change failed. The change stays known: the caller reads again after a pause.
    pub(crate) fn read_failed(&mut self, pause: Duration) {
        self.again_at = Some(Instant::now() + pause);
    }

    /// Waits for a change, for `pause` at most without a stream. Returns whether the caller reads again: false only if `tick`
    /// has passed and nothing has changed.
    pub(crate) async fn changed(&mut self, pause: Duration, tick: Duration) -> bool {
        let now = Instant::now();
        if let Some(again_at) = self.again_at {
            let end = again_at.min(now + tick);
            sleep_until(end).await;
            return end == again_at && self.read_now();
        }
        if self.stream.is_none()
            && self.source.is_some()
            && self.retry_at.is_none_or(|retry_at| retry_at <= now)
        {
            self.stream = self.open().await;
            if self.stream.is_some() {
                return self.read_now();
            }
            self.retry_at = Some(now + RETRY);
        }
        let Some(open) = &mut self.stream else {
            sleep(pause.min(tick)).await;
            return pause <= tick;
        };
        if !self.is_due {
            match open.event(now + tick).await {
                Heard::Event => self.is_due = true,
                Heard::Tick => return false,
                Heard::End => {
                    self.stream = None;
                    sleep(pause.min(tick)).await;
                    return true;
                }
            }
        }
        // The rest of the burst, and what else happens before the next read.
        let rest = Instant::now() + BURST;
        let end = self.read_at.map_or(rest, |read_at| rest.max(read_at + GAP));
        while Instant::now() < end {
            match open.event(end).await {
                Heard::Event => {}
                Heard::Tick => break,
                Heard::End => {
                    self.stream = None;
                    sleep_until(end).await;
                    break;
                }
            }
        }
        self.read_now()
    }

    /// The caller reads now.
    fn read_now(&mut self) -> bool {
        self.is_due = false;
        self.again_at = None;
        self.read_at = Some(Instant::now());
        true
    }

    async fn open(&self) -> Option<Open> {
        let (client, path) = self.source.as_ref()?;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let url = client.url(&path, &[("after", "latest".to_owned())]);
        let request =
            client.http.request(Method::GET, url).header(ACCEPT, "text/event-stream").timeout(LASTS);
        let response = client.authorized(request).send().await.ok()?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let streams = response.status().is_success() && kind.starts_with("text/event-stream");
        streams.then(|| Open { response, lines: Lines::default(), heard_at: Instant::now() })
    }
}

enum Heard {
    Event,
    Tick,
    End,
}

impl Open {
    /// Reads up to the next event, or to a point in time.
    async fn event(&mut self, until: Instant) -> Heard {
        loop {
            if let Some(found) = self.lines.next_event() {
                return found;
            }
            let dead_at = self.heard_at + SILENCE;
            match timeout_at(until.min(dead_at), self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.heard_at = Instant::now();
                    if !self.lines.push(&bytes) {
                        return Heard::End;
                    }
                }
                Ok(Ok(None) | Err(_)) => return Heard::End,
                Err(_) if until < dead_at => return Heard::Tick,
                Err(_) => return Heard::End,
            }
        }
    }
}

/// Received bytes, up to the end of an event.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    /// The present event has data.
    data: bool,
    /// The present event is the last of the stream.
    last: bool,
}

impl Lines {
    /// Adds bytes; returns false when a line is too long.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.buffer.extend_from_slice(bytes);
        self.buffer.len() <= MAX_EVENT_BYTES
    }

    /// Takes the next event with data, if it is complete.
    fn next_event(&mut self) -> Option<Heard> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let rest = self.buffer.split_off(end + 1);
            let line = std::mem::replace(&mut self.buffer, rest);
            let line = line.trim_ascii_end();
            if line.is_empty() {
                let (data, last) = (std::mem::take(&mut self.data), std::mem::take(&mut self.last));
                match (data, last) {
                    (_, true) => return Some(Heard::End),
                    (true, false) => return Some(Heard::Event),
                    (false, false) => {}
                }
            }
            self.data |= line.starts_with(b"data:");
            self.last |= line == b"event: end";
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The number of events in a text that arrives in pieces, and whether it ended the stream.
    fn heard(text: &str, pieces: &[usize]) -> (usize, bool) {
        let (mut lines, mut events, mut rest) = (Lines::default(), 0, text.as_bytes());
        let mut sizes = pieces.iter().copied().cycle();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
            rest = behind;
            assert!(lines.push(piece));
            while let Some(found) = lines.next_event() {
                match found {
                    Heard::Event => events += 1,
                    Heard::End => return (events, true),
                    Heard::Tick => unreachable!(),
                }
            }
        }
        (events, false)
    }

    /// Changes whose stream is what the test sends.
    pub(crate) fn changes() -> (tokio::sync::mpsc::UnboundedSender<&'static str>, Changes<'static>) {
        let (send, receive) = tokio::sync::mpsc::unbounded_channel();
        let body = futures_util::stream::unfold(receive, |mut receive| async {
            let text: &'static str = receive.recv().await?;
            Some((Ok::<_, std::io::Error>(text), receive))
        });
        let response = http::Response::new(reqwest::Body::wrap_stream(body)).into();
        let open = Open { response, lines: Lines::default(), heard_at: Instant::now() };
        (send, Changes { stream: Some(open), ..Changes::by_pauses() })
    }

    const EVENT: &str = "data: {}\n\n";
    const TICK: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn the_first_event_is_shown_at_once_and_the_last_of_many_after_a_second() {
        let (send, mut changes) = changes();
        let began = Instant::now();
        send.send(EVENT).unwrap();
        assert!(changes.changed(TICK, TICK).await);
        assert_eq!(began.elapsed(), BURST);
        // As a step that fails, and the end of its run.
        sleep(Duration::from_millis(300)).await;
        send.send(EVENT).unwrap();
        assert!(changes.changed(TICK, TICK).await);
        assert_eq!(began.elapsed(), BURST + GAP);
        assert!(!changes.changed(TICK, TICK).await, "nothing has changed since");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_events_is_read_once_a_second() {
        let (send, mut changes) = changes();
        let sending = tokio::spawn(async move {
            for _ in 0..80 {
                send.send(EVENT).unwrap();
                sleep(Duration::from_millis(125)).await;
            }
            send
        });
        let (began, mut reads) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(20) {
            reads += u32::from(changes.changed(TICK, TICK).await);
        }
        let _open = sending.await.unwrap();
        assert!((10..=12).contains(&reads), "{reads} reads in ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_known_until_it_is_read() {
        let (send, mut changes) = changes();
        send.send(EVENT).unwrap();
        // The terminal is drawn again meanwhile.
        let drawn = tokio::time::timeout(BURST / 2, changes.changed(TICK, TICK)).await;
        assert!(drawn.is_err());
        assert!(changes.changed(TICK, TICK).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_stream_loses_no_change() {
        let (send, mut changes) = changes();
        send.send(EVENT).unwrap();
        drop(send);
        assert!(changes.changed(TICK, TICK).await);
        assert!(changes.stream.is_none());
    }

    const STREAM: &str =
        "retry: 2000\n\nid: 1\nevent: job.created\ndata: {}\n\n: nothing new\n\nid: 2\r\ndata: {}\r\n\r\n";

    #[test]
    fn comments_are_no_events_and_the_end_is_the_end() {
        assert_eq!(heard(STREAM, &[STREAM.len()]), (2, false));
        assert_eq!(heard(&format!("{STREAM}event: end\ndata: {{}}\n\ndata: x\n\n"), &[7]), (2, true));
        assert_eq!(heard("data: half an event\n", &[3]), (0, false));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::default();
        assert!(lines.push(&vec![b'x'; MAX_EVENT_BYTES]));
        assert!(!lines.push(b"x"));
    }

    proptest! {
        #[test]
        fn the_pieces_in_which_a_stream_arrives_do_not_matter(pieces in prop::collection::vec(1_usize..40, 1..10)) {
            prop_assert_eq!(heard(STREAM, &pieces), (2, false));
        }
    }
}
