//! One delivery: body, signature, request. A 2xx response is acceptance.
//!
//! ```text
//!  POST URL                                      body: {"delivery_id", "webhook_id", "event": {…}}
//!  X-Shoal-Delivery: WEBHOOK-SEQ                 equal in every attempt
//!  X-Shoal-Event: job.created
//!  X-Shoal-Signature: t=UNIX,v1=HEX              HMAC-SHA256 over "UNIX.BODY" with the webhook's secret
//! ```
//!
//! A receiver recomputes the tag over the received bytes, compares in constant time, refuses a delivery older than a few
//! minutes, and detects a repeated delivery by its id.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use url::Url;

use media::AddressPolicy;
use model::{Event, JsonText, Time, Webhook, WebhookId, error_chain};
use secrets::hmac_sha256;

/// How long one delivery may take, including the response.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest body in bytes; a longer body is sent without `data`.
const MAX_BODY: usize = 256 << 10;
/// How many bytes of a response are read to keep the connection usable.
const MAX_RESPONSE: usize = 16 << 10;
/// The longest stored error, in characters.
const MAX_ERROR: usize = 300;

/// The parts of a request to a receiver.
#[derive(Clone, Copy)]
pub struct WebhookDelivery<'a> {
    /// The URL of the receiver; it may contain a secret.
    pub url: &'a str,
    /// The delivery id, header `X-Shoal-Delivery`.
    pub id: &'a str,
    /// The event type, header `X-Shoal-Event`.
    pub kind: &'a str,
    /// The signature, header `X-Shoal-Signature`.
    pub signature: &'a str,
    /// The signed body.
    pub body: &'a str,
}

/// Sends deliveries to receivers. A parameter of the dispatcher, so that the simulation can replace the network
/// (decision D10).
#[async_trait]
pub trait WebhookTransport: Send + Sync {
    /// Sends a delivery and returns the HTTP status of the response.
    ///
    /// # Errors
    /// When there is no response; the text does not contain the URL.
    async fn send(&self, delivery: WebhookDelivery<'_>) -> Result<u16, String>;
}

/// Sends over HTTP to the addresses that the policy allows. It follows no redirect: a delivery signed for one receiver is not sent
/// to another.
pub(super) struct HttpWebhookTransport {
    client: Client,
    addresses: AddressPolicy,
}

impl HttpWebhookTransport {
    pub(super) fn new(tls: rustls::ClientConfig, addresses: AddressPolicy) -> reqwest::Result<Self> {
        let client = addresses
            .client()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(4)
            .build()?;
        Ok(Self { client, addresses })
    }
}

#[async_trait]
impl WebhookTransport for HttpWebhookTransport {
    async fn send(&self, delivery: WebhookDelivery<'_>) -> Result<u16, String> {
        let lost = |error: reqwest::Error| error_chain(&error.without_url()).to_string();
        let kind = HeaderValue::from_str(delivery.kind).unwrap_or(HeaderValue::from_static("other"));
        let url = Url::parse(delivery.url)
            .map_err(|_| "the stored URL of the receiver cannot be used".to_owned())?;
        self.addresses.check_url(&url).map_err(|refused| refused.to_string())?;
        let request = self
            .client
            .post(url)
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
            if read > MAX_RESPONSE {
                break;
            }
        }
        Ok(status.as_u16())
    }
}

/// The reason why a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeliveryError {
    /// The reason in one sentence, without the URL.
    pub(super) why: String,
    /// The HTTP status of the response; `None` without a response.
    pub(super) status: Option<u16>,
}

/// Signs and sends the deliveries of one webhook.
pub(super) struct WebhookSender<'a> {
    pub(super) transport: &'a dyn WebhookTransport,
    pub(super) webhook: &'a Webhook,
    pub(super) secret: &'a SecretString,
}

impl WebhookSender<'_> {
    /// Sends a body once. The receiver compares `wall` with its own clock.
    pub(super) async fn send(
        &self,
        seq: i64,
        kind: &str,
        body: &str,
        wall: Time,
    ) -> Result<(), DeliveryError> {
        self.send_as(&self.webhook.id.delivery(seq), kind, body, wall).await.map(drop)
    }

    /// Sends a body once under a delivery id, and returns the status with which the receiver accepted it.
    pub(super) async fn send_as(
        &self,
        id: &str,
        kind: &str,
        body: &str,
        wall: Time,
    ) -> Result<u16, DeliveryError> {
        let signature = signature(self.secret, wall.unix_seconds(), body);
        let delivery = WebhookDelivery { url: &self.webhook.url, id, kind, signature: &signature, body };
        match self.transport.send(delivery).await {
            Ok(status @ 200..=299) => Ok(status),
            Ok(status) => {
                let more = if (300..=399).contains(&status) { "; redirects are not followed" } else { "" };
                Err(DeliveryError {
                    why: format!("the receiver responded with {status}{more}"),
                    status: Some(status),
                })
            }
            Err(why) => Err(DeliveryError { why: cut(&why), status: None }),
        }
    }
}

/// The value of `X-Shoal-Signature`.
fn signature(secret: &SecretString, at: i64, body: &str) -> String {
    let tag = hmac_sha256(secret.expose_secret().as_bytes(), format!("{at}.{body}").as_bytes());
    format!("t={at},v1={}", hex::encode(tag))
}

/// The body of an event: equal bytes in every attempt.
pub(super) fn body(webhook: WebhookId, event: &Event) -> String {
    let whole = |event: &Event| {
        let delivery = webhook.delivery(event.seq);
        json!({ "delivery_id": delivery, "webhook_id": webhook, "event": event }).to_string()
    };
    bounded_event(event, MAX_BODY, whole)
}

/// The text of an event; of a text that is too long, the one without `data` and with the start of the message.
pub(crate) fn bounded_event(event: &Event, max: usize, whole: impl Fn(&Event) -> String) -> String {
    let text = whole(event);
    if text.len() <= max {
        return text;
    }
    let data = json!({ "omitted": "too long for a delivery; read the event from the controller" });
    let message = event.message.chars().take(max / 8).collect();
    whole(&Event { data: Some(JsonText::from(&data)), message, ..event.clone() })
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_ERROR).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::EventLevel;

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
    fn a_body_is_bounded_and_deterministic() {
        let id = WebhookId::new();
        let mut event = Event {
            seq: 7,
            time: "2026-11-20T08:00:00Z".parse().unwrap(),
            run: None,
            server: None,
            kind: "job.created".to_owned(),
            level: EventLevel::Info,
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
