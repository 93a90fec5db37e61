//! `POST /api/v1/firmware-sets`.

use std::collections::BTreeMap;

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
use super::super::request_audit;
use super::view::FirmwareSetView;
use super::{files, invalid};
use crate::firmware_files::StoredFirmware;
use firmware::{Entry, FirmwareSet, MAX_FILES, SetError, SetName};
use model::{NewEvent, error_chain};
use store::{CreatedFirmwareSet, StoredFirmwareFile, StoredFirmwareSet};

/// The maximum of sets of a controller.
const MAX_SETS: u32 = 1000;

/// A firmware set to create.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFirmwareSet {
    /// The name, by which the set is used.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    /// Labels. `vendor` and `model` say for which servers the set is.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// The digests of the files, as `GET /api/v1/firmware` shows them.
    #[schemars(length(min = 1, max = MAX_FILES))]
    files: Vec<String>,
}

/// Creates a set, which holds its files.
pub(crate) async fn create(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    body: JsonBody,
) -> Result<(StatusCode, Json<FirmwareSetView>), ApiError> {
    let request: NewFirmwareSet = body.read()?;
    let name: SetName =
        request.name.parse().map_err(|why| ApiError::invalid(vec![invalid("/name", &why)]))?;
    request_audit::target("firmware-set", name.as_str());
    let found = chosen(&api, &request.files).await?;
    let entries = found.iter().map(|stored| Entry {
        repository: stored.repository.to_string(),
        digest: stored.digest.to_string(),
        file: stored.file.clone(),
    });
    let set = FirmwareSet::new(name, request.labels.clone(), entries.collect()).map_err(refused)?;
    let now = api.now();
    let row = StoredFirmwareSet {
        name: set.name().to_string(),
        id: api.engine.id_source().new_id(now).to_string(),
        labels: request.labels,
        created_by: principal.name.clone(),
        created_at: now,
        files: found.iter().map(row_of).collect(),
    };
    let message = format!("the firmware set {} with {} files was created", row.name, row.files.len());
    let event = NewEvent::info("firmware-set.created", message)
        .by(&principal.name)
        .with(json!({ "name": row.name, "id": row.id }));
    // The row follows the pins: a set whose files could be collected must not exist.
    files(&api)?.hold_for_set(&row).await?;
    let created = api.store().create_firmware_set(row.clone(), MAX_SETS, event).await;
    if !matches!(created, Ok(CreatedFirmwareSet::New))
        && let Err(error) = files(&api)?.release_set(&row.id).await
    {
        tracing::warn!(error = %error_chain(&error), "a hold of a firmware set was not ended; the next start ends it");
    }
    let conflict = |message: String| Err(ApiError::new(ErrorCode::ConflictFirmwareSet, message));
    match created? {
        CreatedFirmwareSet::New => Ok((StatusCode::CREATED, Json(FirmwareSetView::of(&row, &set)))),
        CreatedFirmwareSet::NameTaken => conflict(format!(
            "a firmware set {} exists; choose another name, or delete it with `shoal firmware set delete`",
            row.name
        )),
        CreatedFirmwareSet::Full => {
            conflict(format!("the maximum of {MAX_SETS} firmware sets exists; delete one first"))
        }
    }
}

/// The files with these digests; every unknown one is named.
async fn chosen(api: &Api, digests: &[String]) -> Result<Vec<StoredFirmware>, ApiError> {
    if digests.len() > MAX_FILES {
        let why = format!("a set has at most {MAX_FILES} files");
        return Err(ApiError::invalid(vec![Detail::new("/files", Rule::Length, why)]));
    }
    let mut all: BTreeMap<String, StoredFirmware> = BTreeMap::new();
    for stored in files(api)?.list().await?.files {
        all.entry(stored.digest.to_string()).or_insert(stored);
    }
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (index, digest) in digests.iter().enumerate() {
        match all.remove(digest) {
            Some(stored) => found.push(stored),
            None => wrong.push(Detail::new(
                &format!("/files/{index}"),
                Rule::Value,
                "no firmware file has this digest, or it is listed twice; `shoal firmware list` shows the files",
            )),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(ApiError::invalid(wrong)) }
}

fn row_of(stored: &StoredFirmware) -> StoredFirmwareFile {
    let of = |model: &firmware::Model| {
        [stored.file.component.to_string(), stored.file.vendor.to_string(), model.key()]
    };
    StoredFirmwareFile {
        repository: stored.repository.to_string(),
        digest: stored.digest.to_string(),
        manifest: String::from_utf8_lossy(&stored.manifest).into_owned(),
        models: stored.file.models().iter().map(of).collect(),
    }
}

fn refused(error: SetError) -> ApiError {
    let message = error.to_string();
    match error {
        SetError::TwoFiles { .. } => ApiError::new(ErrorCode::ConflictFirmwareSet, message),
        SetError::Label(_) => ApiError::invalid(vec![Detail::new("/labels", Rule::Labels, message)]),
        SetError::Empty | SetError::TooMany(_) => {
            ApiError::invalid(vec![Detail::new("/files", Rule::Length, message)])
        }
    }
}
