//! Ejects the image of a slot.

use http::Method;
use serde_json::{Value, json};

use super::{InsertVia, Slot, path_words};
use crate::bmc::{Bmc, ChangeResult};
use crate::error::{Operation, RedfishError, mark_maybe_applied};
use crate::exchange::{BmcResponse, Call, Core};
use crate::json::Resource;
use crate::profile::Include;

const OPERATION: Operation = Operation::Eject;

impl Bmc {
    /// Ejects the image of the slot at `uri`. The host must be off or not use the media; this is not checked here.
    ///
    /// # Errors
    ///
    /// When a request fails, or when the BMC refuses and the slot still holds an image.
    pub async fn eject(&self, uri: &str) -> Result<ChangeResult<Slot>, RedfishError> {
        let core = &self.core;
        let (resource, slot) = core.slot_for_update(OPERATION, uri, |slot| !slot.is_empty()).await?;
        if slot.is_empty() {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: slot });
        }
        let response = match (&slot.eject, &slot.insert) {
            (Some(target), InsertVia::VmmControl(_)) => {
                core.eject_by(target, uri, &json!({ "VmmControlType": "Disconnect" })).await?
            }
            (Some(target), _) => core.eject_by(target, uri, &json!({})).await?,
            (None, _) => core.eject_by_patch(&resource, uri).await?,
        };
        let secrets = slot.image.as_ref().map(|image| path_words(image.expose())).unwrap_or_default();
        if !response.status.is_success() {
            let error = core.refusal(OPERATION, &response, &secrets);
            let observed = core.slot(OPERATION, uri).await;
            return match observed {
                Ok((_, observed)) if observed.is_empty() => {
                    Ok(ChangeResult { changed: true, confirmed: true, observed })
                }
                _ => Err(error),
            };
        }
        core.follow(OPERATION, &response, &secrets).await?;
        let (_, observed) = core.slot(OPERATION, uri).await.map_err(mark_maybe_applied)?;
        Ok(ChangeResult { changed: true, confirmed: observed.is_empty(), observed })
    }
}

impl Core {
    /// Ejects by an action: with an empty object, then without a body if the BMC refuses the object. The second request
    /// is not sent when the first response says that the BMC is busy.
    async fn eject_by(&self, target: &str, uri: &str, body: &Value) -> Result<BmcResponse, RedfishError> {
        let deadline = self.profile().mutation_timeout;
        let call = || Call::mutation(OPERATION, Method::POST, target, deadline).touching(uri);
        let response = self.perform(&call().body(body), 1).await?;
        let empty = body.as_object().is_some_and(serde_json::Map::is_empty);
        if !empty || !response.is(&[400, 415]) || self.refusal(OPERATION, &response, &[]).is_transient() {
            return Ok(response);
        }
        let bare = self.perform(&call(), 1).await?;
        Ok(if bare.is(&[415]) { response } else { bare })
    }

    async fn eject_by_patch(&self, resource: &Resource, uri: &str) -> Result<BmcResponse, RedfishError> {
        let profile = self.profile();
        let deadline = profile.mutation_timeout;
        let small = json!({ "Image": null });
        if profile.insert_fields.inserted == Include::Never {
            return self.patch(OPERATION, resource, &small, deadline, Some(uri)).await;
        }
        let body = json!({ "Image": null, "Inserted": false });
        let response = self.patch(OPERATION, resource, &body, deadline, Some(uri)).await?;
        if response.is(&[400, 422]) && response.error().names("Inserted") {
            return self.patch(OPERATION, resource, &small, deadline, Some(uri)).await;
        }
        Ok(response)
    }
}
