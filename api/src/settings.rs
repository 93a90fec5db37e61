//! `GET /api/v1/settings`: the settings of the start, where each comes from, without secrets.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::extract::CanAdminister;

/// The settings of the controller.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SettingPage")]
pub(super) struct SettingsView {
    settings: Vec<SettingView>,
    /// Always null: all settings are in one page.
    next: Option<String>,
}

/// A setting.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Setting")]
struct SettingView {
    /// The name, which is that of the environment variable.
    name: &'static str,
    /// The value as `shoal config show` prints it; a secret is not shown.
    value: String,
    /// Where the value comes from.
    origin: String,
}

/// Shows the settings.
pub(super) async fn show(State(api): State<Api>, _admin: CanAdminister) -> Json<SettingsView> {
    let settings = api.configuration.iter().map(|shown| SettingView {
        name: shown.name,
        value: shown.value.clone(),
        origin: shown.origin.to_string(),
    });
    Json(SettingsView { settings: settings.collect(), next: None })
}
