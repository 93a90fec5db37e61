//! Outgoing webhooks: HTTP subscriptions to events. Installation reports are received by `api/report.rs`.

pub(super) mod create;
pub(super) mod dead_letters;
mod delete;
mod list;
pub(super) mod switch;
pub(super) mod test;
pub(super) mod view;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

pub(super) use create::create;
pub(super) use dead_letters::{list_dead_letters, redeliver};
pub(super) use delete::delete;
pub(super) use list::{list, show};
pub(super) use switch::{disable, enable};
pub(super) use test::test;
pub use test::{TestDelivery, WebhookTester};

use super::Api;
use super::error::ApiError;
use super::error_code::ErrorCode;
use model::{Webhook, WebhookId};

/// The webhook id in the path; a malformed id is an unknown webhook.
pub(super) struct WebhookPath(WebhookId);

impl FromRequestParts<Api> for WebhookPath {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text =
            Path::<String>::from_request_parts(parts, api).await.map(|Path(text)| text).unwrap_or_default();
        text.parse().map(Self).map_err(|_| unknown())
    }
}

fn unknown() -> ApiError {
    ApiError::new(
        ErrorCode::UnknownWebhook,
        "no webhook has this id; `shoal webhook list` shows the webhooks",
    )
}

async fn find(api: &Api, id: WebhookId) -> Result<Webhook, ApiError> {
    api.store().webhook(id).await?.ok_or_else(unknown)
}
