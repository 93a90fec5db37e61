//! `firmware.upload`: sends one image, once.
//!
//! ```text
//!   version read ── the new one ──► skipped
//!        │
//!        ▼
//!   file hashed ─► way chosen ─► PreparedUpdate ─► checkpoint ─► start_update ─┬─► accepted: its handle is the output
//!                                    ▲                                         ├─► refused: failure, nothing was started
//!                                    │                                         └─► not known, or the worker died
//!                                    │                                                     │
//!                                    │                                                     ▼
//!                                    │           a task, a state of the service, the version, a stored image ─► accepted
//!                                    └── none of them for a minute, the BMC is not busy, and it shows what it does
//!                                        a BMC that shows neither tasks nor a state ─► failure `upload_unknown`
//! ```
//!
//! An image that the BMC reads from a URL goes on in [`super::fetch`]; its grant is a part of the checkpoint.
//!
//! Invariant: the checkpoint with the prepared update is durable before the first byte. An image that may have arrived is sent
//! again only after the BMC has shown that it did not.

use std::time::Duration;

use redfish::{
    Bmc, ErrorKind, PreparedUpdate, RedfishError, UpdateHandle, UpdateImage, UpdateRequest, UpdateStart,
    UpdateState, UploadProgress,
};
use serde_json::json;

use super::super::absent::{self, Absence};
use super::super::identified::{identified_bmc, input};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::component::{self, Current};
use super::fetch;
use super::image::FirmwareStream;
use super::sending::{LOOK_FOR, Upload, accepted};
use super::validate::unusable;
use super::way;
use bmc::{ConnectedBmc, failure, from_redfish, from_redfish_change, lease_lost, wait_for_bmc};
use engine::model::mutant::{self, Mutant};
use engine::model::{Effect, NewEvent, StepName};
use engine::{StepContext, StepError, StepReport};
use firmware::{VersionOrder, compare};

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
    let (connected, _) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    let bmc = &connected.bmc;
    let failed = |error: RedfishError| from_redfish_change(STEP, &error);
    let shown = component::shown(bmc, &connected.server.serial, &current.item, current.target());
    let shown = shown.await.map_err(|error| from_redfish(STEP, &error))?;
    if current.is_target(shown.as_ref().and_then(|one| one.installed.version.as_ref())) {
        let message = format!("{} is installed already; nothing is sent", current.item.what());
        return Ok(StepReport::skipped().event(NewEvent::info("firmware.installed", message)));
    }
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
    upload.way = way.choice.why();
    upload.limit_s = bmc.profile().update_timeout.as_secs();
    let prepared = bmc.prepare_update(&service, way.choice, &request).await.map_err(failed)?;
    upload.before = match prepared.state_at_service {
        true => Some(bmc.poll_update(&prepared.handle()).await.map_err(failed)?.state),
        false => None,
    };
    upload.prepared = Some(prepared.clone());
    upload.looked_since = None;
    upload.sent += 1;
    let url = way::issue(STEP, services, context, way.base, &file, upload.sent)?;
    upload.fetch = url.as_ref().map(|(_, fetch)| fetch.clone());
    let effects = match &url {
        Some((url, _)) => vec![Effect::GrantsEnded, Effect::GrantIssued(Box::new(url.grant.clone()))],
        None => Vec::new(),
    };
    context.checkpoint_with(json!(upload), effects).await.map_err(|_lost| lease_lost(STEP))?;
    if url.is_some() && upload.sent > 1 {
        services.urls.ended(context.snapshot.run.id);
    }
    let image = match &url {
        Some((url, _)) => UpdateImage::Url(url.reveal()),
        None => UpdateImage::Stream { length: file.file().size, image: Box::new(FirmwareStream::new(file)) },
    };
    let started = start(context, &connected, &prepared, image, &upload).await;
    concluded(context, &connected, current, upload, started)
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
                format!("it is not known whether the BMC has the image, so the BMC is looked at: {error}");
            upload.looked_since = Some(context.now());
            let report = match fetch {
                Some(fetch) => fetch::began(current, &upload, &fetch),
                None => look_again(current, upload),
            };
            Ok(report.event(NewEvent::warn("firmware.upload-unclear", message)))
        }
        // The BMC has no complete image, and nothing was started.
        (Err(error), _) => Err(not_accepted(current, &error, &upload)),
    }
}

/// Sends the image, and renews the lease meanwhile.
async fn start(
    context: &StepContext,
    connected: &ConnectedBmc,
    prepared: &PreparedUpdate,
    image: UpdateImage<'_>,
    upload: &Upload,
) -> Result<UpdateStart, RedfishError> {
    let progress = UploadProgress::default();
    let sending = connected.bmc.start_update(prepared, image, &progress);
    let mut sending = std::pin::pin!(sending);
    loop {
        tokio::select! {
            biased;
            started = &mut sending => return started,
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

/// Looks whether an image has arrived of which that is not known.
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
        Ok((bmc, _)) => {
            let seen = arrived(context, &bmc, current, &upload, prepared).await;
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
            return absent.report(parts, absence, what, |absent| json!(Upload { absent, ..upload })).await;
        }
    };
    upload.absent.over();
    match seen {
        Arrived::Yes(handle) => {
            Ok(accepted(context, current, upload, *handle, "accepted, as the BMC shows afterwards"))
        }
        Arrived::NotShown { provable: true } if context.now().since(since) >= LOOK_FOR => {
            let message = "the BMC shows that the image did not arrive, so it is sent again";
            upload = Upload { sent: upload.sent, ..Upload::default() };
            let report = send(services, context, current, upload).await?;
            Ok(report.event(NewEvent::warn("firmware.upload-again", message)))
        }
        Arrived::NotShown { provable: false }
            if context.now().since(since) >= Duration::from_secs(upload.limit_s) =>
        {
            let summary = format!(
                "it is not known whether the BMC has the image of {}: the connection broke after the last byte, and this BMC \
                 shows neither tasks nor a state; the old version is installed",
                current.item.what()
            );
            let next = "restart the host if the component needs it, read the inventory, then order the installation again";
            Err(StepError::fail(failure(names::class::UPLOAD_UNKNOWN, STEP, summary, next)))
        }
        Arrived::NotShown { .. } | Arrived::Busy => Ok(look_again(current, upload)),
    }
}

fn look_again(current: &Current, upload: Upload) -> StepReport {
    let detail = format!("it is not known whether the BMC has the image of {}", current.item.what());
    let within = Duration::from_secs(upload.limit_s.max(60)) * 2;
    StepReport::wait(wait_for_bmc(&waits::UPLOAD_LOOK, within, detail)).with_output(json!(upload))
}

/// What a look at the BMC showed.
enum Arrived {
    Yes(Box<UpdateHandle>),
    /// The BMC works on an upload or an update.
    Busy,
    /// Nothing shows the image. `provable`: this BMC would show it.
    NotShown {
        provable: bool,
    },
}

async fn arrived(
    context: &StepContext,
    bmc: &Bmc,
    current: &Current,
    upload: &Upload,
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
    Ok(Ok(Arrived::NotShown { provable: prepared.task_service.is_some() || prepared.state_at_service }))
}
