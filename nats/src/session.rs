//! One connection, from its login to its end: messages that are sent, responses that are waited for, subscriptions.
//!
//! ```text
//!   server: INFO ──> (TLS) ──> CONNECT, SUB inbox, SUB …, PING ──> server: PONG        the session is open
//!
//!   Session::begin ── frame ──> channel ──> Driver writes ──> server
//!   Pending::response <── oneshot <── Driver reads <── message of the inbox
//! ```
//!
//! A [`Session`] sends and waits; its [`Driver`] moves the bytes, and ends when the connection has ended. Both live in one task, so
//! the end of the task ends the connection.
//!
//! Bounds: a server that sends no PONG to two PINGs is left, one that reads nothing for the time of a request too; the channel has
//! room for [`FRAMES`] messages, and waits when it is full.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsConnector;

use crate::credentials::Login;
use crate::options::{Limits, Options};
use crate::protocol::{self, Operation, ReadError, ServerInfo};

/// The most messages that wait to be written.
const FRAMES: usize = 64;
/// The subscription of the responses. Those of the caller follow.
const INBOX: u64 = 1;
/// PINGs without a PONG after which a server is left.
const UNANSWERED: u32 = 2;
/// The status of a message that says that there is no responder.
const NO_RESPONDER: u16 = 503;

/// Why a session did not begin, or has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the server cannot be reached: {0}")]
    Unreachable(std::io::ErrorKind),
    #[error("TLS with the server failed: {0}")]
    Tls(std::io::Error),
    #[error("the server sent more than its INFO before TLS")]
    BytesBeforeTls,
    #[error("the server accepts no headers; use version 2.2 or later")]
    NoHeaders,
    #[error("the credentials are signed, and the server sends no text to sign")]
    NoNonce,
    #[error("the server refuses the credentials, or a subscription with them")]
    Refused,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the connection failed: {0}")]
    Write(std::io::ErrorKind),
    #[error("the server reads nothing")]
    Stalled,
    #[error("the server sends no response to pings")]
    Silent,
    #[error("the server sent no response to the login in time")]
    SlowLogin,
}

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("no service of the server responds to it; JetStream does not run, or not for this user")]
    NoResponder,
    #[error("the server sent no response in time")]
    Late,
    #[error("the response is longer than {} KiB", protocol::MAX_KEPT >> 10)]
    TooLong,
    #[error("the connection ended")]
    Ended,
}

trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}
type Reader = BufReader<ReadHalf<Box<dyn Transport>>>;
type Writer = WriteHalf<Box<dyn Transport>>;
type Response = Result<Vec<u8>, RequestError>;
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Response>>>>;

/// The sending side of a connection.
pub(crate) struct Session {
    frames: mpsc::Sender<Bytes>,
    waiting: Waiting,
    /// The start of the subjects of responses, with the dot at its end.
    inbox: String,
    next: AtomicU64,
    request: Duration,
    max_payload: usize,
    delivered: watch::Receiver<u64>,
}

/// Moves the bytes of a connection.
pub(crate) struct Driver {
    reader: Reader,
    writer: Writer,
    limits: Limits,
    frames: mpsc::Receiver<Bytes>,
    pongs: mpsc::Sender<Bytes>,
    waiting: Waiting,
    /// Counts the messages of the subscriptions of the caller.
    delivered: watch::Sender<u64>,
    unanswered: AtomicU32,
}

/// The properties of a client, for its `CONNECT`.
#[derive(Serialize)]
struct Connect<'a> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    headers: bool,
    no_responders: bool,
    echo: bool,
    protocol: u8,
    lang: &'static str,
    version: &'static str,
    name: &'a str,
    #[serde(flatten)]
    login: Login<'a>,
}

/// Connects and subscribes to `subjects`. When this returns, the server has accepted the login and each subscription.
///
/// # Errors
/// When the server cannot be reached, is no NATS server, or refuses the login.
pub(crate) async fn open(options: &Options, subjects: &[String]) -> Result<(Session, Driver), SessionError> {
    let wait = tokio::time::timeout(options.limits.handshake, log_in(options, subjects));
    wait.await.map_err(|_late| SessionError::SlowLogin)?
}

async fn log_in(options: &Options, subjects: &[String]) -> Result<(Session, Driver), SessionError> {
    let Options { server, credentials, name, limits, .. } = options;
    let unreachable = |why: std::io::Error| SessionError::Unreachable(why.kind());
    let stream = TcpStream::connect((server.host(), server.port())).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let stream: Box<dyn Transport> = Box::new(stream);
    let (read, write) = tokio::io::split(stream);
    let (mut reader, mut writer) = (BufReader::new(read), write);
    let info = match protocol::read(&mut reader, INBOX).await? {
        Operation::Info(info) => info,
        _ => return Err(ReadError::Malformed("no INFO at its start").into()),
    };
    let encrypted = server.is_tls() || info.tls_required;
    if encrypted {
        // What follows the INFO in plain text would pass for a part of the encrypted connection.
        if !reader.buffer().is_empty() {
            return Err(SessionError::BytesBeforeTls);
        }
        let stream = secure(options, reader.into_inner().unsplit(writer)).await?;
        let (read, write) = tokio::io::split(stream);
        (reader, writer) = (BufReader::new(read), write);
    }
    if !info.headers {
        return Err(SessionError::NoHeaders);
    }
    let login = match credentials {
        Some(credentials) => credentials.login(info.nonce.as_deref()).ok_or(SessionError::NoNonce)?,
        None => Login::default(),
    };
    let connect = Connect {
        verbose: false,
        pedantic: false,
        tls_required: encrypted,
        headers: true,
        no_responders: true,
        echo: false,
        protocol: 1,
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        name,
        login,
    };
    let inbox = format!("_INBOX.{}.", uuid::Uuid::new_v4().simple());
    let subscriptions = std::iter::once(format!("{inbox}*")).chain(subjects.iter().cloned()).zip(INBOX..);
    let subscribe: String = subscriptions.map(|(subject, sid)| format!("SUB {subject} {sid}\r\n")).collect();
    // A `Connect` has texts and booleans only, which are always JSON.
    let connect = serde_json::to_string(&connect).unwrap_or_default();
    let greeting = format!("CONNECT {connect}\r\n{subscribe}PING\r\n");
    let broken = |why: std::io::Error| SessionError::Write(why.kind());
    writer.write_all(greeting.as_bytes()).await.map_err(broken)?;
    writer.flush().await.map_err(broken)?;
    loop {
        match protocol::read(&mut reader, INBOX).await? {
            Operation::Pong => break,
            Operation::Refused => return Err(SessionError::Refused),
            Operation::Ping | Operation::Info(_) | Operation::Confirmed | Operation::Message(_) => {}
        }
    }
    Ok(connected(reader, writer, inbox, *limits, &info))
}

async fn secure(options: &Options, stream: Box<dyn Transport>) -> Result<Box<dyn Transport>, SessionError> {
    let host = options.server.host().to_owned();
    let name = ServerName::try_from(host).map_err(|_| {
        SessionError::Tls(std::io::Error::other("the host of the URL cannot be in a certificate"))
    })?;
    let connector = TlsConnector::from(Arc::new(options.tls.clone()));
    Ok(Box::new(connector.connect(name, stream).await.map_err(SessionError::Tls)?))
}

fn connected(
    reader: Reader,
    writer: Writer,
    inbox: String,
    limits: Limits,
    info: &ServerInfo,
) -> (Session, Driver) {
    let (frames, to_write) = mpsc::channel(FRAMES);
    let (delivered, counted) = watch::channel(0);
    let waiting = Waiting::default();
    let driver = Driver {
        reader,
        writer,
        limits,
        frames: to_write,
        pongs: frames.clone(),
        waiting: Arc::clone(&waiting),
        delivered,
        unanswered: AtomicU32::new(0),
    };
    let session = Session {
        frames,
        waiting,
        inbox,
        next: AtomicU64::new(0),
        request: limits.request,
        max_payload: usize::try_from(info.max_payload).unwrap_or(usize::MAX),
        delivered: counted,
    };
    (session, driver)
}

impl Session {
    /// The most bytes of headers and body that the server accepts in a message.
    pub(crate) fn max_payload(&self) -> usize {
        self.max_payload
    }

    /// The number of messages of the subscriptions. Their content is dropped.
    pub(crate) fn delivered(&self) -> watch::Receiver<u64> {
        self.delivered.clone()
    }

    /// Sends a message without a response.
    ///
    /// # Errors
    /// [`RequestError::Ended`] when the connection has ended.
    pub(crate) async fn publish(&self, subject: &str) -> Result<(), RequestError> {
        self.send(frame(subject, "", &[], b"")).await
    }

    /// Sends a message to which the server responds.
    ///
    /// # Errors
    /// [`RequestError::Ended`] when the connection has ended.
    pub(crate) async fn begin(
        &self,
        subject: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Pending, RequestError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, response) = oneshot::channel();
        self.waiting.lock().insert(number, sender);
        let pending = Pending { number, response, waiting: Arc::clone(&self.waiting), limit: self.request };
        let reply = format!("{}{number}", self.inbox);
        self.send(frame(subject, &reply, headers, body)).await?;
        Ok(pending)
    }

    /// Sends a message and waits for the response.
    ///
    /// # Errors
    /// When no service responds, no response arrives in time, it is too long, or the connection has ended.
    pub(crate) async fn request(&self, subject: &str, body: &[u8]) -> Response {
        self.begin(subject, &[], body).await?.response().await
    }

    async fn send(&self, frame: Bytes) -> Result<(), RequestError> {
        self.frames.send(frame).await.map_err(|_| RequestError::Ended)
    }
}

/// The frame of a message. Subjects and headers come from this crate and have neither blanks nor line ends.
fn frame(subject: &str, reply: &str, headers: &[(&str, &str)], body: &[u8]) -> Bytes {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let space = if reply.is_empty() { "" } else { " " };
    let head = if headers.is_empty() {
        format!("PUB {subject} {reply}{space}{}\r\n", body.len())
    } else {
        let lines = format!("NATS/1.0\r\n{lines}\r\n");
        format!("HPUB {subject} {reply}{space}{} {}\r\n{lines}", lines.len(), lines.len() + body.len())
    };
    [head.as_bytes(), body, b"\r\n"].concat().into()
}

/// A response that is waited for. It is forgotten with the value.
pub(crate) struct Pending {
    number: u64,
    response: oneshot::Receiver<Response>,
    waiting: Waiting,
    limit: Duration,
}

impl Pending {
    /// Waits for the response.
    ///
    /// # Errors
    /// When no service responds, no response arrives in time, it is too long, or the connection has ended.
    pub(crate) async fn response(mut self) -> Response {
        match tokio::time::timeout(self.limit, &mut self.response).await {
            Ok(Ok(response)) => response,
            Ok(Err(_ended)) => Err(RequestError::Ended),
            Err(_late) => Err(RequestError::Late),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}

impl Driver {
    /// Moves bytes until the connection has ended. Returns why.
    pub(crate) async fn run(self) -> SessionError {
        let Self { mut reader, mut writer, limits, mut frames, pongs, waiting, delivered, unanswered } = self;
        let end = tokio::select! {
            end = receive(&mut reader, &pongs, &waiting, &delivered, &unanswered) => end,
            end = send(&mut writer, &mut frames, &limits, &unanswered) => end,
        };
        // Waiting requests are notified by the end of their channels.
        waiting.lock().clear();
        end
    }
}

async fn receive(
    reader: &mut Reader,
    pongs: &mpsc::Sender<Bytes>,
    waiting: &Waiting,
    delivered: &watch::Sender<u64>,
    unanswered: &AtomicU32,
) -> SessionError {
    loop {
        match protocol::read(reader, INBOX).await {
            Ok(Operation::Ping) => {
                // The writer ends together with this loop.
                let _written_or_ended = pongs.send(Bytes::from_static(b"PONG\r\n")).await;
            }
            Ok(Operation::Pong) => unanswered.store(0, Ordering::Relaxed),
            Ok(Operation::Message(message)) if message.sid == INBOX => respond(waiting, message),
            Ok(Operation::Message(_)) => delivered.send_modify(|count| *count += 1),
            // A request that is refused has no response; its time limit ends it. The server closes the connection after the
            // errors that concern all of it.
            Ok(Operation::Info(_) | Operation::Confirmed | Operation::Refused) => {}
            Err(why) => return why.into(),
        }
    }
}

fn respond(waiting: &Waiting, message: protocol::Message) {
    let number = message.subject.rsplit('.').next().and_then(|number| number.parse().ok());
    let sender = number.and_then(|number: u64| waiting.lock().remove(&number));
    let response = match (message.status, message.content) {
        (Some(NO_RESPONDER), _) => Err(RequestError::NoResponder),
        (_, Some(content)) => Ok(content),
        (_, None) => Err(RequestError::TooLong),
    };
    if let Some(sender) = sender {
        // Its time limit may have passed.
        let _late = sender.send(response);
    }
}

async fn send(
    writer: &mut Writer,
    frames: &mut mpsc::Receiver<Bytes>,
    limits: &Limits,
    unanswered: &AtomicU32,
) -> SessionError {
    let mut pings = tokio::time::interval(limits.pings);
    pings.tick().await;
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            _ = pings.tick() => {
                if unanswered.fetch_add(1, Ordering::Relaxed) >= UNANSWERED {
                    return SessionError::Silent;
                }
                batch.push(Bytes::from_static(b"PING\r\n"));
            }
            // The driver has a sender itself, so the channel does not end.
            _ = frames.recv_many(&mut batch, FRAMES) => {}
        }
        let bytes = std::mem::take(&mut batch).concat();
        let write = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        match tokio::time::timeout(limits.request, write).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return SessionError::Write(why.kind()),
            Err(_stalled) => return SessionError::Stalled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_lengths_of_headers_and_body() {
        assert_eq!(frame("a.b", "", &[], b""), "PUB a.b 0\r\n\r\n");
        assert_eq!(frame("a.b", "inbox.1", &[], b"hello"), "PUB a.b inbox.1 5\r\nhello\r\n");
        assert_eq!(
            frame("a", "r", &[("Id", "log-1"), ("End", "7")], b"hi"),
            "HPUB a r 31 33\r\nNATS/1.0\r\nId: log-1\r\nEnd: 7\r\n\r\nhi\r\n"
        );
    }
}
