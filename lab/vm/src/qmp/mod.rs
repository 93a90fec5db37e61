//! The client of QMP, the control protocol of QEMU: one command at a time, over any stream.
//!
//! ```text
//!   open ─ greeting ─ qmp_capabilities ─► execute(command) ─► result or error; events in between are kept
//!                                         next_event()     ─► the oldest kept event, or the next one
//! ```
//!
//! Invariants: a line is at most 64 KiB, at most [`MAX_EVENTS`] events are kept (the oldest are lost), and a command
//! has [`TIME_LIMIT`].

mod message;

use std::{collections::VecDeque, io, time::Duration};

use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) use self::message::{Event, ShutdownReason};
use self::message::{MAX_LINE, Message, NoMessage};

/// The time in which QEMU must carry out a command.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Events that are kept while a command is carried out.
const MAX_EVENTS: usize = 256;

/// A command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QmpError {
    /// The connection is over: QEMU has ended.
    #[error("QEMU closed its control socket")]
    Closed,
    /// The connection failed.
    #[error("the control socket of QEMU failed")]
    Io(#[from] io::Error),
    /// QEMU sent something else than QMP.
    #[error("QEMU sent no valid message")]
    Message(#[from] NoMessage),
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {text}")]
    Refused {
        /// The command.
        command: &'static str,
        /// The reason.
        text: String,
    },
    /// QEMU sent no result in time.
    #[error("QEMU did not carry out {command} within {} s", TIME_LIMIT.as_secs())]
    TimeOut {
        /// The command.
        command: &'static str,
    },
}

/// A connection to QEMU.
#[derive(Debug)]
pub(crate) struct Qmp<S> {
    stream: S,
    /// Bytes of lines that are not read yet.
    read: BytesMut,
    events: VecDeque<Event>,
    last_id: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Qmp<S> {
    /// Reads the greeting and leaves the negotiation, after which QEMU takes commands.
    pub(crate) async fn open(stream: S) -> Result<Self, QmpError> {
        let mut qmp = Self { stream, read: BytesMut::new(), events: VecDeque::new(), last_id: 0 };
        let greeting = tokio::time::timeout(TIME_LIMIT, qmp.next_message());
        match greeting.await.map_err(|_| QmpError::TimeOut { command: "the greeting" })?? {
            Message::Greeting => {}
            _ => return Err(NoMessage::Unknown.into()),
        }
        qmp.execute("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Carries out a command. After an error other than [`QmpError::Refused`] the connection is not usable.
    pub(crate) async fn execute(&mut self, command: &'static str, arguments: Value) -> Result<(), QmpError> {
        let exchange = tokio::time::timeout(TIME_LIMIT, self.exchange(command, arguments));
        exchange.await.unwrap_or(Err(QmpError::TimeOut { command }))
    }

    async fn exchange(&mut self, command: &'static str, arguments: Value) -> Result<(), QmpError> {
        self.last_id += 1;
        let wanted = Some(self.last_id);
        let mut line = json!({ "execute": command, "arguments": arguments, "id": self.last_id })
            .to_string()
            .into_bytes();
        line.push(b'\n');
        self.stream.write_all(&line).await?;
        self.stream.flush().await?;
        loop {
            match self.next_message().await? {
                Message::Result { id } if id == wanted => return Ok(()),
                Message::Refused { id, text } if id == wanted => {
                    return Err(QmpError::Refused { command, text });
                }
                Message::Event(event) => self.keep(event),
                // Not for this command.
                Message::Greeting | Message::Result { .. } | Message::Refused { .. } => {}
            }
        }
    }

    /// The next event. Dropping the future loses none.
    pub(crate) async fn next_event(&mut self) -> Result<Event, QmpError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if let Message::Event(event) = self.next_message().await? {
                return Ok(event);
            }
        }
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Reads until a line is complete. Dropping the future loses no byte.
    async fn next_message(&mut self) -> Result<Message, QmpError> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line = self.read.split_to(end);
                self.read.advance(1);
                return Ok(message::parse(&line)?);
            }
            if self.read.len() > MAX_LINE {
                return Err(NoMessage::TooLong.into());
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(QmpError::Closed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";

    /// QEMU's side: sends `pieces`, one after each line that it receives; the first one at once.
    fn qemu(mut stream: DuplexStream, pieces: Vec<String>) -> tokio::task::JoinHandle<String> {
        tokio::spawn(async move {
            let mut received = String::new();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).await.unwrap_or(0) == 1 {
                    received.push(char::from(byte[0]));
                    if byte[0] == b'\n' {
                        break;
                    }
                }
            }
            received
        })
    }

    fn pieces(list: &[&str]) -> Vec<String> {
        list.iter().map(|&piece| piece.to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn events_before_a_result_are_kept_and_foreign_results_are_skipped() {
        let (ours, theirs) = duplex(1 << 16);
        let qemu = qemu(
            theirs,
            pieces(&[
                GREETING,
                "{\"return\": {}, \"id\": 1}\r\n",
                "{\"event\": \"STOP\"}\n{\"return\": {}, \"id\": 99}\n{\"return\": {}}\n{\"return\": {}, \"id\": 2}\n",
            ]),
        );
        let mut qmp = Qmp::open(ours).await.unwrap();
        qmp.execute("system_powerdown", json!({})).await.unwrap();
        assert_eq!(qmp.next_event().await.unwrap(), Event::Stopped);
        drop(qmp);
        let received = qemu.await.unwrap();
        assert!(
            received.contains("\"execute\":\"system_powerdown\"") && received.contains("\"id\":2"),
            "{received}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_names_the_command_and_leaves_the_connection_usable() {
        let (ours, theirs) = duplex(1 << 16);
        let refused = "{\"id\": 2, \"error\": {\"class\": \"GenericError\", \"desc\": \"no tray\"}}\n";
        let _qemu = qemu(
            theirs,
            pieces(&[GREETING, "{\"return\": {}, \"id\": 1}\n", refused, "{\"return\": {}, \"id\": 3}\n"]),
        );
        let mut qmp = Qmp::open(ours).await.unwrap();
        let error = qmp.execute("eject", json!({})).await.unwrap_err();
        assert_eq!(error.to_string(), "QEMU refused eject: no tray");
        qmp.execute("cont", json!({})).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_after_the_time_limit_and_a_closed_socket_at_once() {
        let (ours, theirs) = duplex(1 << 16);
        let error = Qmp::open(ours).await.unwrap_err();
        assert!(matches!(error, QmpError::TimeOut { .. }), "{error}");
        drop(theirs);
        let (ours, theirs) = duplex(1 << 16);
        drop(theirs);
        assert!(matches!(Qmp::open(ours).await.unwrap_err(), QmpError::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_without_end_is_not_collected() {
        let (ours, mut theirs) = duplex(1 << 16);
        let sender = tokio::spawn(async move {
            let mut sent = 0_usize;
            while theirs.write_all(&[b'{'; 4096]).await.is_ok() {
                sent += 4096;
            }
            sent
        });
        let error = Qmp::open(ours).await.unwrap_err();
        assert!(matches!(error, QmpError::Message(NoMessage::TooLong)), "{error}");
        assert!(sender.await.unwrap() <= 4 * MAX_LINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_events_before_a_result_keeps_the_newest() {
        let (ours, theirs) = duplex(1 << 20);
        let mut flood: String = (0..1000).map(|number| format!("{{\"event\": \"E{number}\"}}\n")).collect();
        flood.push_str("{\"return\": {}, \"id\": 2}\n");
        let _qemu =
            qemu(theirs, vec![GREETING.to_owned(), "{\"return\": {}, \"id\": 1}\n".to_owned(), flood]);
        let mut qmp = Qmp::open(ours).await.unwrap();
        qmp.execute("cont", json!({})).await.unwrap();
        assert_eq!(qmp.events.len(), MAX_EVENTS);
        assert_eq!(qmp.next_event().await.unwrap(), Event::Other("E744".to_owned()));
    }
}
