//! One line of QMP, the control protocol of QEMU: a greeting, a result, an error or an event. The bytes are foreign.

use serde_json::{Map, Value};

/// The longest line that is read.
pub(crate) const MAX_LINE: usize = 64 * 1024;
/// The longest text of an error that is kept.
const MAX_TEXT: usize = 400;

/// A message of QEMU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// The first message of a connection.
    Greeting,
    /// A command succeeded.
    Result { id: Option<u64> },
    /// A command failed.
    Refused { id: Option<u64>, text: String },
    /// An event happened.
    Event(Event),
}

/// An event of the machine, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The machine ends: QEMU is about to exit.
    Shutdown(ShutdownReason),
    /// Instructions are no longer executed, for example after an error of the processor.
    Stopped,
    /// A medium or disk could not be read or written.
    IoError { device: String },
    /// Any other event.
    Other(String),
}

/// The reason why a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownReason {
    /// The system switched the machine off.
    SystemOff,
    /// The system restarted the machine; `-no-reboot` ends it.
    SystemRestart,
    /// The system crashed.
    Panic,
    /// This program or a signal ended the machine.
    Outside,
}

/// The reason why a line is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoMessage {
    #[error("the line is longer than 64 KiB")]
    TooLong,
    #[error("the line is not a JSON object")]
    NotAnObject,
    #[error("the object is neither a greeting, a result, an error nor an event")]
    Unknown,
}

/// Reads one line, without its end.
pub(crate) fn parse(line: &[u8]) -> Result<Message, NoMessage> {
    if line.len() > MAX_LINE {
        return Err(NoMessage::TooLong);
    }
    let object: Map<String, Value> = serde_json::from_slice(line).map_err(|_| NoMessage::NotAnObject)?;
    let id = object.get("id").and_then(Value::as_u64);
    if let Some(name) = object.get("event").and_then(Value::as_str) {
        return Ok(Message::Event(event(name, object.get("data").unwrap_or(&Value::Null))));
    }
    if let Some(error) = object.get("error") {
        return Ok(Message::Refused { id, text: plain(error["desc"].as_str().unwrap_or_default()) });
    }
    if object.contains_key("return") {
        return Ok(Message::Result { id });
    }
    if object.contains_key("QMP") { Ok(Message::Greeting) } else { Err(NoMessage::Unknown) }
}

fn event(name: &str, data: &Value) -> Event {
    match name {
        "SHUTDOWN" => Event::Shutdown(match data["reason"].as_str().unwrap_or_default() {
            "guest-shutdown" => ShutdownReason::SystemOff,
            "guest-reset" => ShutdownReason::SystemRestart,
            "guest-panic" => ShutdownReason::Panic,
            _ => ShutdownReason::Outside,
        }),
        "STOP" => Event::Stopped,
        "BLOCK_IO_ERROR" => {
            let text = |key: &str| data[key].as_str().unwrap_or_default();
            let device = if text("node-name").is_empty() { text("device") } else { text("node-name") };
            Event::IoError { device: plain(device) }
        }
        _ => Event::Other(plain(name)),
    }
}

/// Text for a person: bounded, without control characters.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &str) -> Result<Message, NoMessage> {
        parse(line.as_bytes())
    }

    #[test]
    fn what_qemu_7_2_sends_is_understood() {
        let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}"#;
        assert_eq!(parsed(greeting), Ok(Message::Greeting));
        assert_eq!(parsed(r#"{"return": {}, "id": 7}"#), Ok(Message::Result { id: Some(7) }));
        assert_eq!(parsed(r#"{"return": {}}"#), Ok(Message::Result { id: None }));
        let refused =
            r#"{"id": 2, "error": {"class": "GenericError", "desc": "Device 'x'\u001b[31m not found"}}"#;
        let text = "Device 'x'[31m not found".to_owned();
        assert_eq!(parsed(refused), Ok(Message::Refused { id: Some(2), text }));
        let event = |name: &str, data: &str| {
            let line = format!(
                r#"{{"timestamp": {{"seconds": 1795445375, "microseconds": 682616}}, "event": "{name}", "data": {data}}}"#
            );
            match parsed(&line).unwrap() {
                Message::Event(event) => event,
                other => panic!("{other:?}"),
            }
        };
        let shutdown =
            |reason: &str| event("SHUTDOWN", &format!(r#"{{"guest": true, "reason": "{reason}"}}"#));
        assert_eq!(shutdown("guest-shutdown"), Event::Shutdown(ShutdownReason::SystemOff));
        assert_eq!(shutdown("guest-reset"), Event::Shutdown(ShutdownReason::SystemRestart));
        assert_eq!(shutdown("guest-panic"), Event::Shutdown(ShutdownReason::Panic));
        assert_eq!(shutdown("host-qmp-quit"), Event::Shutdown(ShutdownReason::Outside));
        let io_error = r#"{"device": "", "node-name": "medium0", "operation": "read", "action": "report"}"#;
        assert_eq!(event("BLOCK_IO_ERROR", io_error), Event::IoError { device: "medium0".to_owned() });
        assert_eq!(event("NIC_RX_FILTER_CHANGED", "{}"), Event::Other("NIC_RX_FILTER_CHANGED".to_owned()));
    }

    #[test]
    fn anything_else_is_no_message() {
        for line in ["", "[]", "1", "{", "\"QMP\"", "{\"QMP\": {}} x"] {
            assert_eq!(parsed(line), Err(NoMessage::NotAnObject), "{line}");
        }
        assert_eq!(parsed(r#"{"x": 1}"#), Err(NoMessage::Unknown));
        assert_eq!(parse(&vec![b' '; MAX_LINE + 1]), Err(NoMessage::TooLong));
        assert_eq!(parse(&b"[".repeat(10_000)), Err(NoMessage::NotAnObject));
    }

    proptest! {
        #[test]
        fn no_line_ends_the_program_and_texts_are_short_and_printable(line in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _any = parse(&line);
        }

        #[test]
        fn every_text_that_is_kept_is_short_and_printable(text in any::<String>(), key in "event|desc|node-name") {
            let line = match &*key {
                "event" => serde_json::json!({ "event": text }),
                "desc" => serde_json::json!({ "error": { "desc": text } }),
                _ => serde_json::json!({ "event": "BLOCK_IO_ERROR", "data": { "node-name": text } }),
            };
            let kept = match parse(line.to_string().as_bytes()).unwrap() {
                Message::Refused { text, .. } | Message::Event(Event::Other(text) | Event::IoError { device: text }) => text,
                other => format!("{other:?}"),
            };
            prop_assert!(kept.chars().count() <= MAX_TEXT && !kept.contains(char::is_control));
        }
    }
}
