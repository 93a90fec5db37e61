//! `POST /api/v1/firmware`: describes a blob that was pushed, so that it becomes a firmware file.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody};
use super::super::openapi::types;
use super::super::request_audit;
use super::view::FirmwareView;
use super::{files, invalid};
use crate::firmware_files::Added;
use firmware::{FirmwareFile, InvalidIdentity, Model, Restart};
use model::NewEvent;

/// A firmware file to add. Its bytes were pushed to the repository `firmware/VENDOR/COMPONENT` of the registry.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFirmware {
    /// The vendor that made the file.
    vendor: String,
    /// The models that the file is for.
    #[schemars(length(min = 1, max = 500))]
    models: Vec<String>,
    #[schemars(with = "types::FirmwareComponent")]
    component: String,
    /// The version that is installed afterwards.
    version: String,
    /// The name of the file.
    filename: String,
    #[schemars(with = "types::Sha256")]
    sha256: String,
    /// The length in bytes.
    #[schemars(range(min = 1))]
    size: u64,
    /// Whether the host must restart; without it what the component usually needs.
    #[serde(default)]
    #[schemars(with = "Option<types::FirmwareRestart>")]
    restart: Option<String>,
}

impl NewFirmware {
    /// The file, or all problems of the request.
    fn checked(&self) -> Result<FirmwareFile, Vec<Detail>> {
        let mut problems = Vec::new();
        let vendor = keep(&mut problems, "/vendor", self.vendor.parse());
        let component = keep(&mut problems, "/component", self.component.parse());
        let filename = keep(&mut problems, "/filename", self.filename.parse());
        let sha256 = keep(&mut problems, "/sha256", self.sha256.parse());
        let restart =
            self.restart.as_ref().map(|text| keep(&mut problems, "/restart", text.parse::<Restart>()));
        let mut models: BTreeSet<Model> = BTreeSet::new();
        for (index, text) in self.models.iter().enumerate() {
            models.extend(keep(&mut problems, &format!("/models/{index}"), text.parse()));
        }
        let (Some(vendor), Some(component), Some(filename), Some(sha256)) =
            (vendor, component, filename, sha256)
        else {
            return Err(problems);
        };
        let made =
            FirmwareFile::new((vendor, models, component), &self.version, (filename, sha256, self.size));
        match keep(&mut problems, "", made) {
            Some(mut file) if problems.is_empty() => {
                file.restart = restart.flatten().unwrap_or(file.restart);
                Ok(file)
            }
            _ => Err(problems),
        }
    }
}

fn keep<T>(problems: &mut Vec<Detail>, place: &str, value: Result<T, InvalidIdentity>) -> Option<T> {
    value.map_err(|why| problems.push(invalid(place, &why))).ok()
}

/// Adds a firmware file: 201, or 200 when the same file is there.
pub(crate) async fn add(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    body: JsonBody,
) -> Result<(StatusCode, Json<FirmwareView>), ApiError> {
    let request: NewFirmware = body.read()?;
    let file = request.checked().map_err(ApiError::invalid)?;
    let described = file.to_string();
    match files(&api)?.add(file).await? {
        Added::Same(stored) => {
            request_audit::changes_nothing();
            Ok((StatusCode::OK, Json(FirmwareView::of(&stored))))
        }
        Added::Duplicate(stored) => Err(ApiError::new(
            ErrorCode::ConflictFirmware,
            format!(
                "{described} is there already as {} with the digest {}; remove that one first, or add this one for other models",
                stored.file, stored.digest
            ),
        )
        .detail(Detail::new("/sha256", Rule::Value, stored.digest.to_string()))),
        Added::New(stored) => {
            request_audit::target("firmware", &stored.digest.to_string());
            let event = NewEvent::info("firmware.added", format!("firmware {} was added", stored.file))
                .by(&principal.name)
                .with(json!({ "digest": stored.digest.to_string(), "repository": stored.repository.as_str() }));
            api.store().append(None, None, vec![event], api.now()).await?;
            Ok((StatusCode::CREATED, Json(FirmwareView::of(&stored))))
        }
    }
}
