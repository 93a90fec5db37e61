//! Parses the error response of a BMC, in every form that BMCs send.
//!
//! ```text
//!   {"error": {"code", "message", "@Message.ExtendedInfo": [ {MessageId, Message, Severity, …} ]}}   as specified
//!   …ExtendedInfo as one object · at top level without "error" · no "code" · only "message" · plain text · HTML
//! ```
//!
//! Decisions use the key: the last dot component of the message id in lower case (`Base.1.8.ResourceInUse` ->
//! `resourceinuse`, `Oem.2.4.SYS518` -> `sys518`). Of several messages the most severe one is used. Text is
//! bounded; paths of URLs, which may contain grants, and the secrets named by the caller are removed.
//! Specification: DSP0266 8.6 (error responses).

use serde_json::{Map, Value};

use crate::json::{self, MAX_TEXT, clip, member, text, texts};

/// Bodies longer than this are not searched for text.
const MAX_ERROR_BODY: usize = 64 * 1024;
const MAX_MESSAGES: usize = 16;

/// One entry of `@Message.ExtendedInfo`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) text: String,
    severity: u8,
    related: Vec<String>,
}

/// A parsed error body; what cannot be parsed is left out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ErrorBody {
    pub(crate) messages: Vec<Message>,
    /// `error.message`, or the text of a body that is not JSON.
    fallback: String,
    code: String,
}

impl ErrorBody {
    pub(crate) fn parse(body: &[u8]) -> Self {
        match json::object(body) {
            Ok(fields) => ErrorBody::from_fields(&fields),
            Err("a web page") => ErrorBody { fallback: "(a web page)".to_owned(), ..ErrorBody::default() },
            Err(_) => {
                let body = &body[..body.len().min(MAX_ERROR_BODY)];
                let fallback = clip(String::from_utf8_lossy(body).trim().trim_matches('"'), MAX_TEXT);
                ErrorBody { fallback, ..ErrorBody::default() }
            }
        }
    }

    pub(crate) fn from_fields(fields: &Map<String, Value>) -> Self {
        let error = member(fields, "error").unwrap_or(fields);
        let info = ["@Message.ExtendedInfo", "@Message.ExtendedInformation", "Messages"]
            .into_iter()
            .find_map(|name| error.get(name).or_else(|| fields.get(name)));
        let messages = match info {
            Some(Value::Array(entries)) => {
                entries.iter().filter_map(Value::as_object).take(MAX_MESSAGES).map(Message::read).collect()
            }
            Some(Value::Object(entry)) => vec![Message::read(entry)],
            _ => Vec::new(),
        };
        let fallback = text(error, "message").or_else(|| text(fields, "error")).unwrap_or_default();
        ErrorBody { messages, fallback, code: text(error, "code").unwrap_or_default() }
    }

    /// The most severe message; the first one when several are equally severe.
    fn main(&self) -> Option<&Message> {
        self.messages
            .iter()
            .filter(|message| !message.id.is_empty())
            .rev()
            .max_by_key(|message| message.severity)
    }

    /// The message id as the BMC sent it, redacted: a BMC may put any text there.
    pub(crate) fn id(&self, secrets: &[&str]) -> Option<String> {
        let id = self.main().map_or(&self.code, |message| &message.id);
        Some(redact(id, secrets)).filter(|id| !id.is_empty())
    }

    /// The message text for operators, redacted.
    pub(crate) fn message_text(&self, secrets: &[&str]) -> String {
        let text = self.main().or(self.messages.first()).map(|message| message.text.as_str());
        redact(text.filter(|text| !text.is_empty()).unwrap_or(&self.fallback), secrets)
    }

    /// Whether any message, or the error code, has one of these keys.
    pub(crate) fn has_key(&self, keys: &[&str]) -> bool {
        let ids = self.messages.iter().map(|message| message.id.as_str()).chain([self.code.as_str()]);
        ids.map(key_of).any(|key| keys.contains(&key.as_str()))
    }

    /// Whether a message names this member of the request, as a word of its text or as a related property.
    pub(crate) fn names(&self, property: &str) -> bool {
        let related = self.messages.iter().flat_map(|message| &message.related);
        let texts = self.messages.iter().map(|message| &message.text).chain([&self.fallback]);
        related.chain(texts).any(|text| has_word(text, property))
    }
}

impl Message {
    fn read(entry: &Map<String, Value>) -> Self {
        let severity = text(entry, "MessageSeverity").or_else(|| text(entry, "Severity")).unwrap_or_default();
        let mut related = texts(entry, "RelatedProperties");
        related.extend(texts(entry, "MessageArgs"));
        Message {
            id: text(entry, "MessageId").or_else(|| text(entry, "MessageID")).unwrap_or_default(),
            text: text(entry, "Message").unwrap_or_default(),
            severity: match severity.to_ascii_lowercase().as_str() {
                "critical" => 3,
                "warning" => 2,
                "ok" => 0,
                _ => 1,
            },
            related,
        }
    }
}

/// The last dot component of a message id in lower case.
fn key_of(id: &str) -> String {
    id.rsplit('.').next().unwrap_or(id).to_ascii_lowercase()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|char: char| !char.is_ascii_alphanumeric()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Removes the given secrets and everything after the authority of each URL.
pub(crate) fn redact(text: &str, secrets: &[&str]) -> String {
    let mut clean = clip(text, MAX_TEXT);
    for secret in secrets.iter().filter(|secret| secret.len() >= 3) {
        clean = clean.replace(secret, "[redacted]");
        // Clipped text may end inside a secret.
        let cut = (3..secret.len()).rev().filter_map(|length| secret.get(..length));
        if let Some(part) = cut.into_iter().find(|part| clean.ends_with(part)) {
            clean.truncate(clean.len() - part.len());
        }
    }
    let mut shown = String::new();
    let mut rest = clean.as_str();
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        shown.push_str(head);
        let end =
            |char: char| char.is_whitespace() || matches!(char, '\'' | '"' | '<' | '>' | ')' | ',' | ';');
        let (url, after) = tail.split_at(tail.find(end).unwrap_or(tail.len()));
        // User information is the part before the last '@' of the authority.
        let authority = url.split('/').next().unwrap_or_default();
        shown.push_str(authority.rsplit('@').next().unwrap_or_default());
        if url.len() > authority.len() {
            shown.push_str("/[redacted]");
        }
        rest = after;
    }
    shown.push_str(rest);
    redact_grants(&shown)
}

/// Removes grants of media paths (`/t<token>/…`, `/f<token>/…`) that a BMC echoed without the rest of the URL: long words of
/// lower-case letters and digits that begin with `t` or `f`.
fn redact_grants(text: &str) -> String {
    let grant = |word: &str| {
        let plain = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        word.len() > 16
            && plain
            && word.starts_with(['t', 'f'])
            && word.bytes().any(|byte| byte.is_ascii_digit())
    };
    let mut shown = String::new();
    for piece in text.split_inclusive(|char: char| !char.is_ascii_alphanumeric()) {
        let word = piece.trim_end_matches(|char: char| !char.is_ascii_alphanumeric());
        shown.push_str(if grant(word) { "[redacted]" } else { word });
        shown.push_str(&piece[word.len()..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> ErrorBody {
        ErrorBody::parse(value.to_string().as_bytes())
    }

    #[test]
    fn the_most_severe_message_is_used() {
        let body = parse(json!({"error": {"code": "Base.1.8.GeneralError", "@Message.ExtendedInfo": [
            {"MessageId": "Base.1.8.Success", "Message": "fine", "Severity": "OK"},
            {"MessageId": "IDRAC.2.4.SYS518", "Message": "not ready", "Severity": "Critical"},
            {"MessageId": "Base.1.8.Other", "Message": "other", "Severity": "Critical"},
        ]}}));
        assert_eq!(body.id(&[]).as_deref(), Some("IDRAC.2.4.SYS518"));
        assert_eq!(body.message_text(&[]), "not ready");
        assert!(body.has_key(&["sys518"]));
        assert!(body.has_key(&["generalerror"]));
    }

    #[test]
    fn the_text_is_found_in_every_known_form() {
        for (body, text) in [
            (
                json!({"error": {"@Message.ExtendedInfo": {"MessageId": "A.B", "Message": "one object"}}}),
                "one object",
            ),
            (json!({"@Message.ExtendedInfo": [{"MessageId": "A.B", "Message": "at top"}]}), "at top"),
            (json!({"error": {"code": "X", "message": "only a message"}}), "only a message"),
            (json!({"error": "just text"}), "just text"),
            (json!({"error": {"@Message.ExtendedInfo": [{"Message": "no id"}]}}), "no id"),
            (json!({"error": {"@Message.ExtendedInfo": 7}}), ""),
            (json!("a JSON string"), "a JSON string"),
        ] {
            assert_eq!(parse(body).message_text(&[]), text);
        }
        assert_eq!(
            ErrorBody::parse(b"Empty or malformed patch").message_text(&[]),
            "Empty or malformed patch"
        );
        assert_eq!(ErrorBody::parse(b"<html>").message_text(&[]), "(a web page)");
        assert_eq!(ErrorBody::parse(b"").message_text(&[]), "");
    }

    #[test]
    fn a_named_member_is_found_in_text_arguments_and_related_properties() {
        let body = parse(json!({"error": {"@Message.ExtendedInfo": [
            {"MessageId": "Base.1.8.ActionParameterMissing", "RelatedProperties": ["#/TransferProtocolType"]},
            {"Message": "The parameter 'Inserted' is unknown"},
        ]}}));
        assert!(body.names("TransferProtocolType"));
        assert!(body.names("Inserted"));
        assert!(!body.names("Insert"));
        assert!(!body.names("WriteProtected"));
    }

    #[test]
    fn secrets_and_url_paths_are_removed() {
        let text =
            "cannot get 'http://u:p@10.0.0.1:80/tabcdef/boot.iso' with hunter2 (tabcdefghijklmnop0/task.iso)";
        let shown = redact(text, &["hunter2"]);
        assert_eq!(shown, "cannot get 'http://10.0.0.1:80/[redacted]' with [redacted] ([redacted]/task.iso)");
        assert_eq!(redact("/tabcdefghijklmnop0/task.iso", &[]), "/[redacted]/task.iso");
    }
}
