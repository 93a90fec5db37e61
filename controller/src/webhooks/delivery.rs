//! One delivery: the body, its signature, the request and what counts as taken.
//!
//! ```text
//!  POST URL                                      body: {"delivery_id", "webhook_id", "event": {…}}
//!  X-Shoal-Delivery: WEBHOOK-SEQ                 the same in every try
//!  X-Shoal-Event: job.created
//!  X-Shoal-Signature: t=UNIX,v1=HEX              HMAC-SHA256 over "UNIX.BODY" with the webhook's secret
//! ```
//!
//! A receiver recomputes the tag over the bytes it got, compares in constant time, refuses what is older than a few
//! minutes, and knows a repeated delivery by its id.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use engine::model::{Event, JsonText, Time, Webhook, WebhookId, error_chain};
use secrets::hmac_sha256;

/// How long one delivery may take, answer included.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest body; of a longer one the facts for machines are left out.
const MAX_BODY: usize = 256 << 10;
/// How much of an answer is read, to keep its connection.
const MAX_ANSWER: usize = 16 << 10;
/// The longest error that is written down.
const MAX_ERROR: usize = 300;

/// A delivery as it goes out.
#[derive(Clone, Copy)]
pub struct Delivery<'a> {
    /// Where to; worth a secret.
    pub url: &'a str,
    /// `X-Shoal-Delivery`.
    pub id: &'a str,
    /// `X-Shoal-Event`.
    pub kind: &'a str,
    /// `X-Shoal-Signature`.
    pub signature: &'a str,
    /// The body that is signed.
    pub body: &'a str,
}

/// Takes deliveries to their receivers. Passed in, so that a simulation can be the network (lock L10).
#[async_trait]
pub trait Carrier: Send + Sync {
    /// The status of the answer; or why there is none, without the URL.
    ///
    /// # Errors
    /// When nobody answered.
    async fn carry(&self, delivery: Delivery<'_>) -> Result<u16, String>;
}

/// Carries over HTTP. It follows no redirect: what is signed for one place is not sent to another.
pub(super) struct HttpWebhookTransport(Client);

impl HttpWebhookTransport {
    pub(super) fn new(tls: rustls::ClientConfig) -> reqwest::Result<Self> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(4)
            .build()?;
        Ok(Self(client))
    }
}

#[async_trait]
impl Carrier for HttpWebhookTransport {
    async fn carry(&self, delivery: Delivery<'_>) -> Result<u16, String> {
        let lost = |error: reqwest::Error| error_chain(&error.without_url()).to_string();
        let kind = HeaderValue::from_str(delivery.kind).unwrap_or(HeaderValue::from_static("other"));
        let request = self
            .0
            .post(delivery.url)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("shoal/", env!("CARGO_PKG_VERSION")))
            .header("X-Shoal-Delivery", delivery.id)
            .header("X-Shoal-Event", kind)
            .header("X-Shoal-Signature", delivery.signature)
            .body(delivery.body.to_owned());
        let mut response = request.send().await.map_err(lost)?;
        let status = response.status();
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > MAX_ANSWER {
                break;
            }
        }
        Ok(status.as_u16())
    }
}

/// Why a delivery was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// One sentence, without the URL.
    pub(super) why: String,
    /// Whether anybody answered.
    pub(super) answered: bool,
}

/// A webhook with its secret opened.
pub(super) struct Post<'a> {
    pub(super) carrier: &'a dyn Carrier,
    pub(super) webhook: &'a Webhook,
    pub(super) secret: &'a SecretString,
}

impl Post<'_> {
    /// Sends a body once.
    pub(super) async fn send(&self, seq: i64, kind: &str, body: &str, now: Time) -> Result<(), Refused> {
        let id = self.webhook.id.delivery(seq);
        let signature = signature(self.secret, now.unix_seconds(), body);
        let delivery = Delivery { url: &self.webhook.url, id: &id, kind, signature: &signature, body };
        match self.carrier.carry(delivery).await {
            Ok(200..=299) => Ok(()),
            Ok(status) => {
                let more = if (300..=399).contains(&status) { "; redirects are not followed" } else { "" };
                Err(Refused { why: format!("it answered {status}{more}"), answered: true })
            }
            Err(why) => Err(Refused { why: cut(&why), answered: false }),
        }
    }
}

/// The value of `X-Shoal-Signature`.
fn signature(secret: &SecretString, at: i64, body: &str) -> String {
    let tag = hmac_sha256(secret.expose_secret().as_bytes(), format!("{at}.{body}").as_bytes());
    format!("t={at},v1={}", hex::encode(tag))
}

/// What is posted of an event: the same bytes in every try.
pub(super) fn body(webhook: WebhookId, event: &Event) -> String {
    let whole = |event: &Event| {
        let delivery = webhook.delivery(event.seq);
        json!({ "delivery_id": delivery, "webhook_id": webhook, "event": event }).to_string()
    };
    let text = whole(event);
    if text.len() <= MAX_BODY {
        return text;
    }
    let data = json!({ "omitted": "too long for a delivery; ask the controller" });
    let message = event.message.chars().take(MAX_BODY / 8).collect();
    whole(&Event { data: Some(JsonText::from(&data)), message, ..event.clone() })
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_ERROR).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::model::Level;

    #[test]
    fn the_signature_is_the_documented_one() {
        // Computed with: printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let secret = SecretString::from("0123456789abcdef");
        assert_eq!(
            signature(&secret, 1_700_000_000, r#"{"a":1}"#),
            "t=1700000000,v1=9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23"
        );
    }

    #[test]
    fn a_body_is_bounded_and_the_same_every_time() {
        let id = WebhookId::new();
        let mut event = Event {
            seq: 7,
            time: "2026-11-20T08:00:00Z".parse().unwrap(),
            run: None,
            server: None,
            kind: "job.created".to_owned(),
            level: Level::Info,
            step: None,
            attempt: None,
            actor: "engine".to_owned(),
            message: "short".to_owned(),
            data: Some(JsonText::from(&json!({ "a": 1 }))),
        };
        assert_eq!(body(id, &event), body(id, &event));
        assert!(body(id, &event).contains(r#""a":1"#));
        event.data = Some(JsonText::from(&json!({ "long": "x".repeat(MAX_BODY) })));
        event.message = "y".repeat(MAX_BODY * 2);
        let bounded = body(id, &event);
        assert!(bounded.len() <= MAX_BODY && bounded.contains("omitted"), "{}", bounded.len());
    }
}
