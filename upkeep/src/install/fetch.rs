//! An image that the BMC reads from a URL: the part of `firmware.upload` from the accepted request to the last byte.
//!
//! ```text
//!   SimpleUpdate sent ─► each wake-up: one poll of the BMC, and what the media server has sent
//!      ├─ task ended well, or every byte was sent ────────────► accepted: `firmware.watch` goes on
//!      ├─ task failed, and not every byte was sent ──► another URL, three attempts at most ─► failure `image_not_read`
//!      ├─ no task, no state, no read for a minute, after an unclear response ─────────► another URL
//!      ├─ no read for ten minutes ─────────────────────────────► failure `image_not_read`: never asked, or stopped at N of M MB
//!      └─ the controller restarted meanwhile, so that reads may be missing: the task decides
//! ```
//!
//! Invariants
//! - The grant of an attempt ends in the transaction that stores the next attempt, so two attempts never both read an image.
//! - No further attempt is made while the BMC may work on the image: its task must have failed before the last byte was sent.
//!   Therefore the count of a judgement is read after the state of the BMC: bytes that led to the state are in the count.
//! - The grant stays open until the version is verified or the run ends: some BMCs read an image twice.

use std::sync::Arc;
use std::time::Duration;

use redfish::{Bmc, PreparedUpdate, RedfishError, UpdateHandle, UpdateState};
use serde_json::json;

use super::super::absent::{self, Absence, away_limit};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::component::{self, Current};
use super::sending::{self, Upload};
use super::served::Fetch;
use super::urls::ImageReads;
use bmc::{failure, unavailable, wait_for_bmc};
use engine::{AfterCommit, StepContext, StepError, StepReport};
use model::{Effect, NewEvent, StepName, Time};

const STEP: &StepName = names::FW_UPLOAD;
/// How often one image is offered to a BMC that could not read it.
const ATTEMPTS: u32 = 3;
/// The delay before another attempt.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(30);
/// The delay between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The report of a request that was sent: the BMC reads the image now.
pub(super) fn began(current: &Current, upload: &Upload, fetch: &Fetch) -> StepReport {
    let detail =
        format!("the BMC was asked to read the image of {} from {}", current.item.what(), fetch.base);
    wait(upload, detail, Duration::from_secs(1))
}

fn wait(upload: &Upload, detail: String, poll: Duration) -> StepReport {
    // The silence of the BMC ends it before.
    let limit = Duration::from_secs(upload.limit_s.max(3600)) * 2;
    let mut wait = wait_for_bmc(&waits::IMAGE_READ, limit, detail);
    wait.poll = Some(poll);
    StepReport::wait(wait).with_output(json!(upload))
}

/// Reads once how far the BMC is with an image that it reads from a URL.
pub(super) async fn look(
    services: &UpkeepServices,
    context: &StepContext,
    current: &Current,
    mut upload: Upload,
    fetch: &Fetch,
) -> Result<StepReport, StepError> {
    let Some(prepared) = upload.prepared.clone() else {
        return Err(StepError::fail(failure(
            model::class::INTERNAL,
            STEP,
            "the update is not stored",
            "order it again",
        )));
    };
    if upload.handle.is_none() {
        // The request may not have been sent: after a crash, too.
        upload.looked_since.get_or_insert(context.now());
    }
    let before = reads_of(services, fetch).await?;
    let seen = match absent::connect((STEP, names::FW_IDENTIFY), services, context).await? {
        Ok((bmc, _)) => {
            let seen = see(context, &bmc, current, &upload, &prepared, &before).await;
            bmc.release_idle();
            match seen {
                Ok(seen) => seen,
                Err(error) => Err(Absence::of(STEP, Look::of(error))?),
            }
        }
        Err(absence) => Err(absence),
    };
    let reads = reads_of(services, fetch).await?;
    let seen = match seen {
        Ok(seen) => seen,
        Err(absence) => {
            let what = fetch.sentence(&current.item.what(), &reads, context.now());
            let mut absent = upload.absent.clone();
            let parts = (STEP, services, context);
            let limit = away_limit(Duration::from_secs(upload.limit_s));
            return absent
                .report(parts, absence, (&what, limit), |absent| json!(Upload { absent, ..upload }))
                .await;
        }
    };
    upload.absent.over(context.now());
    if seen.handle.has_task() {
        upload.handle = Some(seen.handle.clone());
    }
    let shows = prepared.task_service.is_some() || prepared.state_at_service;
    let unclear_since = upload.looked_since.filter(|_| upload.handle.is_none() && shows);
    let ended = Unread { services, context, current, fetch, seen: &seen, reads: &reads };
    match judge(fetch, seen.shown, &reads, unclear_since, context.now()) {
        Judgement::Accepted => {
            Ok(sending::accepted(context, current, upload, seen.handle.clone(), "accepted"))
        }
        Judgement::Again => Ok(ended.again(&upload)),
        Judgement::Silent => Ok(ended.for_good(&upload)),
        Judgement::Wait => {
            let detail = fetch.sentence(&current.item.what(), &reads, context.now());
            Ok(wait(&upload, detail, LOOK_INTERVAL))
        }
    }
}

/// Returns how much of the image the media server has sent.
async fn reads_of(services: &UpkeepServices, fetch: &Fetch) -> Result<ImageReads, StepError> {
    services.urls.reads(&fetch.grant).await.map_err(|why| unavailable(STEP, &why))
}

/// The state, handle and messages of the update, as one read of the BMC showed them.
struct Seen {
    shown: Shown,
    handle: UpdateHandle,
    messages: Vec<String>,
}

/// The state of the update, as far as it matters for the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// The BMC shows neither a task nor a state of this update.
    Nothing,
    /// The BMC works on the update.
    Works,
    /// The BMC has the image: it waits for the next request or a restart, or says that the update is done.
    Has,
    /// The task of the update failed.
    Failed,
}

/// Reads the state of the update from the BMC. A state that the service showed before the upload is that of an earlier update as
/// long as `before`, the reads of the image up to now, has none.
async fn see(
    context: &StepContext,
    bmc: &Bmc,
    current: &Current,
    upload: &Upload,
    prepared: &PreparedUpdate,
    before: &ImageReads,
) -> Result<Result<Seen, Absence>, RedfishError> {
    let handle = upload.handle.clone().unwrap_or_else(|| prepared.handle());
    let poll = bmc.poll_update(&handle).await?;
    if let Some(absence) = Absence::of_state(&poll.state) {
        return Ok(Err(absence));
    }
    let handle = poll.found.map_or(handle, |found| *found);
    let mut shown = match poll.state {
        // A state that the service showed before is that of an earlier update.
        ref state if upload.before.as_ref() == Some(state) && before.last_at.is_none() => Shown::Nothing,
        UpdateState::Queued | UpdateState::Running { .. } => Shown::Works,
        UpdateState::Failed => Shown::Failed,
        UpdateState::Gone => Shown::Nothing,
        _ => Shown::Has,
    };
    if shown == Shown::Nothing
        && let Ok(input) = super::super::identified::input(STEP, context)
    {
        let installed = component::shown(bmc, &input.server, &current.item, current.target()).await?;
        if current.is_target(installed.as_ref().and_then(|one| one.installed.version.as_ref())) {
            shown = Shown::Has;
        } else if bmc.update_capability().await?.busy.is_some() {
            shown = Shown::Works;
        }
    }
    Ok(Ok(Seen { shown, handle, messages: poll.messages }))
}

/// The decision that follows from one read of the BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    /// The BMC has the image: the update is watched.
    Accepted,
    /// The BMC could not read the image and does not work on it.
    Again,
    /// The BMC reads nothing.
    Silent,
    Wait,
}

/// Decides what follows from a read of the BMC. `unclear_since`: since when a BMC that shows its updates shows none after a
/// request without a clear response.
fn judge(
    fetch: &Fetch,
    shown: Shown,
    reads: &ImageReads,
    unclear_since: Option<Time>,
    now: Time,
) -> Judgement {
    let (whole, gap) = (fetch.is_whole(reads), fetch.has_gap(reads));
    match shown {
        Shown::Has => Judgement::Accepted,
        Shown::Failed if whole => Judgement::Accepted,
        Shown::Failed => Judgement::Again,
        _ if whole => Judgement::Accepted,
        Shown::Nothing
            if reads.last_at.is_none()
                && unclear_since.is_some_and(|since| now.since(since) >= sending::LOOK_FOR) =>
        {
            Judgement::Again
        }
        // The count says too little: the task or the version shows the end.
        _ if gap && fetch.is_silent(reads, now) => Judgement::Accepted,
        _ if fetch.is_silent(reads, now) => Judgement::Silent,
        _ => Judgement::Wait,
    }
}

/// An image that the BMC did not read.
struct Unread<'a> {
    services: &'a UpkeepServices,
    context: &'a StepContext,
    current: &'a Current,
    fetch: &'a Fetch,
    seen: &'a Seen,
    reads: &'a ImageReads,
}

impl Unread<'_> {
    /// The report of an attempt: another one later, or the end.
    fn again(&self, upload: &Upload) -> StepReport {
        let unread = upload.unread + 1;
        if unread >= ATTEMPTS {
            return self.for_good(upload);
        }
        let what = self.current.item.what();
        let found = match self.seen.shown {
            Shown::Nothing => format!("the BMC shows no update to {what} and has read nothing of its image"),
            _ => format!("the BMC could not read the image of {what} ({})", self.fetch.amount(self.reads)),
        };
        let message = format!(
            "{found}{}; attempt {} of {ATTEMPTS} follows in {} s, with another URL",
            self.said(),
            unread + 1,
            BETWEEN_ATTEMPTS.as_secs()
        );
        let next = Upload { sent: upload.sent, unread, limit_s: upload.limit_s, ..Upload::default() };
        let report = wait(&next, message.clone(), BETWEEN_ATTEMPTS);
        end(self.services, self.context, report.event(NewEvent::warn("firmware.upload-again", message)))
    }

    /// The failure. The right to read the image ends.
    fn for_good(&self, upload: &Upload) -> StepReport {
        let (what, base) = (self.current.item.what(), &self.fetch.base);
        let summary = match self.reads.last_at {
            None => format!("the BMC never asked for the image of {what} at {base}{}", self.said()),
            Some(_) => {
                let amount = self.fetch.amount(self.reads);
                format!("the BMC has read {amount} of {what} and no more{}", self.said())
            }
        };
        let mut next = format!(
            "check that {base} is reachable from the network of the BMC (route, firewall, MEDIA_BASE_URL, or media_base_url of \
             the server); `shoal bmc doctor SERIAL` tests it with a medium"
        );
        if base.starts_with("https:") {
            next.push_str("; a BMC that verifies certificates must trust what `shoal ca export` prints");
        }
        let report = StepReport::fail(failure(names::class::IMAGE_NOT_READ, STEP, summary, next));
        // Without the right to read, the BMC cannot go on: the cleanup need not wait for a whole update.
        let unserved = json!(Upload { fetch: None, ..upload.clone() });
        end(self.services, self.context, report.with_output(unserved))
    }

    fn said(&self) -> String {
        match self.seen.messages.first() {
            Some(message) => format!("; it says: {message}"),
            None => String::new(),
        }
    }
}

/// Ends the right of the BMC to read the image of a component with this report.
pub(super) fn end(services: &UpkeepServices, context: &StepContext, report: StepReport) -> StepReport {
    let (urls, run) = (Arc::clone(&services.urls), context.snapshot.run.id);
    let mut report = report.effect(Effect::GrantsEnded);
    report.then = Some(AfterCommit(Arc::new(move || urls.ended(run))));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        "2026-11-20T08:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(second))
    }

    fn fetch() -> Fetch {
        Fetch {
            grant: "h".to_owned(),
            issued_at: at(100),
            size: 64_000_000,
            base: "http://192.0.2.7".to_owned(),
        }
    }

    fn reads(bytes: u64, last: Option<u64>) -> ImageReads {
        ImageReads { bytes, last_at: last.map(at), counted_since: Some(at(0)) }
    }

    #[test]
    fn an_image_is_offered_again_only_if_the_bmc_does_not_work_on_it_and_has_not_read_it() {
        let whole = reads(64_000_000, Some(200));
        let part = reads(1000, Some(200));
        let none = reads(0, None);
        let judged = |shown, reads: &ImageReads, unclear: Option<u64>, now| {
            judge(&fetch(), shown, reads, unclear.map(at), at(now))
        };
        for (shown, reads, unclear, now, expected) in [
            (Shown::Has, &none, None, 101, Judgement::Accepted),
            (Shown::Failed, &whole, None, 210, Judgement::Accepted),
            (Shown::Failed, &part, None, 210, Judgement::Again),
            (Shown::Failed, &none, None, 101, Judgement::Again),
            (Shown::Works, &whole, None, 210, Judgement::Accepted),
            (Shown::Nothing, &whole, Some(100), 210, Judgement::Accepted),
            (Shown::Works, &part, None, 210, Judgement::Wait),
            (Shown::Works, &part, None, 801, Judgement::Silent),
            (Shown::Works, &none, None, 699, Judgement::Wait),
            (Shown::Works, &none, None, 700, Judgement::Silent),
            (Shown::Works, &none, Some(100), 161, Judgement::Wait),
            (Shown::Nothing, &none, Some(101), 160, Judgement::Wait),
            (Shown::Nothing, &none, Some(101), 161, Judgement::Again),
            (Shown::Nothing, &part, Some(101), 300, Judgement::Wait),
            (Shown::Nothing, &none, None, 300, Judgement::Wait),
        ] {
            assert_eq!(judged(shown, reads, unclear, now), expected, "{shown:?} {reads:?} {unclear:?} {now}");
        }
    }

    #[test]
    fn reads_that_a_killed_controller_may_not_have_counted_decide_nothing() {
        let lost = ImageReads { counted_since: Some(at(150)), ..reads(0, None) };
        for shown in [Shown::Works, Shown::Nothing] {
            assert_eq!(judge(&fetch(), shown, &lost, None, at(400)), Judgement::Wait);
            assert_eq!(judge(&fetch(), shown, &lost, None, at(701)), Judgement::Accepted);
        }
        assert_eq!(judge(&fetch(), Shown::Failed, &lost, None, at(701)), Judgement::Again);
    }
}
