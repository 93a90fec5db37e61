//! `bmc.back`: waits until the BMC responds to a login again, and verifies that it is the BMC of the same machine.
//!
//! ```text
//!   no response, not ready                           -> wait, 20 minutes at most, then failure `bmc_not_back`
//!   logins refused                                   -> wait as long, a minute between two: a BMC that starts refuses the right ones
//!                                                       for a while; then the failure of the login
//!   another certificate, or one that is not trusted  -> hold `certificate_changed`: the operator compares and registers it
//!   another machine                                  -> failure of the identity check
//!   the same machine, LastResetTime within a minute  -> failure `bmc_not_reset`: it was only unreachable
//!   the same machine                                 -> done, with the time it was away; the record of an update that an
//!                                                       earlier run has left to the BMC ends
//! ```
//!
//! A certificate that changed is never accepted by itself: behind a restart of the BMC an attacker would be believed.

use std::time::Duration;

use redfish::{ManagerStatus, RestartSince, SystemSelector};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::AFTER_DENIAL;
use super::super::certificate::{self, ShownCertificate};
use super::super::identified::{Identified, input};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::bmc_reset::ResetProgress;
use bmc::updates::LeftUpdate;
use bmc::{class, failure, from_redfish, identity, output_of, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use model::{Effect, NewEvent, Server, StepName};

const STEP: &StepName = names::BACK;
/// How long a BMC may take to return.
const BACK_WITHIN: Duration = Duration::from_secs(20 * 60);
/// The delay between two looks at a BMC that restarts, which takes minutes.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The output of the step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct BackProgress {
    /// How long the BMC was away, in seconds, once it is back.
    away_s: Option<u64>,
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let found: Identified = output_of(STEP, context, names::BMC_IDENTIFY)?;
    let reset: ResetProgress = output_of(STEP, context, names::RESET)?;
    let serial = input(STEP, context)?.server;
    let server = services.bmc.server(STEP, &serial).await?;
    let progress: BackProgress = context.own_output().unwrap_or_default();
    // The time of a hold does not count: a resumed step begins anew.
    let late = context.now().since(context.record.started_at) >= BACK_WITHIN;
    match visit(services, context, &server, &found).await {
        Ok(visit) => returned(context, (&server, &found), &reset, visit, progress),
        Err(Missing::Look(Look::OtherCertificate(error))) => {
            let shown = ShownCertificate::of(&error);
            Ok(certificate::hold(services, context, &server, &shown).await.with_output(json!(progress)))
        }
        Err(Missing::Look(Look::Unusable(why))) => {
            let next = format!("correct it with `shoal server update {serial}`");
            Err(StepError::fail(failure(class::INPUT, STEP, why, next)))
        }
        Err(Missing::Step(error)) => Err(error),
        Err(Missing::Look(Look::Denied(error))) => {
            if late {
                return Err(from_redfish(STEP, &error).with_output(json!(progress)));
            }
            let detail = format!("the BMC responds and rejects the login: {}", error.kind);
            let mut wait = wait_for_bmc(&waits::BMC_BACK, BACK_WITHIN * 2, detail);
            wait.poll = Some(AFTER_DENIAL);
            Ok(StepReport::wait(wait).with_output(json!(progress)))
        }
        Err(Missing::Look(look)) => {
            let why = match look {
                Look::Silent(why) => why,
                Look::Error(error) => error.kind.to_string(),
                Look::OtherCertificate(_) | Look::Denied(_) | Look::Unusable(_) => String::new(),
            };
            if late {
                let minutes = BACK_WITHIN.as_secs() / 60;
                let sign = reset.sign.unwrap_or_default();
                let summary = format!(
                    "the BMC went away to restart ({sign}) and is not back after {minutes} minutes: {why}"
                );
                let next = "check that the BMC has power and network, and whether it received another address; \
                            its host keeps running";
                return Err(StepError::fail(failure(names::class::BMC_NOT_BACK, STEP, summary, next)));
            }
            let mut wait =
                wait_for_bmc(&waits::BMC_BACK, BACK_WITHIN * 2, format!("the BMC restarts: {why}"));
            wait.poll = Some(LOOK_INTERVAL);
            Ok(StepReport::wait(wait).with_output(json!(progress)))
        }
    }
}

/// The report of a BMC that responds as the same machine.
fn returned(
    context: &StepContext,
    (server, found): (&Server, &Identified),
    reset: &ResetProgress,
    visit: Visit,
    mut progress: BackProgress,
) -> Result<StepReport, StepError> {
    if let Some(manager) = &visit.manager
        && manager.restart_since(reset.before.as_deref()) == RestartSince::No
    {
        let shown = manager.last_reset.as_deref().unwrap_or_default();
        let summary = format!(
            "the BMC was unreachable and responds again, but its LastResetTime is still {shown}: it has not restarted"
        );
        let next = "check the network between controller and BMC, then order the restart with type forced";
        return Err(StepError::fail(failure(names::class::BMC_NOT_RESET, STEP, summary, next)));
    }
    let away = context.now().since(reset.sent_at.unwrap_or(context.record.started_at)).as_secs();
    progress.away_s = Some(away);
    let host = match visit.power == found.was {
        true => format!("the host is {:?}, as before", visit.power),
        false => format!("the host was {:?} and is {:?}", found.was, visit.power),
    };
    let message = format!("the BMC is back after {away} s, verified; {host}");
    let mut report =
        StepReport::done().with_output(json!(progress)).event(NewEvent::info("bmc.back", message));
    report.effects.push(Effect::ServerSeen { serial: server.serial.clone() });
    report.events.extend(visit.unverified);
    report.effects.extend(visit.learned);
    // Any other restart has waited for the end of the update before.
    report.effects.extend(LeftUpdate::cut(server));
    Ok(report)
}

/// The values that a BMC shows when it is back.
struct Visit {
    power: redfish::PowerState,
    manager: Option<ManagerStatus>,
    unverified: Option<NewEvent>,
    learned: Option<Effect>,
}

/// Why a BMC is not back.
enum Missing {
    Look(Look),
    Step(StepError),
}

impl From<Look> for Missing {
    fn from(look: Look) -> Self {
        Self::Look(look)
    }
}

/// Logs in and reads the machine from the beginning: nothing that was known before the restart is used.
async fn visit(
    services: &UpkeepServices,
    context: &StepContext,
    server: &Server,
    found: &Identified,
) -> Result<Visit, Missing> {
    if server.bmc_address != found.bmc_address {
        let summary = format!(
            "the BMC address of {} was changed during this run, from {} to {}",
            server.serial, found.bmc_address, server.bmc_address
        );
        let next = "check the BMC at the new address with `shoal bmc doctor`";
        return Err(Missing::Step(StepError::fail(failure(class::INPUT, STEP, summary, next))));
    }
    let connected =
        services.bmc.connections.connect(server, &context.lease).await.map_err(Look::of_connect)?;
    let bmc = &connected.bmc;
    bmc.release_idle();
    let selector = SystemSelector::serial(server.serial.as_str());
    let discovery = bmc.discover(&selector).await.map_err(Look::of)?;
    let unverified = identity::verify(STEP, server, &discovery).map_err(Missing::Step)?;
    let manager = match &discovery.manager {
        Some(manager) => Some(bmc.manager_status(manager).await.map_err(Look::of)?),
        None => None,
    };
    let learned = connected
        .learned_fingerprint
        .map(|fingerprint| Effect::ServerPinned { serial: server.serial.clone(), fingerprint });
    Ok(Visit { power: discovery.system.power_state, manager, unverified, learned })
}
