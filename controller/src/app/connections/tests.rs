//! Tests of admission: over real sockets with small limits, and over a pipe with virtual time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, AdmissionParts, ConnectionGuard};
use super::stream::AdmittedStream;
use super::table::{Limits, PoolLimits};
use crate::app::listen::{Served, serve};
use access::auth::{Denials, Proof, Standing, prove};
use model::SystemClock;
use settings::descriptors::DescriptorBudget;

/// Longer than any test takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const LIMITS: Limits = Limits {
    open: 8,
    open_per_address: 8,
    api: PoolLimits { requests: 3, unproved: 3, per_address: 2 },
    media: PoolLimits { requests: 2, unproved: 1, per_address: 2 },
    anonymous: 2,
    unproved_per_address: 1,
};

fn admission(limits: Limits, proxies: &str) -> Admission {
    let parts = AdmissionParts {
        budget: DescriptorBudget::of(1024, 1),
        proxies: if proxies.is_empty() { Default::default() } else { proxies.parse().unwrap() },
        denials: Arc::new(Denials::default()),
        clock: Arc::new(SystemClock),
        metrics: Arc::default(),
    };
    Admission::with_limits(limits, parts)
}

/// A server with `/who` (the address of the client), `/endless`, and `/wait`, which proves a known client and responds when
/// `Server::go_on` has a permit.
struct Server {
    address: SocketAddr,
    admission: Admission,
    go_on: Arc<Semaphore>,
}

impl Server {
    async fn start(limits: Limits, proxies: &str) -> Self {
        let go_on = Arc::new(Semaphore::new(0));
        let waits = Arc::clone(&go_on);
        let wait = move || async move {
            prove(Standing::Known);
            waits.acquire().await.unwrap().forget();
            "went on"
        };
        let endless = || async {
            let chunks = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![7_u8; 65_536]));
            axum::body::Body::from_stream(chunks)
        };
        let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() };
        let router =
            Router::new().route("/who", get(who)).route("/endless", get(endless)).route("/wait", get(wait));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (admission, tasks) = (admission(limits, proxies), TaskTracker::new());
        let served = Served { router, elsewhere: None, tls: None, admission: admission.clone() };
        tasks.spawn(serve(listener, served, CancellationToken::new(), tasks.clone()));
        Self { address, admission, go_on }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole response to a request for a path.
    async fn ask(&self, path: &str, headers: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}Connection: close\r\n\r\n");
        rest(self.send(&request).await).await
    }

    /// Waits until this many connections are open and this many requests in progress.
    async fn until(&self, counts: (usize, usize)) {
        let reached = async {
            while self.admission.counts() != counts {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(LONG, reached).await.is_err() {
            panic!("{:?} instead of {counts:?}", self.admission.counts());
        }
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut text)).await.unwrap().unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_client_is_served_at_once_beside_any_number_of_idle_connections() {
    let server = Server::start(LIMITS, "").await;
    let mut idle = Vec::new();
    for number in 0..100 {
        idle.push(server.connect().await);
        if number % 10 == 0 {
            let response = server.ask("/who", "").await;
            assert!(response.starts_with("HTTP/1.1 200"), "beside {number}: {response}");
        }
    }
    assert_eq!(rest(idle.remove(0)).await, "", "the connection that was idle for longest is closed");
    assert!(server.admission.counts().0 <= LIMITS.open);
}

#[tokio::test]
async fn a_request_in_progress_is_not_ended_for_idle_connections() {
    let server = Server::start(LIMITS, "").await;
    let waits = server.send("GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let mut reads = server.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.until((2, 2)).await;
    let idle: Vec<TcpStream> = futures_util::stream::iter(0..50).then(|_| server.connect()).collect().await;
    assert!(server.ask("/who", "").await.starts_with("HTTP/1.1 200"));
    let mut chunk = vec![0; 4 << 20];
    tokio::time::timeout(LONG, reads.read_exact(&mut chunk)).await.unwrap().unwrap();
    server.go_on.add_permits(1);
    assert!(rest(waits).await.ends_with("went on"));
    drop(idle);
}

#[tokio::test]
async fn a_response_that_was_sent_ends_its_request_and_the_connection_is_idle() {
    let server = Server::start(LIMITS, "").await;
    let request = "GET /who HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept = server.send(request).await;
    for _ in 0..5 {
        let mut head = [0; 16];
        kept.read_exact(&mut head).await.unwrap();
        server.until((1, 0)).await;
        kept.write_all(request.as_bytes()).await.unwrap();
    }
    drop(kept);
    server.until((0, 0)).await;
}

#[tokio::test]
async fn a_client_that_exceeds_its_share_receives_429_and_others_are_served() {
    let server = Server::start(LIMITS, "127.0.0.0/8").await;
    let from = |last: u8| format!("X-Forwarded-For: 198.51.100.{last}\r\n");
    let waiting = format!("GET /wait HTTP/1.1\r\nHost: a\r\n{}Connection: close\r\n\r\n", from(1));
    let first = server.send(&waiting).await;
    server.until((1, 1)).await;
    let second = server.send(&waiting).await;
    server.until((2, 2)).await;
    // Two requests are proved; a third one is within the share of what is not proved, until it is repeated.
    let endless = format!("GET /endless HTTP/1.1\r\nHost: a\r\n{}\r\n", from(2));
    let third = server.send(&endless).await;
    server.until((3, 3)).await;
    let limited = server.ask("/who", &from(2)).await;
    assert!(limited.starts_with("HTTP/1.1 429") && limited.contains("retry-after: 5"), "{limited}");
    let full = server.ask("/who", &from(3)).await;
    assert!(full.starts_with("HTTP/1.1 503") && full.contains("retry-after: 2"), "the pool is full: {full}");
    drop(third);
    server.until((2, 2)).await;
    let other = server.ask("/who", &from(3)).await;
    assert!(other.ends_with("198.51.100.3"), "{other}");
    server.go_on.add_permits(2);
    for stream in [first, second] {
        assert!(rest(stream).await.ends_with("went on"));
    }
}

#[tokio::test]
async fn the_address_of_a_client_is_that_of_its_peer_unless_the_peer_is_trusted() {
    for (proxies, expected) in [("", "127.0.0.1"), ("127.0.0.1", "198.51.100.7")] {
        let server = Server::start(LIMITS, proxies).await;
        let response = server.ask("/who", "X-Forwarded-For: 203.0.113.1, 198.51.100.7\r\n").await;
        assert!(response.ends_with(&format!("\r\n{expected}")), "{proxies:?}: {response}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_kept_alive_is_closed_after_half_a_minute_without_a_request() {
    let server = Server::start(LIMITS, "").await;
    let stream = server.send("GET /who HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let began = Instant::now();
    let mut stream = stream;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    assert!(String::from_utf8_lossy(&text).ends_with("127.0.0.1"));
    assert!(began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
}

/// A stream of an admitted connection whose client has proved `standing`, and the end of the client.
fn piped(standing: Standing) -> (AdmittedStream<DuplexStream>, DuplexStream, ConnectionGuard) {
    let guard = admission(LIMITS, "").admit("198.51.100.1:4000".parse().unwrap()).unwrap();
    guard.connection().prove(standing);
    let (near, far) = tokio::io::duplex(1024);
    (AdmittedStream::new(near, guard.connection()), far, guard)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_ends_its_connection() {
    for (standing, seconds) in [(Standing::Anonymous, 120), (Standing::Known, 300), (Standing::Media, 900)] {
        let (mut stream, _far, _guard) = piped(standing);
        let began = Instant::now();
        let error = stream.write_all(&[0; 4096]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(began.elapsed().as_secs().abs_diff(seconds) <= 1, "{standing:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_read_is_discarded_for_two_seconds_after_the_end_was_sent() {
    let (mut stream, _far, _guard) = piped(Standing::Anonymous);
    let began = Instant::now();
    stream.shutdown().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "a connection without an unread body is closed at once");

    let (mut stream, mut far, guard) = piped(Standing::Anonymous);
    guard.connection().left_unread();
    let client = tokio::spawn(async move {
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0, "the end is sent before the client has sent all");
        far.write_all(&[0; 64 << 10]).await.unwrap();
        far
    });
    stream.shutdown().await.unwrap();
    assert!(client.is_finished(), "all that the client sent was read");
    assert!(began.elapsed() == Duration::from_secs(2), "{:?}", began.elapsed());

    let (mut stream, far, guard) = piped(Standing::Anonymous);
    guard.connection().left_unread();
    let began = Instant::now();
    drop(far);
    stream.shutdown().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "a client that is gone is not waited for");
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_reads_slowly_and_pauses_for_minutes_receives_everything() {
    let (mut stream, mut far, _guard) = piped(Standing::Media);
    let image = vec![9; 64 << 10];
    let length = image.len();
    let reader = tokio::spawn(async move {
        let (mut got, mut buffer) = (0, [0; 1024]);
        while got < length {
            // 1 KiB per second, and ten minutes without a read in the middle.
            let pause = if got == length / 2 { 600 } else { 1 };
            tokio::time::sleep(Duration::from_secs(pause)).await;
            got += far.read(&mut buffer).await.unwrap();
        }
        got
    });
    stream.write_all(&image).await.unwrap();
    stream.flush().await.unwrap();
    drop(stream);
    assert_eq!(reader.await.unwrap(), length);
}
