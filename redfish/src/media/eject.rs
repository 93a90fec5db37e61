//! Taking an image out of a slot.

use http::Method;
use serde_json::{Value, json};

use super::{InsertVia, Slot, path_words};
use crate::bmc::{Applied, Bmc};
use crate::error::{Operation, RedfishError};
use crate::exchange::{Answer, Call, Core};
use crate::json::Resource;
use crate::power::mark_maybe_applied;
use crate::profile::Include;

const OPERATION: Operation = Operation::Eject;

impl Bmc {
    /// Empties the slot at `uri`. The host must be off, or must not use the media: this asks nobody.
    pub async fn eject(&self, uri: &str) -> Result<Applied<Slot>, RedfishError> {
        let core = &self.core;
        let (resource, slot) = core.slot_for_update(OPERATION, uri, |slot| !slot.is_empty()).await?;
        if slot.is_empty() {
            return Ok(Applied { changed: false, confirmed: true, observed: slot });
        }
        let answer = match (&slot.eject, &slot.insert) {
            (Some(target), InsertVia::Vmm(_)) => {
                core.eject_by(target, uri, &json!({ "VmmControlType": "Disconnect" })).await?
            }
            (Some(target), _) => core.eject_by(target, uri, &json!({})).await?,
            (None, _) => core.eject_by_patch(&resource, uri).await?,
        };
        let secrets = slot.image.as_ref().map(|image| path_words(image.expose())).unwrap_or_default();
        if !answer.status.is_success() {
            let error = core.refusal(OPERATION, &answer, &secrets);
            let observed = core.slot(OPERATION, uri).await;
            return match observed {
                Ok((_, observed)) if observed.is_empty() => {
                    Ok(Applied { changed: true, confirmed: true, observed })
                }
                _ => Err(error),
            };
        }
        core.follow(OPERATION, &answer, &secrets).await?;
        let (_, observed) = core.slot(OPERATION, uri).await.map_err(mark_maybe_applied)?;
        Ok(Applied { changed: true, confirmed: observed.is_empty(), observed })
    }
}

impl Core {
    /// By an action: with an empty object, then without a body where even that is too much. A BMC that is busy, or that
    /// wants a body, has said so with the first answer.
    async fn eject_by(&self, target: &str, uri: &str, body: &Value) -> Result<Answer, RedfishError> {
        let deadline = self.profile().mutation_timeout;
        let call = || Call::mutation(OPERATION, Method::POST, target, deadline).touching(uri);
        let answer = self.perform(&call().body(body), 1).await?;
        let empty = body.as_object().is_some_and(serde_json::Map::is_empty);
        if !empty || !answer.is(&[400, 415]) || self.refusal(OPERATION, &answer, &[]).is_transient() {
            return Ok(answer);
        }
        let bare = self.perform(&call(), 1).await?;
        Ok(if bare.is(&[415]) { answer } else { bare })
    }

    async fn eject_by_patch(&self, resource: &Resource, uri: &str) -> Result<Answer, RedfishError> {
        let profile = self.profile();
        let deadline = profile.mutation_timeout;
        let small = json!({ "Image": null });
        if profile.insert_fields.inserted == Include::Never {
            return self.patch(OPERATION, resource, &small, deadline, Some(uri)).await;
        }
        let body = json!({ "Image": null, "Inserted": false });
        let answer = self.patch(OPERATION, resource, &body, deadline, Some(uri)).await?;
        if answer.is(&[400, 422]) && answer.error().names("Inserted") {
            return self.patch(OPERATION, resource, &small, deadline, Some(uri)).await;
        }
        Ok(answer)
    }
}
