//! Users, API tokens, and the caller's own login.

pub(super) mod me;
pub(super) mod tokens;
pub(super) mod users;
pub(super) mod worker_tokens;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::Api;
use access::accounts::Accounts;

/// The name in the path.
pub(super) struct NamePath(String);

impl FromRequestParts<Api> for NamePath {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Self::Rejection> {
        // A name that is not UTF-8 is empty text, which names nothing.
        let text = Path::<String>::from_request_parts(parts, api).await;
        Ok(Self(text.map(|Path(text)| text).unwrap_or_default()))
    }
}

fn accounts(api: &Api) -> Accounts<'_> {
    Accounts::online(api.store(), api.auth.logins())
}
