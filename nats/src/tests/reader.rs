//! Reads a stream of a NATS server, with nothing of the crate: what it finds is what the server has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// A message of a stream.
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

/// All messages of a stream, in its order; none when there is no stream.
pub(crate) async fn messages(port: u16, stream: &str) -> Vec<Message> {
    let connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut connection = BufReader::new(connection);
    connection
        .write_all(b"CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB responses 1\r\n")
        .await
        .unwrap();
    let info = request(&mut connection, &format!("$JS.API.STREAM.INFO.{stream}"), "").await;
    let mut messages = Vec::new();
    for sequence in 1..=info["state"]["last_seq"].as_u64().unwrap_or(0) {
        let body = json!({ "seq": sequence }).to_string();
        let found = request(&mut connection, &format!("$JS.API.STREAM.MSG.GET.{stream}"), &body).await;
        let bytes =
            |name: &str| STANDARD.decode(found["message"][name].as_str().unwrap_or_default()).unwrap();
        messages.push(Message {
            subject: found["message"]["subject"].as_str().unwrap().to_owned(),
            headers: String::from_utf8(bytes("hdrs")).unwrap(),
            body: bytes("data"),
        });
    }
    messages
}

async fn request(connection: &mut BufReader<TcpStream>, subject: &str, body: &str) -> Value {
    let frame = format!("PUB {subject} responses {}\r\n{body}\r\n", body.len());
    connection.write_all(frame.as_bytes()).await.unwrap();
    loop {
        let mut line = String::new();
        assert!(connection.read_line(&mut line).await.unwrap() > 0, "the server closed the connection");
        if line.starts_with("PING") {
            connection.write_all(b"PONG\r\n").await.unwrap();
        }
        if line.starts_with("MSG") {
            let length: usize = line.split_whitespace().last().unwrap().parse().unwrap();
            let mut response = vec![0; length + 2];
            connection.read_exact(&mut response).await.unwrap();
            return serde_json::from_slice(&response[..length]).unwrap();
        }
    }
}
