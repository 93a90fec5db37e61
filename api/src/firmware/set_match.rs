//! `GET /api/v1/firmware-match`: the set that fits a server.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanRead, Parameters};
use super::view::FirmwareSetView;
use super::{invalid, set_of};
use firmware::{MatchError, Model, Vendor};

/// The most labels of a question.
const MAX_LABELS: usize = 16;

/// Shows the one set that fits servers of a vendor and model and has the labels; none and several are different errors.
pub(crate) async fn choose(
    State(api): State<Api>,
    _reader: CanRead,
    Parameters(query): Parameters<Vec<(String, String)>>,
) -> Result<Json<FirmwareSetView>, ApiError> {
    let question = Question::of(&query)?;
    let stored = api.store().firmware_sets().await?;
    let sets = stored.iter().map(set_of).collect::<Result<Vec<_>, ApiError>>()?;
    let set =
        firmware::choose(&sets, &question.vendor, &question.model, &question.labels).map_err(refused)?;
    let row = stored.iter().find(|row| row.name == set.name().as_str());
    row.map(|row| Json(FirmwareSetView::of(row, set))).ok_or_else(super::unknown_set)
}

struct Question {
    vendor: Vendor,
    model: Model,
    labels: BTreeMap<String, String>,
}

impl Question {
    fn of(query: &[(String, String)]) -> Result<Self, ApiError> {
        let (mut vendor, mut model, mut labels) = (None, None, BTreeMap::new());
        let mut wrong = Vec::new();
        for (name, text) in query {
            match name.as_str() {
                "vendor" => vendor = text.parse().map_err(|why| wrong.push(invalid("vendor", &why))).ok(),
                "model" => model = text.parse().map_err(|why| wrong.push(invalid("model", &why))).ok(),
                _ => match text.split_once('=') {
                    Some((key, value)) if labels.len() < MAX_LABELS => {
                        labels.insert(key.to_owned(), value.to_owned());
                    }
                    _ => {
                        let why = format!("label is KEY=VALUE, at most {MAX_LABELS} times");
                        wrong.push(Detail::new("label", Rule::Labels, why));
                    }
                },
            }
        }
        for name in ["vendor", "model"] {
            if !query.iter().any(|(given, _)| given == name) {
                wrong.push(Detail::new(name, Rule::Required, format!("give the {name} of the server")));
            }
        }
        match (vendor, model) {
            (Some(vendor), Some(model)) if wrong.is_empty() => Ok(Self { vendor, model, labels }),
            _ => Err(ApiError::invalid(wrong)),
        }
    }
}

/// The response when no set, or more than one, fits a server.
pub(crate) fn refused(error: MatchError) -> ApiError {
    let code = match &error {
        MatchError::NoSet { .. } => ErrorCode::NoFirmwareSet,
        MatchError::SeveralSets { .. } => ErrorCode::SeveralFirmwareSets,
    };
    ApiError::new(code, error.to_string())
}
