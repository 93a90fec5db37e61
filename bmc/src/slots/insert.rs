//! Inserts an image into a slot and reads it back.
//!
//! ```text
//!   slot shows the image                    -> done
//!   sent a moment ago, not shown            -> wait
//!   otherwise: eject what is there, checkpoint, insert -> shown: done    not shown: wait
//!                                                      -> refused: SlotRefusal; the caller may try another slot
//! ```
//!
//! A refusal as occupied means "one image at a time" only while another slot holds an image of the job. `SYS446` of a Dell never
//! means it alone: its text is "an internal error", and the BMC sends it too when it cannot read the URL
//! (github.com/dell/iDRAC-Redfish-Scripting issues 60 and 68).

use std::time::Duration;

use redfish::{ErrorKind, InsertOptions, RedfishError, Slot};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::classify::{from_redfish, from_redfish_change};
use super::super::step::{ConnectedBmc, lease_lost, wait_for_bmc};
use super::super::waits;
use super::SlotRefusal;
use engine::{StepContext, StepEnd, StepError, StepReport};
use model::{NewEvent, StepName, Time, cut_middle};

/// Parts of the message ids of BMCs that hold one image at a time.
const OCCUPIED_IDS: [&str; 2] = ["resourceinuse", "connectionoccupied"];
/// A message id that has several causes; the text of the message tells whether the slot is occupied.
const UNCLEAR_ID: &str = "sys446";
/// Words of a message that says that the slot is occupied.
const OCCUPIED_WORDS: [&str; 3] = ["attached", "in use", "occupied"];

/// The error of a BMC is cut to this number of characters.
const MAX_SAID: usize = 200;
/// How long a slot that is busy with the first image is waited for, before another slot is tried: a BMC that has just restarted
/// takes a minute or two.
const BUSY_PATIENCE: Duration = Duration::from_secs(180);

/// The output of a step that inserts an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inserted {
    /// The URI of the slot that holds the image.
    pub slot: String,
    /// The time when the insert was sent.
    pub sent_at: Time,
    /// Whether the BMC definitely refused the insert, so that it cannot appear later.
    #[serde(default)]
    pub refused: bool,
    /// Whether an earlier insert of this step into this slot was not definitely refused, so that its image may still appear.
    #[serde(default)]
    pub unclear_before: bool,
    /// The error that the BMC returned, when it may have carried out the insert all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// The reason why an image was not inserted.
#[derive(Debug)]
pub enum InsertError {
    /// The slot refused the image; another slot may accept it.
    Refused(Box<SlotRefusal>),
    /// Any other error, which ends the step.
    Step(StepError),
}

/// An image to insert.
#[derive(Clone, Copy, Debug)]
pub struct Insertion<'a> {
    /// The URI of the slot.
    pub slot: &'a str,
    /// The URL of the image.
    pub url: &'a str,
    /// The name of the image in events.
    pub what: &'a str,
    /// Whether another slot holds an image of the same job, which the BMC accepted from the same address.
    pub second: bool,
}

/// Inserts an image into its slot and reads it back.
///
/// # Errors
/// Returns the refusal of the slot, or what ends the step when the lease is lost or the request failed.
pub async fn insert(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    insertion: Insertion<'_>,
) -> Result<StepReport, InsertError> {
    let Insertion { slot: uri, url, what, second } = insertion;
    let failed = |error: &RedfishError| InsertError::Step(from_redfish(step, error));
    let last = context.own_output::<Inserted>().filter(|inserted| inserted.slot == uri);
    let unclear_before = last.as_ref().is_some_and(|last| last.unclear_before || !last.refused);
    let sent_before = last.filter(|last| !last.refused);
    let read = match &sent_before {
        None => connected.bmc.slot_cached(uri).await,
        Some(_) => connected.bmc.slot(uri).await,
    };
    let slot = read.map_err(|error| failed(&error))?;
    // A bare file name identifies no job, unless this job has inserted an image into the slot.
    if slot.holds(url) || (sent_before.is_some() && slot.may_hold(url)) {
        let sent_at = sent_before.map_or(context.now(), |inserted| inserted.sent_at);
        let inserted = Inserted { slot: uri.to_owned(), sent_at, refused: false, unclear_before, said: None };
        return Ok(done(&inserted, &slot.id, what));
    }
    if let Some(inserted) = &sent_before
        && context.now().since(inserted.sent_at) < connected.bmc.profile().read_back_lag
    {
        return Ok(wait_for_image(connected, inserted, &slot.id, what));
    }
    if !slot.is_empty() {
        let ejected = connected.bmc.eject(uri).await;
        ejected.map_err(|error| InsertError::Step(from_redfish_change(step, &error)))?;
    }
    // The checkpoint names the slot before the insert is sent, so that cleanup knows the slot after a crash.
    let inserted =
        Inserted { slot: uri.to_owned(), sent_at: context.now(), refused: false, unclear_before, said: None };
    context.checkpoint(json!(inserted)).await.map_err(|_lost| InsertError::Step(lease_lost(step)))?;
    let response = connected.bmc.insert(uri, url, InsertOptions::default()).await;
    let busy = response.as_ref().is_err_and(is_busy_elsewhere);
    let retry_left = match busy {
        true => busy_since(context).is_none_or(|since| context.now().since(since) < BUSY_PATIENCE),
        false => context.record.attempt < connected.tries,
    };
    let response = response.map_err(|error| match refusal(&error, &slot, second, retry_left) {
        Some(mut refusal) => {
            refusal.may_appear |= unclear_before;
            InsertError::Refused(Box::new(refusal))
        }
        // After a definite refusal there is nothing to wait for: the next attempt sends the insert at once.
        None => {
            let said = error.maybe_applied().then(|| said(&error));
            let refused = Inserted { refused: said.is_none(), said, ..inserted.clone() };
            let again = if busy { from_redfish_change(step, &error) } else { again(step, &error) };
            InsertError::Step(again.with_output(json!(refused)))
        }
    })?;
    if response.confirmed {
        return Ok(done(&inserted, &slot.id, what));
    }
    // Two inserts and a wait in between without effect: the slot accepts images but never shows one.
    let waited = context.previous_wait.as_ref().is_some_and(|wait| wait.reason == waits::MOUNT.name);
    if waited && sent_before.is_some() {
        let words = "it accepted the image twice and never showed it".to_owned();
        return Err(InsertError::Refused(Box::new(SlotRefusal {
            slot: slot.uri,
            slot_id: slot.id,
            words,
            one_image: false,
            lasting: second,
            may_appear: true,
            busy: false,
        })));
    }
    Ok(wait_for_image(connected, &inserted, &slot.id, what))
}

/// Returns the error of the BMC without the request and the next action; of a long text the middle is cut.
fn said(error: &RedfishError) -> String {
    cut_middle(&error.kind.to_string(), MAX_SAID).into_owned()
}

/// Whether the BMC cannot insert an image now for a reason that is not the slot.
fn is_busy_elsewhere(error: &RedfishError) -> bool {
    let ErrorKind::Busy { message_id, .. } = &error.kind else { return false };
    let unclear = message_id.as_ref().is_some_and(|id| id.to_ascii_lowercase().contains(UNCLEAR_ID));
    !unclear && !says_occupied(error)
}

/// Since when the step waits for a busy BMC.
fn busy_since(context: &StepContext) -> Option<Time> {
    context.previous_wait.as_ref().filter(|wait| wait.reason == waits::BMC_BUSY.name).map(|wait| wait.since)
}

fn done(inserted: &Inserted, slot: &str, what: &str) -> StepReport {
    StepReport::done()
        .with_output(json!(inserted))
        .event(NewEvent::info("redfish.mounted", format!("{what} in slot {slot}, read back")))
}

fn wait_for_image(connected: &ConnectedBmc, inserted: &Inserted, slot: &str, what: &str) -> StepReport {
    let detail = match &inserted.said {
        None => format!("the {what} was inserted into slot {slot}, which does not show it yet"),
        Some(said) => {
            format!(
                "an insert of the {what} into slot {slot} returned an error ({said}); whether it was carried out is read"
            )
        }
    };
    let wait = wait_for_bmc(&waits::MOUNT, connected.bmc.profile().read_back_lag, detail);
    StepReport::wait(wait).with_output(json!(inserted))
}

/// Builds the error of an insert that is sent again. A conflict may end: another session of the BMC holds the slot.
fn again(step: &StepName, error: &RedfishError) -> StepError {
    let ended = from_redfish(step, error);
    match *ended.end {
        StepEnd::Fail(failure) if error.status() == Some(409) => StepError::retry(failure),
        _ => ended,
    }
}

/// Returns whether the BMC says that a slot, or the only place for an image, is taken.
fn says_occupied(error: &RedfishError) -> bool {
    let (ErrorKind::Refused { message_id, status, message }
    | ErrorKind::Busy { message_id, status, message, .. }) = &error.kind
    else {
        return false;
    };
    let id = message_id.as_deref().unwrap_or_default().to_ascii_lowercase();
    if id.contains(UNCLEAR_ID) {
        let message = message.to_ascii_lowercase();
        return OCCUPIED_WORDS.iter().any(|word| message.contains(word));
    }
    *status == 409 || OCCUPIED_IDS.iter().any(|known| id.contains(known))
}

/// Returns the refusal that an insert error means for the slot; `None` when the error says nothing about the slot. With
/// `retry_left`, conflicts of a first image, busy and server errors are no refusal because the slot is tried again.
fn refusal(error: &RedfishError, slot: &Slot, second: bool, retry_left: bool) -> Option<SlotRefusal> {
    let occupied = says_occupied(error);
    let refused = match &error.kind {
        ErrorKind::Refused { status: 409, .. } if !second => !retry_left,
        ErrorKind::Refused { .. } => !error.maybe_applied(),
        ErrorKind::NotSupported { .. } | ErrorKind::TaskFailed { .. } => true,
        // Busy for long, or an error at every attempt: another slot may work.
        ErrorKind::Busy { .. } | ErrorKind::Server { .. } => !retry_left,
        _ => false,
    };
    let definite = matches!(error.kind, ErrorKind::Refused { .. } | ErrorKind::NotSupported { .. });
    refused.then(|| SlotRefusal {
        slot: slot.uri.clone(),
        slot_id: slot.id.clone(),
        words: error.kind.to_string(),
        one_image: occupied && second,
        lasting: definite && second,
        may_appear: error.maybe_applied(),
        busy: is_busy_elsewhere(error),
    })
}

#[cfg(test)]
mod tests {
    use redfish::Operation;

    use super::*;
    use crate::slots;

    const STEP: &StepName = &StepName::new("step");

    fn slot() -> Slot {
        slots::tests::slot("Managers/1", "CD1", &[])
    }

    fn error(kind: ErrorKind, maybe_applied: bool) -> RedfishError {
        RedfishError { operation: Operation::Insert, request: None, kind, maybe_applied }
    }

    fn refused(status: u16, id: &str, message: &str) -> RedfishError {
        let (message_id, message) = (Some(id.to_owned()), message.to_owned());
        error(ErrorKind::Refused { status, message_id, message }, false)
    }

    fn busy(status: u16, id: &str, message: &str) -> RedfishError {
        let (message_id, message) = (Some(id.to_owned()), message.to_owned());
        error(ErrorKind::Busy { status, message_id, message, retry_after: None }, false)
    }

    /// The message of an iDRAC, also for a URL that it cannot read.
    const INTERNAL: &str = "The requested operation cannot be completed because of an internal error.";

    #[test]
    fn one_image_at_a_time_is_concluded_only_while_another_slot_holds_one() {
        let table = [
            (busy(409, "Base.1.8.ResourceInUse", ""), true),
            (refused(409, "Base.1.8.ResourceExhaustion", ""), true),
            (busy(400, "iBMC.1.0.ConnectionOccupied", ""), true),
            (busy(400, "IDRAC.2.8.SYS446", "The media is attached already."), true),
            (busy(400, "IDRAC.1.6.SYS446", INTERNAL), false),
            (refused(400, "Contoso.1.0.ImageRefused", ""), false),
            (error(ErrorKind::NotSupported { what: String::new() }, false), false),
        ];
        for (error, one_image) in table {
            let of = |second| refusal(&error, &slot(), second, false).expect("no attempt is left");
            assert_eq!(of(true).one_image, one_image, "{error:?}");
            assert!(!of(false).one_image && !of(false).lasting, "{error:?} of the first image");
        }
    }

    #[test]
    fn a_refusal_lasts_when_only_the_slot_can_explain_it() {
        let of = |error: RedfishError| refusal(&error, &slot(), true, false).expect("no attempt is left");
        assert!(of(refused(400, "Contoso.1.0.ImageRefused", "")).lasting);
        assert!(!of(busy(400, "IDRAC.1.6.SYS446", INTERNAL)).lasting);
        let failed = ErrorKind::Server { status: 500, message_id: None, message: String::new() };
        let failed = of(error(failed, true));
        assert!(!failed.lasting && failed.may_appear, "the BMC may have inserted the image");
    }

    #[test]
    fn what_a_bmc_said_is_its_message_without_the_request_and_the_next_action() {
        let message = format!("the image server did not respond{}", " again".repeat(40));
        let error = error(ErrorKind::Server { status: 500, message_id: None, message }, true);
        let said = said(&error);
        assert!(said.starts_with("the BMC failed with 500: the image server did not respond"), "{said}");
        assert!(said.chars().count() <= MAX_SAID + 20 && !said.contains(error.next_action()), "{said}");
    }

    #[test]
    fn a_conflict_of_the_first_image_is_tried_again() {
        let conflict = refused(409, "Base.1.8.ResourceExhaustion", "");
        assert_eq!(refusal(&conflict, &slot(), false, true), None);
        assert!(matches!(*again(STEP, &conflict).end, StepEnd::Retry(_)));
        assert!(refusal(&conflict, &slot(), false, false).is_some(), "the last attempt");
        assert!(refusal(&conflict, &slot(), true, true).is_some(), "the second image needs another plan");
        let other = refused(400, "Contoso.1.0.ImageRefused", "");
        assert!(matches!(*again(STEP, &other).end, StepEnd::Fail(_)));
    }
}
