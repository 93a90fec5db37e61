//! A NATS server for tests, on a loopback socket: the few verbs that the client uses, one stream, and bad manners on request.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How long a test waits for something that must happen.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How the server treats a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Manners {
    #[default]
    Good,
    /// The server sends an INFO without an end.
    EndlessInfo,
    /// The server sends an INFO of 16 MiB and nothing after it.
    LongInfo,
    /// After the handshake the server announces a message of the largest length.
    LargestMessage,
    /// After the handshake the server sends a line without an end, and no response to a ping.
    EndlessLine,
    /// The server refuses the credentials and repeats them.
    Refuses,
    /// The server stores messages and closes the connection before the acknowledgement.
    StoresAndCloses,
}

/// A stored message.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) subject: String,
    pub(super) id: Option<String>,
    pub(super) body: Vec<u8>,
}

/// The state of the server: its stream, messages, and counts of reads and connections.
#[derive(Default)]
pub(super) struct State {
    pub(super) manners: Manners,
    stream: Option<Value>,
    /// The messages by their sequence.
    pub(super) messages: BTreeMap<u64, Stored>,
    last: u64,
    /// Whether the stream is full and refuses every message.
    pub(super) full: bool,
    /// The ids that are recognised.
    pub(super) recognised: HashSet<String>,
    /// Reads of messages.
    pub(super) reads: usize,
    /// Looks at the stream.
    pub(super) looks: usize,
    /// Connections that have begun, and those that have ended.
    pub(super) begun: usize,
    pub(super) ended: usize,
    pub(super) subscriptions: Vec<String>,
}

impl State {
    pub(super) fn ids(&self) -> Vec<String> {
        self.messages.values().filter_map(|message| message.id.clone()).collect()
    }

    /// Puts a message at the end of the stream, as another program does.
    pub(super) fn store(&mut self, subject: &str, id: Option<&str>, body: &[u8]) -> u64 {
        self.last += 1;
        let stored = Stored { subject: subject.to_owned(), id: id.map(str::to_owned), body: body.to_owned() };
        self.messages.insert(self.last, stored);
        self.last
    }

    /// Removes all messages. The sequence goes on, and ids are still recognised.
    pub(super) fn purge(&mut self) {
        self.messages.clear();
    }

    /// Makes the stream as an operator does, with a retention.
    pub(super) fn make_stream(&mut self, retention: &str) {
        self.stream = Some(json!({ "name": "SHOAL_EVENTS", "retention": retention }));
    }

    /// Loses everything.
    pub(super) fn lose(&mut self) {
        *self = Self { manners: self.manners, begun: self.begun, ended: self.ended, ..Self::default() };
    }
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    messages: broadcast::Sender<String>,
}

/// The server.
pub(super) struct Fake {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<CancellationToken>,
}

impl Fake {
    pub(super) async fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: watch::channel(0).0,
            messages: broadcast::channel(64).0,
        });
        let mut fake = Self { shared, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), stop: None };
        fake.start_again().await;
        fake
    }

    /// Listens again on the port of before.
    pub(super) async fn start_again(&mut self) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        let listener = socket.listen(16).unwrap();
        self.address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, Arc::clone(&self.shared), stop.clone()));
        self.stop = Some(stop);
    }

    /// Closes the port and every connection.
    pub(super) async fn stop(&mut self) {
        self.stop.take().unwrap().cancel();
        self.until("the end of all connections", |state| state.begun == state.ended).await;
    }

    pub(super) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Changes the state.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.shared.change(change)
    }

    /// Waits for a state.
    pub(super) async fn until(&self, what: &str, reached: impl Fn(&State) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let wait = async {
            loop {
                changed.mark_unchanged();
                if reached(&self.shared.state.lock()) {
                    return;
                }
                changed.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(TIME_LIMIT, wait).await.is_err() {
            panic!("not reached: {what}; the stream has {:?}", self.shared.state.lock().ids());
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(stop) = &self.stop {
            stop.cancel();
        }
    }
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
        shared.change(|state| state.begun += 1);
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            stop.run_until_cancelled(serve(stream, &shared)).await;
            shared.change(|state| state.ended += 1);
        });
    }
}

/// A command of a client.
enum Command {
    Connect(Value),
    Ping,
    Subscribe { subject: String, sid: String },
    Publish { subject: String, reply: Option<String>, headers: String, body: Vec<u8> },
    Other,
}

async fn serve(stream: TcpStream, shared: &Shared) {
    let (read, mut write) = stream.into_split();
    let manners = shared.state.lock().manners;
    let info = json!({
        "server_id": "FAKE", "server_name": "fake", "version": "2.9.10", "proto": 1, "go": "none", "host": "127.0.0.1",
        "port": 4222, "headers": true, "max_payload": 1_048_576, "client_id": 1, "jetstream": true, "nonce": "random",
    });
    let greeting = match manners {
        Manners::EndlessInfo => return endless(read, write, b"INFO {\"server_id\":\"").await,
        Manners::LongInfo => {
            let _closed = write.write_all(&vec![b'x'; 16 << 20]).await;
            return closed(read).await;
        }
        _ => format!("INFO {info}\r\n"),
    };
    if write.write_all(greeting.as_bytes()).await.is_err() {
        return;
    }
    let (sender, mut commands) = mpsc::channel(64);
    let reading = async move {
        let mut reader = BufReader::new(read);
        while let Some(command) = command(&mut reader).await {
            if sender.send(command).await.is_err() {
                return;
            }
        }
    };
    let handling = async {
        let mut core = shared.messages.subscribe();
        let mut subscriptions: Vec<(String, String)> = Vec::new();
        let mut token = String::new();
        loop {
            let response = tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Connect(options)) => {
                        token = options["auth_token"].as_str().unwrap_or_default().to_owned();
                        String::new()
                    }
                    Some(Command::Ping) if manners == Manners::Refuses => {
                        format!("-ERR 'the token {token} is not known here'\r\n")
                    }
                    Some(Command::Ping) => match manners {
                        Manners::LargestMessage => {
                            format!("PONG\r\nMSG shoal.wake.x 1 {}\r\n", u64::MAX)
                        }
                        Manners::EndlessLine => {
                            let _closed = write.write_all(b"PONG\r\n").await;
                            return endless_write(write, b"-ERR '").await;
                        }
                        _ => "PONG\r\n".to_owned(),
                    },
                    Some(Command::Subscribe { subject, sid }) => {
                        shared.change(|state| state.subscriptions.push(subject.clone()));
                        subscriptions.push((subject, sid));
                        String::new()
                    }
                    Some(Command::Publish { subject, reply, headers, body }) => {
                        let response = publish(shared, &subject, &headers, &body);
                        if manners == Manners::StoresAndCloses && subject.starts_with("shoal.events") {
                            return;
                        }
                        match (response, reply) {
                            (Answer::Core, _) => {
                                let _no_subscriber = shared.messages.send(subject);
                                String::new()
                            }
                            (Answer::NoResponder, Some(reply)) => deliver(&subscriptions, &reply, None),
                            (Answer::Json(json), Some(reply)) => {
                                deliver(&subscriptions, &reply, Some(&json.to_string()))
                            }
                            (_, None) => String::new(),
                        }
                    }
                    Some(Command::Other) => String::new(),
                    None => return,
                },
                message = core.recv() => deliver(&subscriptions, &message.unwrap(), Some("")),
            };
            if write.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = handling => {}
    }
}

/// Sends bytes until the client closes the connection.
async fn endless(read: OwnedReadHalf, write: OwnedWriteHalf, start: &[u8]) {
    tokio::select! {
        () = closed(read) => {}
        () = endless_write(write, start) => {}
    }
}

async fn endless_write(mut write: OwnedWriteHalf, start: &[u8]) {
    let mut sent = write.write_all(start).await;
    while sent.is_ok() {
        sent = write.write_all(&[b'x'; 1024]).await;
        tokio::task::yield_now().await;
    }
}

/// Waits until the client closes the connection.
async fn closed(mut read: OwnedReadHalf) {
    let mut bytes = [0; 1024];
    while matches!(read.read(&mut bytes).await, Ok(1..)) {}
}

async fn command(reader: &mut BufReader<OwnedReadHalf>) -> Option<Command> {
    let mut line = String::new();
    if reader.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let line = line.trim_end();
    let words: Vec<&str> = line.split_whitespace().collect();
    Some(match *words.first()? {
        "CONNECT" => Command::Connect(serde_json::from_str(line.strip_prefix("CONNECT ")?).ok()?),
        "PING" => Command::Ping,
        "SUB" => Command::Subscribe { subject: words[1].to_owned(), sid: (*words.last()?).to_owned() },
        verb @ ("PUB" | "HPUB") => {
            let lengths = if verb == "HPUB" { 2 } else { 1 };
            let number = |at: usize| words[words.len() - at].parse::<usize>().ok();
            let headers = if verb == "HPUB" { number(2)? } else { 0 };
            let mut bytes = vec![0; number(1)? + 2];
            reader.read_exact(&mut bytes).await.ok()?;
            let body = bytes[headers..bytes.len() - 2].to_vec();
            let headers = String::from_utf8(bytes[..headers].to_vec()).ok()?;
            let reply = (words.len() == 3 + lengths).then(|| words[2].to_owned());
            Command::Publish { subject: words[1].to_owned(), reply, headers, body }
        }
        _ => Command::Other,
    })
}

/// The response to a message.
enum Answer {
    Json(Value),
    NoResponder,
    /// There is none: the message is for subscribers.
    Core,
}

fn publish(shared: &Shared, subject: &str, headers: &str, body: &[u8]) -> Answer {
    let header = |name: &str| {
        let prefix = format!("{name}: ");
        headers.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    };
    let failed = |code: u16, err_code: u16, description: &str| {
        Answer::Json(json!({ "error": { "code": code, "err_code": err_code, "description": description } }))
    };
    let request = || serde_json::from_slice::<Value>(body).unwrap_or_default();
    shared.change(|state| match subject.strip_prefix("$JS.API.STREAM.") {
        Some("INFO.SHOAL_EVENTS") => {
            state.looks += 1;
            match &state.stream {
                Some(config) => Answer::Json(stream(config, state)),
                None => failed(404, 10059, "stream not found"),
            }
        }
        Some("CREATE.SHOAL_EVENTS") => {
            let config = request();
            state.stream = Some(config.clone());
            Answer::Json(stream(&config, state))
        }
        Some("MSG.GET.SHOAL_EVENTS") => {
            state.reads += 1;
            let sequence = request()["seq"].as_u64().unwrap();
            match state.messages.get(&sequence) {
                Some(message) => {
                    let id = message.id.as_ref().map(|id| format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n"));
                    Answer::Json(json!({ "message": {
                        "subject": message.subject, "seq": sequence, "time": "2026-11-20T08:00:00Z",
                        "hdrs": id.map(|id| STANDARD.encode(id)), "data": STANDARD.encode(&message.body),
                    } }))
                }
                None => failed(404, 10037, "no message found"),
            }
        }
        Some(_) => failed(400, 10025, "bad request"),
        None if !subject.starts_with("shoal.events.") => Answer::Core,
        None if state.stream.is_none() => Answer::NoResponder,
        None if state.full => failed(503, 10077, "maximum bytes exceeded"),
        None => {
            let id = header("Nats-Msg-Id");
            if id.as_ref().is_some_and(|id| state.recognised.contains(id)) {
                return Answer::Json(
                    json!({ "stream": "SHOAL_EVENTS", "seq": state.last, "duplicate": true }),
                );
            }
            let expected = header("Nats-Expected-Last-Sequence").map(|end| end.parse::<u64>().unwrap());
            // As the server of Debian: 0 is not compared.
            if expected.is_some_and(|end| end > 0 && end != state.last) {
                return failed(400, 10071, "wrong last sequence");
            }
            state.recognised.extend(id.clone());
            let sequence = state.store(subject, id.as_deref(), body);
            Answer::Json(json!({ "stream": "SHOAL_EVENTS", "seq": sequence }))
        }
    })
}

fn stream(config: &Value, state: &State) -> Value {
    let first = state.messages.keys().next().copied().unwrap_or(state.last + 1);
    json!({
        "config": config, "created": "2026-11-20T08:00:00Z",
        "state": {
            "messages": state.messages.len(), "bytes": 0, "first_seq": first, "first_ts": "2026-11-20T08:00:00Z",
            "last_seq": state.last, "last_ts": "2026-11-20T08:00:00Z", "consumer_count": 0,
        },
    })
}

/// The messages for the subscriptions of a subject; without a text the one that says that there is no responder.
fn deliver(subscriptions: &[(String, String)], subject: &str, text: Option<&str>) -> String {
    let matching = subscriptions.iter().filter(|(pattern, _)| matches(pattern, subject));
    let message = |sid: &str| match text {
        Some(text) => format!("MSG {subject} {sid} {}\r\n{text}\r\n", text.len()),
        None => format!("HMSG {subject} {sid} 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"),
    };
    matching.map(|(_, sid)| message(sid)).collect()
}

fn matches(pattern: &str, subject: &str) -> bool {
    let (pattern, subject): (Vec<&str>, Vec<&str>) =
        (pattern.split('.').collect(), subject.split('.').collect());
    pattern.len() == subject.len()
        && pattern.iter().zip(&subject).all(|(left, right)| *left == "*" || left == right)
}
