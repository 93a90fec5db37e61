//! `firmware.upload`: sends one image, once.
//!
//! ```text
//!   version read ── the new one ──► skipped
//!        │
//!        ▼
//!   file hashed ─► way chosen ─► PreparedUpdate ─► checkpoint ─► all but the last piece ─► checkpoint ─► the last piece
//!        ▲                                                         │                                       │
//!        └────────────── the worker died, the connection broke ────┘          accepted: its handle is the output
//!                        the BMC cannot have the image                        refused: failure, nothing was started
//!                                                                             not known, or the worker died
//!                                                                                                 │ looked at, never sent again
//!                                                                                                 ▼
//!                              a task, a state of the service, the version, a stored image ─► accepted
//!                              none of them until update_timeout ─► failure `upload_unknown`
//!                              none, and the server lost power ─► failure `power_lost`, see `power_loss`
//! ```
//!
//! An image that the BMC reads from a URL goes on in [`super::fetch`]; its grant is a part of the checkpoint.
//!
//! Invariant: nothing is uploaded twice. The checkpoint with the prepared update is durable before the first byte, and the one that
//! says that the image may have arrived before the last piece. After it the image is not sent again by this run.

use std::time::Duration;

use redfish::{
    Bmc, ErrorKind, PreparedUpdate, RedfishError, UpdateHandle, UpdateImage, UpdateRequest, UpdateStart,
    UpdateState, UploadProgress,
};
use serde_json::json;

use super::super::absent::{self, Absence, away_limit};
use super::super::identified::{Identified, identified_bmc, input};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::component::{self, Current};
use super::fetch;
use super::image::{FirmwareStream, LastPiece};
use super::power_loss::{self, PowerLoss, Sign};
use super::sending::{Upload, accepted};
use super::validate::unusable;
use super::watch;
use super::way;
use bmc::{ConnectedBmc, failure, from_redfish, from_redfish_change, lease_lost, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use firmware::{Component, Restart, VersionOrder, compare};
use model::mutant::{self, Mutant};
use model::{Effect, NewEvent, StepName};

const STEP: &StepName = names::FW_UPLOAD;
/// How often the lease is renewed while an image is sent.
const RENEW: Duration = Duration::from_secs(60);

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let current = Current::of(STEP, context)?;
    let upload: Upload = context.own_output().unwrap_or_default();
    match (upload.prepared.clone(), upload.fetch.clone()) {
        (Some(_), Some(fetch)) => fetch::look(services, context, &current, upload, &fetch).await,
        (Some(_), None) if mutant::active(Mutant::SendsAgain) => {
            send(services, context, &current, upload).await
        }
        (Some(_), None) if upload.incomplete => send(services, context, &current, upload).await,
        (Some(prepared), None) => look(services, context, &current, upload, &prepared).await,
        (None, _) => send(services, context, &current, upload).await,
    }
}

/// Prepares the update, stores it and sends the image.
async fn send(
    services: &UpkeepServices,
    context: &StepContext,
    current: &Current,
    mut upload: Upload,
) -> Result<StepReport, StepError> {
    if current.entry.file.restart == Restart::None
        && let Some(wait) = current.order.window().begins_later(context.now(), &current.item.what())
    {
        return Ok(StepReport::wait(wait));
    }
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    let bmc = &connected.bmc;
    let failed = |error: RedfishError| from_redfish_change(STEP, &error);
    let shown = component::shown(bmc, &connected.server.serial, &current.item, current.target());
    let shown = shown.await.map_err(|error| from_redfish(STEP, &error))?;
    if current.is_target(shown.as_ref().and_then(|one| one.installed.version.as_ref())) {
        let message = format!("{} is installed already; nothing is sent", current.item.what());
        return Ok(StepReport::skipped().event(NewEvent::info("firmware.installed", message)));
    }
    power_loss::may_send(STEP, context, &current.item.what())?;
    current.order.window().may_send(STEP, context, &current.item.what())?;
    // All bytes are read and hashed before the first one is sent.
    let file = services.firmware.open(&current.entry).await.map_err(|why| unusable(STEP, &why))?;
    let service = bmc.update_capability().await.map_err(failed)?;
    let way = way::choose(STEP, services, &connected, &service, current.entry.file.size).await?;
    let target = shown.and_then(|one| one.uri).filter(|_| current.item.devices > 1);
    let older = current.item.now.as_ref().is_some_and(|now| {
        matches!(compare(now, current.target()), VersionOrder::Newer | VersionOrder::Unclear)
    });
    let request = UpdateRequest {
        targets: target.into_iter().collect(),
        apply_time: None,
        force: current.order.allow_downgrade && older,
        file_name: current.entry.file.filename.to_string(),
    };
    let again = upload.incomplete;
    upload.way = way.choice.why();
    upload.limit_s = bmc.profile().update_timeout.as_secs();
    let prepared = bmc.prepare_update(&service, way.choice, &request).await.map_err(failed)?;
    upload.before = match prepared.state_at_service {
        true => Some(bmc.poll_update(&prepared.handle()).await.map_err(failed)?.state),
        false => None,
    };
    // The BMC restarts for its own firmware, so that the time proves nothing there.
    upload.last_reset = match &found.discovery.manager {
        Some(manager) if current.item.component != Component::Bmc => {
            bmc.manager_status(manager).await.map_err(failed)?.last_reset
        }
        _ => None,
    };
    upload.prepared = Some(prepared.clone());
    upload.looked_since = None;
    upload.sent += 1;
    let url = way::issue(STEP, services, context, way.base, &file, upload.sent)?;
    upload.fetch = url.as_ref().map(|(_, fetch)| fetch.clone());
    upload.incomplete = url.is_none();
    let effects = match &url {
        Some((url, _)) => vec![Effect::GrantsEnded, Effect::GrantIssued(Box::new(url.grant.clone()))],
        None => Vec::new(),
    };
    context.checkpoint_with(json!(upload), effects).await.map_err(|_lost| lease_lost(STEP))?;
    if url.is_some() && upload.sent > 1 {
        services.urls.ended(context.snapshot.run.id);
    }
    let started = match &url {
        Some((url, _)) => {
            let image = UpdateImage::Url(url.reveal());
            start(context, &connected, &prepared, (image, None), &mut upload).await?
        }
        None => {
            let length = file.file().size;
            let (stream, last) = FirmwareStream::new(file);
            let image = UpdateImage::Stream { length, image: Box::new(stream) };
            start(context, &connected, &prepared, (image, Some(last)), &mut upload).await?
        }
    };
    let report = concluded(context, &connected, current, upload, started)?;
    let message =
        "the last part of the image was not sent before, so the BMC does not have it; it was sent again";
    Ok(if again { report.event(NewEvent::warn("firmware.upload-again", message)) } else { report })
}

/// The report of an image that was sent, or of a URL that was given out.
fn concluded(
    context: &StepContext,
    connected: &ConnectedBmc,
    current: &Current,
    mut upload: Upload,
    started: Result<UpdateStart, RedfishError>,
) -> Result<StepReport, StepError> {
    match (started, upload.fetch.clone()) {
        (Ok(UpdateStart::Accepted(handle)), None) => {
            Ok(connected.report(accepted(context, current, upload, handle, "accepted")))
        }
        (Ok(UpdateStart::Accepted(handle)), Some(fetch)) => {
            upload.handle = Some(handle);
            Ok(connected.report(fetch::began(current, &upload, &fetch)))
        }
        (Ok(UpdateStart::MaybeAccepted { error, .. }), fetch) => {
            let message =
                format!("it is not known whether the BMC has the image, so the BMC is read again: {error}");
            upload.looked_since = Some(context.now());
            let report = match fetch {
                Some(fetch) => fetch::began(current, &upload, &fetch),
                None => look_again(current, upload, Duration::ZERO),
            };
            Ok(report.event(NewEvent::warn("firmware.upload-unclear", message)))
        }
        // The BMC has no complete image, and nothing was started.
        (Err(error), _) => Err(not_accepted(current, &error, &upload)),
    }
}

/// Sends the image, and renews the lease meanwhile. Its last piece follows when it is recorded that the image may arrive.
async fn start(
    context: &StepContext,
    connected: &ConnectedBmc,
    prepared: &PreparedUpdate,
    (image, mut last): (UpdateImage<'_>, Option<LastPiece>),
    upload: &mut Upload,
) -> Result<Result<UpdateStart, RedfishError>, StepError> {
    let progress = UploadProgress::default();
    let sending = connected.bmc.start_update(prepared, image, &progress);
    let mut sending = std::pin::pin!(sending);
    loop {
        let at_end = async {
            match &mut last {
                Some(last) => last.reached().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            started = &mut sending => return Ok(started),
            () = at_end => {
                upload.incomplete = false;
                // Without the record the connection is closed before the last piece.
                context.checkpoint(json!(upload)).await.map_err(|_lost| lease_lost(STEP))?;
                if let Some(last) = last.take() {
                    last.allow();
                }
            }
            () = tokio::time::sleep(RENEW) => {
                // A lease that is lost ends the upload at its next piece.
                let _lost = context.checkpoint(json!(upload)).await;
            }
        }
    }
}

/// The end of the step for an error that proves that nothing was started.
fn not_accepted(current: &Current, error: &RedfishError, upload: &Upload) -> StepError {
    let unsent = Upload { sent: upload.sent, unread: upload.unread, ..Upload::default() };
    let refused = matches!(error.kind, ErrorKind::Refused { status, .. } if status != 409 && status != 404);
    if refused {
        let summary = format!("the BMC refused {}: {}", current.item.what(), error.kind);
        let next = "compare file, model and component with the vendor's description; the server is as it was";
        return StepError::fail(failure(names::class::IMAGE_REFUSED, STEP, summary, next))
            .with_output(json!(unsent));
    }
    from_redfish_change(STEP, error).with_output(json!(unsent))
}

/// Reads whether an image whose upload had no clear response has arrived.
async fn look(
    services: &UpkeepServices,
    context: &StepContext,
    current: &Current,
    mut upload: Upload,
    prepared: &PreparedUpdate,
) -> Result<StepReport, StepError> {
    let since = *upload.looked_since.get_or_insert(context.now());
    let connected = absent::connect((STEP, names::FW_IDENTIFY), services, context).await?;
    let seen = match connected {
        Ok((bmc, found)) => {
            let seen = arrived(context, (&bmc, &found), current, &mut upload, prepared).await;
            bmc.release_idle();
            match seen {
                Ok(seen) => seen,
                Err(error) => Err(Absence::of(STEP, Look::of(error))?),
            }
        }
        Err(absence) => Err(absence),
    };
    let seen = match seen {
        Ok(seen) => seen,
        Err(absence) => {
            let mut absent = upload.absent.clone();
            let parts = (STEP, services, context);
            let what = "it is not known whether the BMC has the image";
            let limit = away_limit(Duration::from_secs(upload.limit_s));
            return absent
                .report(parts, absence, (what, limit), |absent| json!(Upload { absent, ..upload }))
                .await;
        }
    };
    upload.absent.over(context.now());
    let passed = context.now().since(since);
    match seen {
        Arrived::Yes(handle) => {
            Ok(accepted(context, current, upload, *handle, "accepted, as the BMC shows afterwards"))
        }
        Arrived::PowerLost(lost) => {
            let said = "shows neither an update nor the new version since";
            let failure = lost.failure(STEP, current, said, "another version");
            let report = StepReport::fail(failure).with_output(json!(upload));
            Ok(report.event(lost.event(&current.item.what())))
        }
        Arrived::NotShown | Arrived::Busy
            if passed >= Duration::from_secs(upload.limit_s) && !upload.power.is_unclear() =>
        {
            Err(unknown(current, &upload))
        }
        Arrived::NotShown | Arrived::Busy => Ok(look_again(current, upload, passed)),
    }
}

/// The end of the step for an image that may have arrived and that the BMC does not show.
fn unknown(current: &Current, upload: &Upload) -> StepError {
    let summary = format!(
        "it is not known whether the BMC has the image of {}: no response came after the last byte, and for {} min the BMC has shown \
         neither an update nor the new version; the image is not sent a second time",
        current.item.what(),
        upload.limit_s / 60
    );
    let next = "look into the web interface of the BMC: if it shows no update, restart the host where the component needs it, read the \
                inventory, and order the installation again";
    StepError::fail(failure(names::class::UPLOAD_UNKNOWN, STEP, summary, next)).with_output(json!(upload))
}

fn look_again(current: &Current, upload: Upload, passed: Duration) -> StepReport {
    let limit = Duration::from_secs(upload.limit_s.max(60));
    let what = current.item.what();
    let detail = format!(
        "it is not known whether the BMC has the image of {what}; after {} min without a sign of it the job ends",
        limit.as_secs() / 60
    );
    let mut wait = wait_for_bmc(&waits::UPLOAD_LOOK, limit * 2, detail);
    wait.poll = Some(watch::interval(passed));
    StepReport::wait(wait).with_output(json!(upload))
}

/// Whether the BMC shows that an image has arrived.
enum Arrived {
    Yes(Box<UpdateHandle>),
    /// The BMC works on an upload or an update.
    Busy,
    /// Nothing shows the image.
    NotShown,
    /// Nothing shows the image, and the server lost power.
    PowerLost(PowerLoss),
}

async fn arrived(
    context: &StepContext,
    (bmc, found): (&Bmc, &Identified),
    current: &Current,
    upload: &mut Upload,
    prepared: &PreparedUpdate,
) -> Result<Result<Arrived, Absence>, RedfishError> {
    let handle = prepared.handle();
    if let Some(found) = bmc.find_update(&handle).await? {
        return Ok(Ok(Arrived::Yes(Box::new(found))));
    }
    let poll = bmc.poll_update(&handle).await?;
    let handle = poll.found.map_or(handle, |found| *found);
    if let Some(absence) = Absence::of_state(&poll.state) {
        return Ok(Err(absence));
    }
    let seen = match poll.state {
        UpdateState::Gone => false,
        // A state that the service showed before may be that of an earlier update.
        ref state => upload.before.as_ref() != Some(state),
    };
    if seen {
        return Ok(Ok(Arrived::Yes(Box::new(handle))));
    }
    let Ok(serial) = input(STEP, context).map(|input| input.server) else {
        return Ok(Ok(Arrived::Busy));
    };
    let shown = component::shown(bmc, &serial, &current.item, current.target()).await?;
    if current.is_target(shown.as_ref().and_then(|one| one.installed.version.as_ref())) {
        return Ok(Ok(Arrived::Yes(Box::new(handle))));
    }
    let service = bmc.update_capability().await?;
    if service.busy.is_some() {
        return Ok(Ok(Arrived::Busy));
    }
    let Upload { power, absent, .. } = upload;
    Ok(Ok(match power.look(context, (bmc, found), (current, absent)).await? {
        Sign::Lost(lost) => Arrived::PowerLost(lost),
        Sign::None | Sign::Unclear => Arrived::NotShown,
    }))
}
