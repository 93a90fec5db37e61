//! The publisher and the wake-ups against a server that is stopped, emptied, slow to forget, and hostile.

mod fake;
mod reader;
mod real;

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    EventLog, Limits, LogError, NatsCredentials, Options, Parts, Record, StreamObserver, Wakes,
    event_subject, run, wake_channel,
};
use fake::{Fake, Manners};

/// A log in memory.
struct MemoryLog {
    events: Mutex<Vec<i64>>,
    commits: watch::Sender<u64>,
}

impl MemoryLog {
    fn new(events: i64) -> Arc<Self> {
        Arc::new(Self { events: Mutex::new((1..=events).collect()), commits: watch::channel(0).0 })
    }

    /// Appends events after those of now.
    fn append(&self, number: i64) {
        let mut events = self.events.lock();
        let last = events.last().copied().unwrap_or(0);
        events.extend(last + 1..=last + number);
        self.commits.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl EventLog for MemoryLog {
    async fn id(&self) -> Result<String, LogError> {
        Ok("log".to_owned())
    }

    async fn last(&self) -> Result<i64, LogError> {
        Ok(self.events.lock().last().copied().unwrap_or(0))
    }

    async fn after(&self, seq: i64, limit: u32, _: usize) -> Result<Vec<Record>, LogError> {
        let events = self.events.lock();
        let after = events.iter().copied().filter(|event| *event > seq).take(limit as usize);
        let record = |seq: i64| Record {
            seq,
            subject: event_subject("provision", "job.created"),
            body: Bytes::from(format!("event {seq}")),
        };
        Ok(after.map(record).collect())
    }

    fn commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }
}

/// The metrics.
struct Numbers(watch::Sender<(bool, u64, u64)>);

impl Numbers {
    fn now(&self) -> (bool, u64, u64) {
        *self.0.borrow()
    }

    /// Waits until so many events were published, and so many wait.
    async fn until(&self, published: u64, waiting: u64) {
        let mut changes = self.0.subscribe();
        let reached = changes.wait_for(|(_, now, rest)| (*now, *rest) == (published, waiting));
        let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
        assert!(reached.is_ok(), "{:?}", self.now());
    }
}

impl StreamObserver for Numbers {
    fn connected(&self, connected: bool) {
        self.0.send_modify(|numbers| numbers.0 = connected);
    }

    fn published(&self, events: u64) {
        self.0.send_modify(|numbers| numbers.1 += events);
    }

    fn waiting(&self, events: u64) {
        self.0.send_modify(|numbers| numbers.2 = events);
    }
}

fn tls_with(roots: rustls::RootCertStore) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn options(url: &str) -> Options {
    Options {
        server: url.parse().unwrap(),
        credentials: None,
        tls: tls_with(rustls::RootCertStore::empty()),
        name: "test".to_owned(),
        meanwhile: "events wait",
        limits: Limits {
            handshake: Duration::from_secs(1),
            request: Duration::from_secs(5),
            pings: Duration::from_millis(250),
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(100),
        },
    }
}

/// A publisher that runs until it is dropped.
struct Running {
    log: Arc<MemoryLog>,
    numbers: Arc<Numbers>,
    wake: mpsc::Sender<String>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Running {
    fn start(options: Options, log: Arc<MemoryLog>) -> Self {
        let (wake, wakes) = wake_channel();
        let numbers = Arc::new(Numbers(watch::channel((false, 0, 0)).0));
        let parts = Parts { log: Arc::clone(&log) as _, observer: Arc::clone(&numbers) as _, wakes };
        let stop = CancellationToken::new();
        let task = Some(tokio::spawn(run(options, parts, stop.clone())));
        Self { log, numbers, wake, stop, task }
    }

    async fn end(mut self) -> Arc<Numbers> {
        self.stop.cancel();
        self.task.take().unwrap().await.unwrap();
        Arc::clone(&self.numbers)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn ids(events: std::ops::RangeInclusive<i64>) -> Vec<String> {
    events.map(|event| format!("log-{event}")).collect()
}

#[tokio::test]
async fn events_are_in_the_stream_once_and_in_order() {
    let fake = Fake::start().await;
    let running = Running::start(options(&fake.url()), MemoryLog::new(200));
    fake.until("200 events", |state| state.ids() == ids(1..=200)).await;
    running.log.append(5);
    fake.until("5 more", |state| state.ids() == ids(1..=205)).await;
    let (subject, body) = fake.change(|state| {
        let last = state.messages.values().last().unwrap();
        (last.subject.clone(), last.body.clone())
    });
    assert_eq!(
        (subject.as_str(), body.as_slice()),
        ("shoal.events.provision.job.created", b"event 205".as_slice())
    );
    running.numbers.until(205, 0).await;
    assert!(running.numbers.now().0);
    assert!(!running.end().await.now().0, "stopped");
}

#[tokio::test]
async fn events_of_the_time_without_a_server_are_published_after_its_return() {
    let mut fake = Fake::start().await;
    let running = Running::start(options(&fake.url()), MemoryLog::new(3));
    running.numbers.until(3, 0).await;
    fake.stop().await;
    running.log.append(100);
    running.numbers.until(3, 100).await;
    fake.start_again().await;
    fake.until("all events once", |state| state.ids() == ids(1..=103)).await;
}

#[tokio::test]
async fn a_publisher_that_starts_again_continues_after_the_last_message() {
    let fake = Fake::start().await;
    let first = Running::start(options(&fake.url()), MemoryLog::new(70));
    fake.until("70 events", |state| state.ids() == ids(1..=70)).await;
    let log = Arc::clone(&first.log);
    first.end().await;
    // Messages of others at the end of the stream do not hide the position.
    fake.change(|state| state.store("shoal.events.by.hand", None, b"hello"));
    log.append(2);
    let second = Running::start(options(&fake.url()), log);
    fake.until("72 events", |state| state.ids() == ids(1..=72)).await;
    second.numbers.until(2, 0).await;
}

#[tokio::test]
async fn a_stream_that_was_lost_is_filled_again() {
    let mut fake = Fake::start().await;
    let running = Running::start(options(&fake.url()), MemoryLog::new(80));
    fake.until("80 events", |state| state.ids() == ids(1..=80)).await;
    fake.stop().await;
    fake.change(fake::State::lose);
    fake.start_again().await;
    // Without a new event: the return of the connection is enough.
    fake.until("all events again", |state| state.ids() == ids(1..=80)).await;
    drop(running);
}

#[tokio::test]
async fn a_purged_stream_is_filled_again_when_its_ids_are_forgotten() {
    let fake = Fake::start().await;
    let running = Running::start(options(&fake.url()), MemoryLog::new(3));
    fake.until("3 events", |state| state.ids() == ids(1..=3)).await;
    let begun = fake.change(|state| {
        state.purge();
        state.begun
    });
    running.log.append(1);
    fake.until("event 4, or another connection", |state| state.begun > begun || !state.ids().is_empty())
        .await;
    fake.change(|state| {
        state.purge();
        state.recognised.clear();
    });
    running.log.append(1);
    fake.until("an end of the stream", |state| state.ids().last() == Some(&"log-5".to_owned())).await;
    let stored = fake.change(|state| state.ids());
    assert!(
        stored == ids(1..=5) || stored == ids(5..=5) || stored == ids(4..=5),
        "in order and once: {stored:?}"
    );
}

#[tokio::test]
async fn a_message_that_was_stored_without_an_acknowledgement_is_not_stored_twice() {
    let fake = Fake::start().await;
    fake.change(|state| state.manners = Manners::StoresAndCloses);
    let running = Running::start(options(&fake.url()), MemoryLog::new(10));
    fake.until("some events over several connections", |state| state.begun > 3 && state.ids().len() > 2)
        .await;
    fake.change(|state| {
        state.manners = Manners::Good;
        // The position alone must be enough.
        state.recognised.clear();
    });
    fake.until("all events once", |state| state.ids() == ids(1..=10)).await;
    drop(running);
}

#[tokio::test]
async fn events_that_the_server_refuses_are_counted_as_waiting() {
    let fake = Fake::start().await;
    let log = MemoryLog::new(3);
    let running = Running::start(options(&fake.url()), Arc::clone(&log));
    running.numbers.until(3, 0).await;
    fake.change(|state| state.full = true);
    log.append(2);
    running.numbers.until(3, 2).await;
    fake.change(|state| state.full = false);
    running.numbers.until(5, 0).await;
    running.end().await;
}

#[tokio::test]
async fn a_stream_of_another_controller_is_left_alone() {
    for (id, log) in [("other-2", 5), ("log-9", 5)] {
        let fake = Fake::start().await;
        let first = Running::start(options(&fake.url()), MemoryLog::new(1));
        fake.until("the stream", |state| !state.ids().is_empty()).await;
        first.end().await;
        fake.change(|state| state.store("shoal.events.x.y", Some(id), b""));
        let running = Running::start(options(&fake.url()), MemoryLog::new(log));
        fake.until("several looks", |state| state.reads > 3).await;
        assert_eq!(fake.change(|state| state.ids()), ["log-1", id]);
        assert_eq!(running.numbers.now().1, 0);
        fake.change(fake::State::lose);
        fake.until("all events", |state| state.ids() == ids(1..=log)).await;
    }
}

#[tokio::test]
async fn a_stream_that_drops_what_was_consumed_is_left_alone() {
    for retention in ["interest", "workqueue"] {
        let fake = Fake::start().await;
        fake.change(|state| state.make_stream(retention));
        let running = Running::start(options(&fake.url()), MemoryLog::new(3));
        fake.until("several looks", |state| state.looks > 3).await;
        assert_eq!(fake.change(|state| state.ids()), [""; 0]);
        // An operator makes it again.
        fake.change(|state| state.make_stream("limits"));
        fake.until("all events", |state| state.ids() == ids(1..=3)).await;
        drop(running);
    }
}

#[tokio::test]
async fn a_hostile_server_is_left_and_an_honest_one_is_used() {
    for manners in [
        Manners::EndlessInfo,
        Manners::LongInfo,
        Manners::LargestMessage,
        Manners::EndlessLine,
        Manners::Refuses,
    ] {
        let fake = Fake::start().await;
        fake.change(|state| state.manners = manners);
        let running = Running::start(options(&fake.url()), MemoryLog::new(3));
        fake.until(&format!("the client leaves: {manners:?}"), |state| state.ended > 1).await;
        fake.change(|state| state.manners = Manners::Good);
        fake.until(&format!("events after {manners:?}"), |state| state.ids() == ids(1..=3)).await;
        drop(running);
    }
}

#[tokio::test]
async fn bytes_between_the_info_in_plain_text_and_tls_end_the_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("tls://{}", listener.local_addr().unwrap());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"INFO {\"headers\":true}\r\nMSG a 1 0\r\n\r\n").await.unwrap();
        stream
    };
    let options = options(&url);
    let (opened, _stream) = tokio::join!(crate::session::open(&options, &[]), server);
    let why = opened.map(drop).unwrap_err();
    assert!(matches!(why, crate::session::SessionError::BytesBeforeTls), "{why}");
}

#[tokio::test]
async fn a_wake_up_arrives_at_the_workers_of_its_queue() {
    let mut fake = Fake::start().await;
    let running = Running::start(options(&fake.url()), MemoryLog::new(0));
    let queues = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let mut far = Wakes::subscribe(options(&fake.url()), &queues(&["far away", "other"]));
    let mut all = Wakes::subscribe(options(&fake.url()), &queues(&[]));
    let subscribed = ["shoal.wake.far_away", "shoal.wake.other", "shoal.wake.*"];
    let has_all = |state: &fake::State| {
        subscribed.iter().all(|subject| state.subscriptions.iter().any(|has| has == subject))
    };
    fake.until("the subscriptions and the stream", has_all).await;
    while !(far.arrive() && all.arrive()) {
        tokio::select! {
            () = far.next() => {}
            () = all.next() => {}
        }
    }
    fake.until("the publisher", |state| state.begun == 3).await;
    woken(&running, &mut far, "far away").await;
    woken(&running, &mut all, "third").await;
    fake.stop().await;
    while far.arrive() {
        far.next().await;
    }
    fake.change(|state| state.subscriptions.clear());
    fake.start_again().await;
    fake.until("the subscriptions again", has_all).await;
    while !far.arrive() {
        far.next().await;
    }
    woken(&running, &mut far, "other").await;
}

/// Sends wake-ups of a queue until one arrives: those before the publisher is connected are dropped.
async fn woken(running: &Running, wakes: &mut Wakes, queue: &str) {
    let wait = async {
        loop {
            running.wake.send(queue.to_owned()).await.unwrap();
            if tokio::time::timeout(Duration::from_millis(50), wakes.next()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("a wake-up arrives");
}

/// Log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_loss_and_a_return_are_one_line_each_and_no_secret_is_logged() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer({
            let lines = lines.clone();
            move || lines.clone()
        })
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    // With one subscriber alone, a line that another test reaches first would stay off.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let fake = Fake::start().await;
    fake.change(|state| state.manners = Manners::Refuses);
    let credentials = Some(NatsCredentials::parse("s3cr3t-t0ken").unwrap());
    let running = Running::start(Options { credentials, ..options(&fake.url()) }, MemoryLog::new(1));
    fake.until("several attempts", |state| state.ended > 3).await;
    fake.change(|state| state.manners = Manners::Good);
    fake.until("the event", |state| state.ids().len() == 1).await;
    running.end().await;
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    assert!(!text.contains("s3cr3t"), "{text}");
    for line in ["no connection to NATS; events wait", "connected to NATS"] {
        assert_eq!(text.matches(line).count(), 1, "{line}: {text}");
    }
}

#[tokio::test]
async fn another_reason_for_no_connection_is_a_line_of_its_own() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let mut fake = Fake::start().await;
    fake.stop().await;
    let credentials = Some(NatsCredentials::parse("s3cr3t-t0ken").unwrap());
    let running = Running::start(Options { credentials, ..options(&fake.url()) }, MemoryLog::new(1));
    let said = || {
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        text.matches("no connection to NATS").count()
    };
    let first = async {
        while said() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), first).await.unwrap();
    fake.change(|state| state.manners = Manners::Refuses);
    fake.start_again().await;
    let before = fake.change(|state| state.ended);
    fake.until("several attempts", |state| state.ended > before + 3).await;
    running.end().await;
    assert_eq!(said(), 2, "the server was not there, and then it refused the credentials");
}

#[test]
fn subjects_have_plain_tokens() {
    assert_eq!(
        event_subject("firmware-install", "report.received"),
        "shoal.events.firmware-install.report.received"
    );
    assert_eq!(event_subject("", "a..b>*"), "shoal.events._.a._.b__");
}
