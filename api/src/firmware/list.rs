//! `GET /api/v1/firmware` and `GET /api/v1/firmware/{digest}`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::extract::{CanRead, Parameters, TextPath};
use super::view::{FirmwareDetailView, FirmwarePage, FirmwareView, UnusableView};
use super::{files, invalid, unknown_firmware};
use firmware::{Component, FirmwareFile, InvalidIdentity, Model, Vendor};

#[derive(Default)]
struct Filter {
    vendor: Option<Vendor>,
    model: Option<Model>,
    component: Option<Component>,
}

impl Filter {
    fn of(query: &[(String, String)]) -> Result<Self, ApiError> {
        let (mut filter, mut wrong) = (Self::default(), Vec::new());
        for (name, text) in query {
            let mut problem = |why: InvalidIdentity| wrong.push(invalid(name, &why));
            match name.as_str() {
                "vendor" => filter.vendor = text.parse().map_err(&mut problem).ok(),
                "model" => filter.model = text.parse().map_err(&mut problem).ok(),
                _ => filter.component = text.parse().map_err(&mut problem).ok(),
            }
        }
        if wrong.is_empty() { Ok(filter) } else { Err(ApiError::invalid(wrong as Vec<Detail>)) }
    }

    fn admits(&self, file: &FirmwareFile) -> bool {
        self.vendor.as_ref().is_none_or(|vendor| *vendor == file.vendor)
            && self.model.as_ref().is_none_or(|model| file.models().contains(model))
            && self.component.is_none_or(|component| component == file.component)
    }
}

/// Lists firmware files, all or those for a vendor, model or component.
pub(crate) async fn list(
    State(api): State<Api>,
    _reader: CanRead,
    Parameters(query): Parameters<Vec<(String, String)>>,
) -> Result<Json<FirmwarePage>, ApiError> {
    let filter = Filter::of(&query)?;
    let found = files(&api)?.list().await?;
    let admitted = found.files.iter().filter(|stored| filter.admits(&stored.file));
    Ok(Json(FirmwarePage {
        firmware: admitted.map(FirmwareView::of).collect(),
        unusable: found.unusable.into_iter().map(UnusableView::of).collect(),
        next: None,
    }))
}

/// Shows a firmware file and the sets that hold it.
pub(crate) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    TextPath(digest): TextPath,
) -> Result<Json<FirmwareDetailView>, ApiError> {
    let stored = files(&api)?.find(&digest).await?.ok_or_else(unknown_firmware)?;
    Ok(Json(FirmwareDetailView {
        firmware: FirmwareView::of(&stored),
        tags: stored.tags.iter().map(ToString::to_string).collect(),
        sets: api.store().firmware_sets_with(&digest).await?,
    }))
}
