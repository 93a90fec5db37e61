//! `bmc.reset`: tells the BMC to restart, once, and waits until it has begun to.
//!
//! ```text
//!   read manager -> checkpoint -> POST Manager.Reset -> look once in two seconds
//!                                                        two reads without response     -> away
//!                                                        LastResetTime a minute later   -> restarted already
//!                                                        the session is rejected        -> restarted already
//!                                                        another certificate            -> restarted already
//!                                                        none of these for 3 minutes    -> failure `bmc_not_reset`
//! ```
//!
//! The response is no sign: it only starts the clock. When it was lost together with the worker, nothing is known about the
//! request; it is sent again only after three minutes without a sign, so that a BMC is not restarted twice.

use std::time::Duration;

use redfish::{ManagerReset, RedfishError, RestartSince};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::identified::{Identified, identified_bmc, input};
use super::super::look::Look;
use super::super::order::UpkeepAction;
use super::super::{UpkeepServices, names, waits};
use bmc::{
    ConnectedBmc, class, failure, from_redfish, from_redfish_change, lease_lost, output_of, wait_for_bmc,
};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName, Time};

const STEP: &StepName = names::RESET;
/// The time limit of a step that restarts a BMC.
pub(super) const BUDGET: Duration = Duration::from_secs(60 * 60);
/// How long a BMC may take to begin its restart.
const AWAY_WITHIN: Duration = Duration::from_secs(180);
/// Reads without response, one after the other, that show that the BMC is away. One may be lost on the way.
const SILENT_READS: u32 = 2;

/// The output of the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ResetProgress {
    /// When the request was sent last.
    pub(super) sent_at: Option<Time>,
    /// How often the request was sent.
    sent: u32,
    /// Whether the BMC answered the last request, or the connection was cut while it should have.
    answered: bool,
    /// `LastResetTime` before the request.
    pub(super) before: Option<String>,
    /// Reads without response since the last one with a response.
    silent: u32,
    /// The sign by which the BMC showed its restart, in words.
    pub(super) sign: Option<String>,
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let progress: ResetProgress = context.own_output().unwrap_or_default();
    match progress.sent_at {
        None => first_request(services, context).await,
        Some(sent_at) => look(services, context, progress, sent_at).await,
    }
}

async fn first_request(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let (connected, found) = identified_bmc(STEP, names::BMC_IDENTIFY, services, context).await?;
    send(context, &connected, &found, ResetProgress::default()).await
}

/// Sends the request after a checkpoint.
async fn send(
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Identified,
    mut progress: ResetProgress,
) -> Result<StepReport, StepError> {
    let failed = |error: RedfishError| from_redfish(STEP, &error);
    let Some(manager) = &found.discovery.manager else {
        let next = "restart the BMC in its web interface; this BMC shows no manager";
        return Err(StepError::fail(failure(
            class::UNSUPPORTED,
            STEP,
            "the BMC shows no manager to reset",
            next,
        )));
    };
    let wish = match input(STEP, context)?.action {
        UpkeepAction::Reset(reset) => reset.how,
        _ => ManagerReset::Graceful,
    };
    let status = connected.bmc.manager_status(manager).await.map_err(failed)?;
    let reset = connected.bmc.manager_reset_type(&status, wish).await.map_err(failed)?;
    let unsent = progress.clone();
    if progress.before.is_none() {
        progress.before = status.last_reset.clone();
    }
    progress.sent_at = Some(context.now());
    progress.sent += 1;
    (progress.answered, progress.silent) = (false, 0);
    context.checkpoint(json!(progress)).await.map_err(|_lost| lease_lost(STEP))?;
    match connected.bmc.reset_manager(&status, reset).await {
        Ok(()) => {}
        // A BMC that restarts at once sends no response.
        Err(error) if error.maybe_applied() => {}
        Err(error) => return Err(from_redfish_change(STEP, &error).with_output(json!(unsent))),
    }
    progress.answered = true;
    let detail = format!("{} was sent to the manager", reset.as_str());
    Ok(waiting(detail.clone(), &progress).event(NewEvent::info("bmc.reset-sent", detail)))
}

/// Reads whether the BMC shows a sign that it restarts.
async fn look(
    services: &UpkeepServices,
    context: &StepContext,
    mut progress: ResetProgress,
    sent_at: Time,
) -> Result<StepReport, StepError> {
    let found: Identified = output_of(STEP, context, names::BMC_IDENTIFY)?;
    let serial = input(STEP, context)?.server;
    let server = services.bmc.server(STEP, &serial).await?;
    let seen = match services.bmc.connections.connect(&server, &context.lease).await {
        Ok(connected) => sign(&connected.bmc, &found, &progress).await,
        Err(error) => Err(Look::of_connect(error)),
    };
    match seen {
        Ok(Some(sign)) => return Ok(restarting(progress, &sign)),
        Err(Look::OtherCertificate(_)) => {
            return Ok(restarting(progress, "the BMC shows another certificate"));
        }
        Err(Look::Denied(_)) => {
            return Ok(restarting(progress, "the BMC rejects the login it accepted before"));
        }
        Err(Look::Unusable(why)) => {
            let next =
                format!("correct it with `shoal server update {serial}`, then order the restart again");
            return Err(StepError::fail(failure(class::INPUT, STEP, why, next)));
        }
        Err(Look::Silent(why)) => {
            progress.silent += 1;
            if progress.silent >= SILENT_READS {
                return Ok(restarting(progress, &format!("the BMC does not respond ({why})")));
            }
        }
        // A BMC that ends its services responds with errors first; they are neither silence nor a sign.
        Err(Look::Error(_)) | Ok(None) => progress.silent = 0,
    }
    if context.now().since(sent_at) < AWAY_WITHIN {
        return Ok(waiting(
            "a restart was requested; the BMC still responds as before".to_owned(),
            &progress,
        ));
    }
    if !progress.answered && progress.sent < 2 {
        let (connected, found) = identified_bmc(STEP, names::BMC_IDENTIFY, services, context).await?;
        return send(context, &connected, &found, progress).await;
    }
    let summary = format!(
        "the BMC accepted a restart at {sent_at} and responds as before, {} s later: it has not restarted",
        AWAY_WITHIN.as_secs()
    );
    let next =
        "order the restart with type forced; if that does not help either, remove the power of the BMC";
    Err(StepError::fail(failure(names::class::BMC_NOT_RESET, STEP, summary, next))
        .with_output(json!(progress)))
}

/// Returns the sign by which a BMC that responds shows its restart, if there is one.
async fn sign(
    bmc: &redfish::Bmc,
    found: &Identified,
    progress: &ResetProgress,
) -> Result<Option<String>, Look> {
    let Some(manager) = &found.discovery.manager else { return Ok(None) };
    let session = |handle: Option<redfish::SessionHandle>| handle.map(|handle| handle.uri);
    let before = session(bmc.session().await);
    let status = bmc.manager_status(manager).await.map_err(Look::of)?;
    if status.restart_since(progress.before.as_deref()) == RestartSince::Yes {
        let [old, new] =
            [&progress.before, &status.last_reset].map(|time| time.as_deref().unwrap_or_default());
        return Ok(Some(format!("LastResetTime was {old} and is {new}")));
    }
    let after = session(bmc.session().await);
    let rejected = before.is_some() && before != after;
    Ok(rejected.then(|| "the BMC no longer knows the session".to_owned()))
}

fn restarting(mut progress: ResetProgress, sign: &str) -> StepReport {
    progress.sign = Some(sign.to_owned());
    let event = NewEvent::info("bmc.restarting", format!("the BMC restarts: {sign}"));
    StepReport::done().with_output(json!(progress)).event(event)
}

fn waiting(detail: String, progress: &ResetProgress) -> StepReport {
    // The step itself ends the wait, with its own words; the limit of the wait is a second line.
    let wait = wait_for_bmc(&waits::BMC_AWAY, AWAY_WITHIN * 3, detail);
    StepReport::wait(wait).with_output(json!(progress))
}
