//! `GET`, `POST`, `DELETE /api/v1/log-level`: the log filter of the running controller.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::{ErrorCode, Rule};
use super::extract::{CanAdminister, CanRead, JsonBody};
use model::{NewEvent, error_chain};
use telemetry::{LogLevel, LogLevelOrigin, log_level, set_log_level};

/// The maximum length of a filter.
const MAX_FILTER: usize = 512;

/// The log filter in force.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LogLevel")]
pub(super) struct LogLevelView {
    /// The filter in force.
    filter: String,
    /// Whether it was changed while the controller runs.
    changed: bool,
    /// The filter of the setting `LOG_LEVEL`.
    setting: String,
}

/// A change of the log filter. It lasts until it is taken back, until a reload, or until the controller ends.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ChangeLogLevel")]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeLogLevel {
    /// A level, or levels for parts of the program such as `info,engine=debug`.
    #[schemars(length(min = 1, max = 512))]
    filter: String,
}

/// Shows the filter.
pub(super) async fn show(_reader: CanRead) -> Result<Json<LogLevelView>, ApiError> {
    log_level().map_or_else(|| Err(not_initialised()), |level| Ok(Json(view(level))))
}

/// Changes the filter.
pub(super) async fn set(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    body: JsonBody,
) -> Result<Json<LogLevelView>, ApiError> {
    let ChangeLogLevel { filter } = body.read()?;
    if filter.trim().is_empty() || filter.len() > MAX_FILTER {
        let message = format!("a log filter has 1 to {MAX_FILTER} bytes");
        return Err(ApiError::invalid(vec![Detail::new("/filter", Rule::Length, message)]));
    }
    change(&api, &principal.name, Some(&filter)).await
}

/// Returns to the filter of the setting.
pub(super) async fn reset(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
) -> Result<Json<LogLevelView>, ApiError> {
    change(&api, &principal.name, None).await
}

async fn change(api: &Api, by: &str, filter: Option<&str>) -> Result<Json<LogLevelView>, ApiError> {
    let before = log_level().ok_or_else(not_initialised)?;
    let malformed = |error| {
        ApiError::invalid(vec![Detail::new("/filter", Rule::Format, error_chain(&error).to_string())])
    };
    let now = set_log_level(filter).map_err(malformed)?.ok_or_else(not_initialised)?;
    if now != before {
        let message = format!("the log filter was changed from {} to {} by {by}", before.filter, now.filter);
        let event = NewEvent::info("controller.log-level", message)
            .by(by)
            .with(json!({ "from": before.filter, "to": now.filter }));
        api.store().append(None, None, vec![event], api.now()).await?;
    }
    Ok(Json(view(now)))
}

fn view(level: LogLevel) -> LogLevelView {
    let changed = level.origin == LogLevelOrigin::Change;
    LogLevelView { filter: level.filter, changed, setting: level.setting }
}

fn not_initialised() -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        "the log of this process is not the controller's and cannot be changed",
    )
}
