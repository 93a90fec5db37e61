//! Outgoing webhooks: who is told of events. What the maintenance OS reports comes in elsewhere.

mod create;
mod dead_letters;
mod delete;
mod list;
mod switch;
mod view;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

pub(super) use create::create;
pub(super) use dead_letters::{dead, retry};
pub(super) use delete::delete;
pub(super) use list::{list, show};
pub(super) use switch::{disable, enable};

use super::Api;
use super::error::ApiError;
use engine::model::{Webhook, WebhookId};

/// A webhook's id out of the path; one that cannot be an id is a webhook that is not there.
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
    ApiError::not_found(
        "unknown_webhook",
        "there is no webhook with this id; `shoal webhook list` shows them",
    )
}

async fn find(api: &Api, id: WebhookId) -> Result<Webhook, ApiError> {
    api.store().webhook(id).await?.ok_or_else(unknown)
}
