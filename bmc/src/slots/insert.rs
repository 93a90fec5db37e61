//! Inserts an image into a slot and reads it back.
//!
//! ```text
//!   slot shows the image                    -> done
//!   sent a moment ago, not shown            -> wait
//!   otherwise: eject what is there, checkpoint, insert -> shown: done    not shown: wait
//!                                                      -> refused: SlotRefusal; the caller may try another slot
//! ```

use redfish::{ErrorKind, InsertOptions, RedfishError, Slot};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::classify::from_redfish;
use super::super::step::{ConnectedBmc, lease_lost, wait_for_bmc};
use super::super::waits;
use super::SlotRefusal;
use engine::model::{NewEvent, Time};
use engine::{StepContext, StepReport};

/// Parts of the message ids of BMCs that hold one image at a time.
const ONE_IMAGE_IDS: [&str; 3] = ["resourceinuse", "connectionoccupied", "sys446"];

/// The output of a step that inserts an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inserted {
    /// The URI of the slot that holds the image.
    pub slot: String,
    /// The time when the insert was sent.
    pub sent_at: Time,
    /// Whether the BMC definitely refused the insert, so that the image cannot appear later.
    #[serde(default)]
    pub refused: bool,
}

/// The reason why an image was not inserted.
#[derive(Debug)]
pub enum InsertError {
    /// The slot refused the image; another slot may accept it.
    Refused(Box<SlotRefusal>),
    /// Any other error, as the report of the step.
    Report(Box<StepReport>),
}

/// Inserts the image at `url` into the slot `uri`. `what` names the image in events.
///
/// # Errors
/// Returns the refusal of the slot, or the report of the step when the lease is lost or the request failed.
pub async fn insert(
    step: &str,
    context: &StepContext,
    connected: &ConnectedBmc,
    (uri, url): (&str, &str),
    what: &str,
) -> Result<StepReport, InsertError> {
    let failed = |error: &RedfishError| InsertError::Report(Box::new(from_redfish(step, error)));
    let sent_before =
        context.own_output::<Inserted>().filter(|inserted| inserted.slot == uri && !inserted.refused);
    let read = match sent_before {
        None => connected.bmc.slot_cached(uri).await,
        Some(_) => connected.bmc.slot(uri).await,
    };
    let slot = read.map_err(|error| failed(&error))?;
    // A bare file name identifies no job, unless this job has inserted an image into the slot.
    if slot.holds(url) || (sent_before.is_some() && slot.may_hold(url)) {
        let sent_at = sent_before.map_or(context.now(), |inserted| inserted.sent_at);
        let inserted = Inserted { slot: uri.to_owned(), sent_at, refused: false };
        return Ok(done(&inserted, &slot.id, what));
    }
    if let Some(inserted) = &sent_before
        && context.now().since(inserted.sent_at) < connected.bmc.profile().read_back_lag
    {
        return Ok(wait_for_image(connected, inserted, &slot.id, what));
    }
    if !slot.is_empty() {
        connected.bmc.eject(uri).await.map_err(|error| failed(&error))?;
    }
    // The checkpoint names the slot before the insert is sent, so that cleanup knows the slot after a crash.
    let inserted = Inserted { slot: uri.to_owned(), sent_at: context.now(), refused: false };
    context
        .checkpoint(json!(inserted))
        .await
        .map_err(|_lost| InsertError::Report(Box::new(lease_lost(step))))?;
    let response = connected.bmc.insert(uri, url, InsertOptions::default()).await;
    let retry_left = context.record.attempt < connected.tries;
    let response = response.map_err(|error| match refusal(&error, &slot, retry_left) {
        Some(refusal) => InsertError::Refused(Box::new(refusal)),
        // After a definite refusal there is nothing to wait for: the next attempt sends the insert at once.
        None => {
            let refused = Inserted { refused: !error.maybe_applied(), ..inserted.clone() };
            InsertError::Report(Box::new(from_redfish(step, &error).with_output(json!(refused))))
        }
    })?;
    if response.confirmed {
        return Ok(done(&inserted, &slot.id, what));
    }
    // Two inserts and a wait in between without effect: the slot accepts images but never shows one.
    let waited = context.previous_wait.as_ref().is_some_and(|wait| wait.reason == waits::MOUNT.name);
    if waited && sent_before.is_some() {
        let words = "it accepted the image twice and never showed it".to_owned();
        let (slot, slot_id) = (slot.uri, slot.id);
        return Err(InsertError::Refused(Box::new(SlotRefusal { slot, slot_id, words, one_image: false })));
    }
    Ok(wait_for_image(connected, &inserted, &slot.id, what))
}

fn done(inserted: &Inserted, slot: &str, what: &str) -> StepReport {
    StepReport::done()
        .with_output(json!(inserted))
        .event(NewEvent::info("redfish.mounted", format!("{what} in slot {slot}, read back")))
}

fn wait_for_image(connected: &ConnectedBmc, inserted: &Inserted, slot: &str, what: &str) -> StepReport {
    wait_for_bmc(
        &waits::MOUNT,
        connected.bmc.profile().read_back_lag,
        format!("the {what} was inserted into slot {slot}, which does not show it yet"),
    )
    .with_output(json!(inserted))
}

/// Returns the refusal that an insert error means for the slot; `None` when the error says nothing about the slot. With
/// `retry_left`, busy and server errors are no refusal because the slot is tried again.
fn refusal(error: &RedfishError, slot: &Slot, retry_left: bool) -> Option<SlotRefusal> {
    let occupied = match &error.kind {
        ErrorKind::Refused { message_id, status, .. } | ErrorKind::Busy { message_id, status, .. } => {
            let words = message_id.as_deref().unwrap_or_default().to_ascii_lowercase();
            *status == 409 || ONE_IMAGE_IDS.iter().any(|word| words.contains(word))
        }
        _ => false,
    };
    let refused = match &error.kind {
        ErrorKind::Refused { .. } => !error.maybe_applied(),
        ErrorKind::NotSupported { .. } | ErrorKind::TaskFailed { .. } => true,
        // Busy at every attempt: another slot may work.
        ErrorKind::Busy { .. } | ErrorKind::Server { .. } => !retry_left,
        _ => false,
    };
    refused.then(|| SlotRefusal {
        slot: slot.uri.clone(),
        slot_id: slot.id.clone(),
        words: error.kind.to_string(),
        one_image: occupied,
    })
}
