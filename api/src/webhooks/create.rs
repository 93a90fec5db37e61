//! `POST /api/v1/webhooks`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanAdminister, JsonBody};
use super::super::request_audit;
use super::view::WebhookView;
use media::AddressPolicy;
use model::{NewEvent, Webhook, WebhookFilter, WebhookId, selects_an_event};
use store::WebhookCounts;

/// The maximum of webhooks of a controller; each has its own dispatcher task.
const MAX_WEBHOOKS: u32 = 32;
const MAX_URL: usize = 2048;
/// The allowed length of a secret in bytes; a short secret makes the signature worthless.
const SECRET: std::ops::RangeInclusive<usize> = 16..=1024;
const MAX_TYPES: usize = 64;
const MAX_LABELS: usize = 16;
const MAX_TEXT: usize = 128;

/// A webhook to create.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WebhookRequest")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The URL of the receiver: `http` or `https`, without user and fragment.
    #[schemars(with = "String", length(max = MAX_URL))]
    url: SecretString,
    /// The key of the signature.
    #[schemars(with = "String", length(min = 16, max = 1024))]
    secret: SecretString,
    /// The event types to send, such as `job.created` or `report.*`; empty means all.
    #[serde(default)]
    #[schemars(length(max = MAX_TYPES))]
    types: Vec<String>,
    /// The labels that the job of an event must have.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_LABELS))]
    labels: BTreeMap<String, String>,
}

/// Creates a webhook; it receives every later event.
pub(crate) async fn create(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    body: JsonBody,
) -> Result<(StatusCode, Json<WebhookView>), ApiError> {
    let request: Request = body.read()?;
    let url = check(&request, &api.addresses)?;
    let now = api.now();
    let id = WebhookId(api.engine.id_source().new_id(now));
    let sealed = api
        .resolver
        .seal(&id.secret_context(), &request.secret)
        .map_err(|why| ApiError::invalid(vec![Detail::new("/secret", Rule::Length, why.to_string())]))?;
    let webhook = Webhook {
        id,
        url,
        secret: sealed.to_string(),
        filter: WebhookFilter { types: request.types, labels: request.labels },
        created_by: principal.name.clone(),
        created_at: now,
        disabled: None,
        cursor: 0,
        delivered: 0,
        failing_since: None,
        last_error: None,
    };
    request_audit::target("webhook", &id.to_string());
    let event =
        NewEvent::info("webhook.created", format!("webhook {id} sends events to {}", webhook.origin()))
            .by(&principal.name)
            .with(json!({ "webhook_id": id }));
    if !api.store().create_webhook(webhook.clone(), MAX_WEBHOOKS, event).await? {
        return Err(ApiError::new(
            ErrorCode::ConflictWebhooks,
            format!("the maximum of {MAX_WEBHOOKS} webhooks exists; remove one with `shoal webhook remove`"),
        ));
    }
    Ok((StatusCode::CREATED, Json(WebhookView::of(&webhook, WebhookCounts::default()))))
}

/// All problems of the request, or the normalized URL.
fn check(request: &Request, addresses: &AddressPolicy) -> Result<String, ApiError> {
    let mut problems = Vec::new();
    let url = checked_url(request.url.expose_secret(), addresses);
    if let Err(why) = &url {
        problems.push(Detail::new("/url", Rule::Format, why.clone()));
    }
    if !SECRET.contains(&request.secret.expose_secret().len()) {
        let (least, most) = SECRET.into_inner();
        problems.push(Detail::new("/secret", Rule::Length, format!("a secret has {least} to {most} bytes")));
    }
    let text = |text: &str| (1..=MAX_TEXT).contains(&text.len());
    let known = |kind: &String| {
        text(kind) && kind.trim_end_matches('*').bytes().all(|b| b.is_ascii_graphic() && b != b'*')
    };
    if request.types.len() > MAX_TYPES || !request.types.iter().all(known) {
        let what = format!("at most {MAX_TYPES} event types, such as \"job.created\" or \"report.*\"");
        problems.push(Detail::new("/types", Rule::Format, what));
    } else if let Some(unknown) = request.types.iter().find(|kind| !selects_an_event(kind)) {
        let what = format!("no event has the type {unknown}; docs/events.md lists the types");
        problems.push(Detail::new("/types", Rule::Unknown, what));
    }
    if request.labels.len() > MAX_LABELS
        || !request.labels.iter().all(|(key, value)| text(key) && text(value))
    {
        let what = format!("at most {MAX_LABELS} labels of at most {MAX_TEXT} bytes");
        problems.push(Detail::new("/labels", Rule::Labels, what));
    }
    match url {
        Ok(url) if problems.is_empty() => Ok(url),
        _ => Err(ApiError::invalid(problems)),
    }
}

/// Checks and normalizes a URL. The error text does not contain it, because a URL may contain a secret.
fn checked_url(text: &str, addresses: &AddressPolicy) -> Result<String, String> {
    let refused = |why: &str| Err(why.to_owned());
    if text.len() > MAX_URL {
        return refused("a URL has at most 2048 bytes");
    }
    let Ok(url) = Url::parse(text) else {
        return refused("not a URL: give http(s)://HOST[:PORT]/PATH");
    };
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return refused("not an HTTP URL: give http(s)://HOST[:PORT]/PATH");
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return refused("the URL must not contain user, password or fragment: deliveries are signed");
    }
    addresses.check_url(&url).map_err(|why| why.to_string())?;
    Ok(url.to_string())
}
