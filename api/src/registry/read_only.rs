//! `POST` and `DELETE /api/v1/registry/read-only`: the switch that stops pushes and deletes.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanAdminister, OptionalJsonBody};
use super::super::jobs::reason;
use super::{RegistryStatus, registry_admin};

/// Makes the registry read-only; clients receive the reason with a refused push.
pub(crate) async fn begin(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Json<RegistryStatus>, ApiError> {
    let admin = registry_admin(&api)?;
    let reason = reason(&body)?;
    if reason.trim().is_empty() {
        let message = "give a reason: a client receives it with a refused push";
        return Err(ApiError::invalid(vec![Detail::new("/reason", Rule::Required, message)]));
    }
    admin.set_read_only(Some(reason), &principal.name).await?;
    Ok(Json(admin.status().await?))
}

/// Ends the read-only state.
pub(crate) async fn end(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
) -> Result<Json<RegistryStatus>, ApiError> {
    let admin = registry_admin(&api)?;
    admin.set_read_only(None, &principal.name).await?;
    Ok(Json(admin.status().await?))
}
