//! File ranges under a real HTTP server, on real sockets, with several kinds of kernels.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use axum::body::Body;
use futures_util::stream;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::*;

const SIZE: usize = (5 << 20) + 4321;

fn content() -> Vec<u8> {
    (0..SIZE as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

fn file_of(content: &[u8]) -> Arc<File> {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(content, 0).unwrap();
    Arc::new(file)
}

/// A server whose response to `/<first>-<count>` is that range of the file.
struct Server {
    address: SocketAddr,
    /// How each connection ended.
    ended: tokio::sync::mpsc::UnboundedReceiver<hyper::Result<()>>,
}

impl Server {
    async fn start(file: Arc<File>, kernel: &'static dyn Kernel) -> Self {
        Self::start_with(file, kernel, true).await
    }

    async fn start_with(file: Arc<File>, kernel: &'static dyn Kernel, vectored: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ending, ended) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let wire = SendfileStream::over(stream, kernel);
                let (file, sender) = (file.clone(), wire.file_sender().unwrap());
                let service = hyper::service::service_fn(move |request| {
                    let response = respond(&request, &file, &sender);
                    async { Ok::<_, Infallible>(response) }
                });
                let connection =
                    http1::Builder::new().writev(vectored).serve_connection(TokioIo::new(wire), service);
                let ending = ending.clone();
                tokio::spawn(async move { ending.send(connection.await) });
            }
        });
        Server { address, ended }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

fn respond<B>(request: &http::Request<B>, file: &Arc<File>, sender: &FileSender) -> http::Response<Body> {
    let (first, count) = request.uri().path()[1..].split_once('-').unwrap();
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    let (file, sender) = (file.clone(), sender.clone());
    let pieces = stream::unfold((first, count), move |(at, left)| {
        let piece = (left > 0).then(|| sender.placeholder(&file, at, left).unwrap());
        async move {
            piece.map(|piece| {
                (Ok::<_, Infallible>(piece.clone()), (at + piece.len() as u64, left - piece.len() as u64))
            })
        }
    });
    http::Response::builder().header("content-length", count).body(Body::from_stream(pieces)).unwrap()
}

async fn ask(client: &mut TcpStream, method: &str, first: usize, count: usize) {
    let request = format!("{method} /{first}-{count} HTTP/1.1\r\nhost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
}

/// Reads the head of a response.
async fn head(client: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// Reads a response body to its end, or up to the break of the connection.
async fn body(client: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut body = Vec::new();
    if head(client).await.is_ok() {
        // A broken connection is an error or an end; in both cases the bytes before it are returned.
        let _broken = client.take(count as u64).read_to_end(&mut body).await;
    }
    body
}

/// Accepts at most a seventh of each request, seldom the same amount twice.
#[derive(Debug, Default)]
struct PartialWrites(AtomicUsize);

impl Kernel for PartialWrites {
    fn is_cached(&self, file: &File, offset: u64, length: usize) -> bool {
        System.is_cached(file, offset, length)
    }

    fn fetch(&self, file: &File, offset: u64, length: usize) {
        System.fetch(file, offset, length);
    }

    fn send(&self, socket: &TcpStream, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        System.send(socket, file, offset, 1 + count * 7919 % length.div_ceil(7))
    }
}

/// A mutant: after a partial write it continues at the beginning of the range.
#[derive(Debug, Default)]
struct RestartsRange(PartialWrites);

impl Kernel for RestartsRange {
    fn is_cached(&self, file: &File, offset: u64, length: usize) -> bool {
        self.0.is_cached(file, offset, length)
    }

    fn fetch(&self, file: &File, offset: u64, length: usize) {
        self.0.fetch(file, offset, length);
    }

    fn send(&self, socket: &TcpStream, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        self.0.send(socket, file, offset - offset % LONGEST as u64, length)
    }
}

/// The number of responses over this kernel that were not the bytes of the file.
async fn wrong_responses(kernel: &'static dyn Kernel) -> usize {
    let content = content();
    let server = Server::start(file_of(&content), kernel).await;
    let mut client = server.connect().await;
    let parts =
        [(0, SIZE), (0, 1), (1, 4096), (SIZE - 1, 1), (LONGEST - 1, 2), (0, LONGEST), (77, SIZE - 77)];
    let mut wrong = 0;
    for (first, count) in parts {
        ask(&mut client, "GET", first, count).await;
        wrong += usize::from(body(&mut client, count).await != content[first..first + count]);
    }
    wrong
}

#[tokio::test]
async fn the_response_is_the_file_for_any_partial_writes() {
    assert_eq!(wrong_responses(&System).await, 0);
    assert_eq!(wrong_responses(Box::leak(Box::new(PartialWrites::default()))).await, 0);
}

#[tokio::test]
async fn a_wrong_offset_after_a_partial_write_is_detected() {
    assert!(wrong_responses(Box::leak(Box::new(RestartsRange::default()))).await > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_ranges_on_one_connection_are_those_of_the_file(
        parts in proptest::collection::vec((0..SIZE, 1..SIZE), 1..6), pipelined in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let content = content();
            let server = Server::start(file_of(&content), Box::leak(Box::new(PartialWrites::default()))).await;
            let mut client = server.connect().await;
            let parts: Vec<_> = parts.into_iter().map(|(first, count)| (first, count.min(SIZE - first))).collect();
            for (first, count) in &parts {
                ask(&mut client, "GET", *first, *count).await;
                if !pipelined {
                    prop_assert!(body(&mut client, *count).await == content[*first..first + count]);
                }
            }
            for (first, count) in parts.iter().filter(|_| pipelined) {
                prop_assert!(body(&mut client, *count).await == content[*first..first + count]);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_head_response_is_followed_by_no_range() {
    let content = content();
    let server = Server::start(file_of(&content), &System).await;
    let mut client = server.connect().await;
    ask(&mut client, "HEAD", 0, SIZE).await;
    assert!(head(&mut client).await.unwrap().contains(&format!("content-length: {SIZE}")));
    ask(&mut client, "GET", 5, 5).await;
    assert_eq!(body(&mut client, 5).await, content[5..10]);
}

#[tokio::test]
async fn many_clients_read_concurrently() {
    let content = Arc::new(content());
    let server = Arc::new(Server::start(file_of(&content), &System).await);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..32 {
        let (content, server) = (content.clone(), server.clone());
        clients.spawn(async move {
            let (first, count) = (number * 1009, SIZE - number * 70_001);
            let mut client = server.connect().await;
            ask(&mut client, "GET", first, count.min(SIZE - first)).await;
            assert!(
                body(&mut client, count.min(SIZE - first)).await == content[first..SIZE.min(first + count)]
            );
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_ends_early_breaks_the_connection() {
    let content = content();
    let file = file_of(&content);
    file.set_len(LONGEST as u64 * 2 + 9).unwrap();
    let mut server = Server::start(file, &System).await;
    let mut client = server.connect().await;
    ask(&mut client, "GET", 0, SIZE).await;
    let got = body(&mut client, SIZE).await;
    assert_eq!(got.len(), LONGEST * 2 + 9);
    assert!(got == content[..got.len()]);
    assert!(server.ended.recv().await.unwrap().is_err());
}

#[tokio::test]
async fn a_client_that_disconnects_releases_the_file() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(64 << 20).unwrap();
    let file = Arc::new(file);
    let mut server = Server::start(file.clone(), &System).await;
    let mut client = server.connect().await;
    ask(&mut client, "GET", 0, 64 << 20).await;
    head(&mut client).await.unwrap();
    drop(client);
    assert!(server.ended.recv().await.unwrap().is_err());
    // The reference here and the one of the listener.
    assert_eq!(Arc::strong_count(&file), 2);
}

/// Counts the checks of the page cache.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Kernel for Counting {
    fn is_cached(&self, _file: &File, _offset: u64, _length: usize) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn fetch(&self, _file: &File, _offset: u64, _length: usize) {
        unreachable!("everything is cached");
    }

    fn send(&self, socket: &TcpStream, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        System.send(socket, file, offset, length)
    }
}

#[tokio::test]
async fn a_range_kept_waiting_by_a_slow_client_is_checked_again() {
    let content = content();
    let kernel: &'static Counting = Box::leak(Box::default());
    let server = Server::start(file_of(&content), kernel).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = socket.connect(server.address).await.unwrap();
    for _ in 0..8 {
        ask(&mut client, "GET", 0, SIZE).await;
        head(&mut client).await.unwrap();
        let (mut got, mut buffer) = (Vec::new(), [0; 1500]);
        while got.len() < SIZE {
            let wanted = buffer.len().min(SIZE - got.len());
            let read = client.read(&mut buffer[..wanted]).await.unwrap();
            got.extend_from_slice(&buffer[..read]);
        }
        assert!(got == content);
    }
    assert!(kernel.0.load(Ordering::Relaxed) > 8 * SIZE.div_ceil(LONGEST));
}

/// A disk that blocks until released, for everything beyond an offset.
#[derive(Debug)]
struct ColdDisk {
    from: u64,
    waiting: Mutex<mpsc::Sender<()>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Kernel for ColdDisk {
    fn is_cached(&self, _file: &File, offset: u64, _length: usize) -> bool {
        offset < self.from
    }

    fn fetch(&self, _file: &File, _offset: u64, _length: usize) {
        self.waiting.lock().send(()).unwrap();
        self.go_on.lock().recv().unwrap();
    }

    fn send(&self, socket: &TcpStream, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        System.send(socket, file, offset, length)
    }
}

#[tokio::test]
async fn a_connection_that_waits_for_the_disk_delays_no_other() {
    let content = content();
    let ((waiting, is_waiting), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let from = LONGEST as u64;
    let kernel = ColdDisk { from, waiting: Mutex::new(waiting), go_on: Mutex::new(go_on) };
    let server = Server::start(file_of(&content), Box::leak(Box::new(kernel))).await;
    let (mut cold, mut warm) = (server.connect().await, server.connect().await);
    ask(&mut cold, "GET", LONGEST, LONGEST).await;
    head(&mut cold).await.unwrap();
    tokio::task::spawn_blocking(move || is_waiting.recv().unwrap()).await.unwrap();
    // There is one thread for both connections and this test.
    ask(&mut warm, "GET", 0, LONGEST).await;
    assert!(body(&mut warm, LONGEST).await == content[..LONGEST]);
    let_go.send(()).unwrap();
    let mut got = vec![0; LONGEST];
    cold.read_exact(&mut got).await.unwrap();
    assert!(got == content[LONGEST..2 * LONGEST]);
}

#[tokio::test]
async fn a_range_outside_of_the_cache_is_read_and_sent() {
    let content = content();
    let file = file_of(&content);
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let server = Server::start(file, &System).await;
    let mut client = server.connect().await;
    ask(&mut client, "GET", 3, SIZE - 3).await;
    assert!(body(&mut client, SIZE - 3).await == content[3..]);
}

/// The kernel reads until a read fails or the file ends; it must not continue without end.
#[test]
fn fetching_beyond_the_end_of_a_file_ends() {
    System.fetch(&file_of(b"short"), 2, LONGEST);
    System.fetch(&file_of(b"short"), 1 << 40, LONGEST);
}

#[tokio::test]
async fn a_server_that_copies_placeholders_sends_nothing_of_them() {
    let mut server = Server::start_with(file_of(&content()), &System, false).await;
    let mut client = server.connect().await;
    ask(&mut client, "GET", 0, SIZE).await;
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"", "not even the head, which is written with them");
    assert!(server.ended.recv().await.unwrap().is_err());
}

/// Misuses of placeholders. Each is detected before a byte is sent.
#[tokio::test]
async fn every_other_misuse_of_placeholders_breaks_the_connection() {
    let file = file_of(&content());
    let foreign = FileSender::default().placeholder(&file, 0, 10).unwrap();
    type Misuse = fn(Bytes, Bytes, Bytes) -> Vec<Bytes>;
    let misuses: [(&str, Misuse); 9] = [
        ("copied", |one, two, _| vec![Bytes::copy_from_slice(&one), two]),
        ("copied together", |one, two, _| vec![[one, two].concat().into()]),
        ("dropped", |one, _, _| vec![one]),
        ("both dropped", |_, _, _| vec![Bytes::from_static(b"head")]),
        ("in the wrong order", |one, two, _| vec![two, one]),
        ("cut at the end", |one, two, _| vec![one.slice(..9), two]),
        ("cut at the beginning", |one, two, _| vec![one.slice(1..), two]),
        ("sent twice", |one, two, _| vec![one.clone(), two, one]),
        ("of another connection", |one, two, foreign| vec![one, two, foreign]),
    ];
    for (what, misuse) in misuses {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut wire = SendfileStream::new(listener.accept().await.unwrap().0);
        let sender = wire.file_sender().unwrap();
        let (one, two) =
            (sender.placeholder(&file, 0, 10).unwrap(), sender.placeholder(&file, 10, 20).unwrap());
        let offered = misuse(one, two, foreign.clone());
        let slices: Vec<_> = offered.iter().map(|bytes| IoSlice::new(bytes)).collect();
        assert!(wire.write_vectored(&slices).await.is_err(), "{what}");
        drop(wire);
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"", "{what}");
    }
}

#[test]
fn the_number_of_pending_ranges_is_bounded() {
    let (sender, file) = (FileSender::default(), file_of(b"file"));
    assert_eq!(sender.placeholder(&file, 0, 0).unwrap(), "");
    for _ in 0..OPEN {
        assert_eq!(sender.placeholder(&file, 0, u64::MAX).unwrap().len(), LONGEST);
    }
    assert_eq!(sender.placeholder(&file, 0, 1), None);
}
