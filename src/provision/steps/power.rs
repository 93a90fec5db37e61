//! `redfish.power-off` and `redfish.power-on`.
//!
//! ```text
//!  power-on, called again:   host not off            -> done
//!                            override consumed       -> done (the BMC reports its power state late)
//!                            media read since asking -> done
//!                            none of these           -> send On (never a restart)
//! ```

use std::sync::Arc;
use std::time::Duration;

use redfish::{PowerState, ResetType, SystemInfo};
use serde_json::json;

use super::super::evidence::{Built, Discovered, PowerAsked};
use super::super::fault::{failure, of_redfish};
use super::super::report::SIGNAL;
use super::super::site::Site;
use super::super::waits;
use super::mount::lost;
use super::{Host, bmc_policy, class, known_host, left, settled, settling, step};
use crate::engine::{StepContext, StepReport, Verdict};
use crate::model::NewEvent;
use crate::model::mutant::{self, Mutant};

/// How long a host may take to show a power state it was told to take.
const POWER_WITHIN: Duration = Duration::from_secs(180);
/// After this long without an effect the request is sent again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

step!(
    /// Makes the host off, forced.
    PowerOff,
    bmc_policy,
    off
);

step!(
    /// Makes the host on, from the medium, once.
    PowerOn,
    bmc_policy,
    on
);

async fn off(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.power-off";
    let (host, found) = known_host(STEP, site, context).await?;
    force_off(STEP, context, &host, &found.discovery.system).await
}

/// Whether a power request that has no effect yet is to be sent (again): never sent, sent long ago, or sent by an owner that
/// died before it was answered, so that nobody knows whether it ever left.
pub(super) fn due(context: &StepContext, asked: &PowerAsked) -> bool {
    let orphaned = context.reentered && context.waited.is_none();
    orphaned || asked.sent_at.is_none_or(|sent| context.now().since(sent) >= ASK_AGAIN)
}

/// Forces the host off and reads it back.
pub(super) async fn force_off(
    step: &str,
    context: &StepContext,
    host: &Host,
    system: &SystemInfo,
) -> Result<StepReport, StepReport> {
    let state = host.bmc.power_state(system).await.map_err(|error| of_redfish(step, &error))?;
    let mut asked: PowerAsked = context.own().unwrap_or_default();
    if state == PowerState::Off {
        let event = match asked.sent {
            0 => NewEvent::info("redfish.power", "host was off"),
            _ => NewEvent::info("redfish.power", "host off, read back"),
        };
        return Ok(host.report(StepReport::done().leaving(json!(asked)).event(event)));
    }
    if due(context, &asked) {
        asked.sent_at = Some(context.now());
        asked.sent += 1;
        context.checkpoint(json!(asked)).await.map_err(|_lost| lost(step))?;
        let reset =
            host.bmc.reset(system, ResetType::ForceOff).await.map_err(|error| of_redfish(step, &error))?;
        if reset.confirmed {
            return Ok(host.report(
                StepReport::done()
                    .leaving(json!(asked))
                    .event(NewEvent::info("redfish.power", "host forced off, read back")),
            ));
        }
    }
    Ok(settling(&waits::POWER_OFF, POWER_WITHIN, "the host was told to power off and is still on")
        .leaving(json!(asked)))
}

async fn on(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.power-on";
    if context.snapshot.pending().any(|signal| signal.name == SIGNAL) {
        // A machine that reports was started, whatever its BMC says or whether it answers.
        return Ok(StepReport::done()
            .event(NewEvent::info("redfish.power", "the machine has reported: it was started")));
    }
    let (host, found) = known_host(STEP, site, context).await?;
    let system = &found.discovery.system;
    let mut asked: PowerAsked = context.own().unwrap_or_default();
    let state = host.bmc.power_state(system).await.map_err(|error| of_redfish(STEP, &error))?;
    if context.reentered && asked.sent > 0 && mutant::active(Mutant::RestartsAfterCrash) {
        // What somebody who distrusts the power state might do.
        let _sent = host.bmc.reset(system, ResetType::ForceRestart).await;
    }
    if state != PowerState::Off {
        let event = if asked.sent == 0 {
            NewEvent::warn("redfish.power", "host was powered on by somebody else; going on")
        } else {
            NewEvent::info("redfish.power", "host on, read back")
        };
        return Ok(host.report(StepReport::done().leaving(json!(asked)).event(event)));
    }
    if asked.sent > 0
        && let Some(sign) = started(STEP, site, context, &host, &found).await?
    {
        let event =
            NewEvent::info("redfish.power", format!("host was started: {sign}; its BMC reports off as yet"));
        return Ok(host.report(StepReport::done().leaving(json!(asked)).event(event)));
    }
    if due(context, &asked) {
        asked.sent_at = Some(context.now());
        asked.sent += 1;
        context.checkpoint(json!(asked)).await.map_err(|_lost| lost(STEP))?;
        let reset = host.bmc.reset(system, ResetType::On).await.map_err(|error| of_redfish(STEP, &error))?;
        if reset.confirmed {
            return Ok(host.report(
                StepReport::done()
                    .leaving(json!(asked))
                    .event(NewEvent::info("redfish.power", "host on, read back")),
            ));
        }
    }
    let mut waiting = settling(
        &waits::POWER_ON,
        POWER_WITHIN,
        "the host was told to power on, a read does not show it yet",
    );
    if let Verdict::Wait(wait) = &mut waiting.verdict {
        wait.signals.push(SIGNAL);
    }
    Ok(waiting.leaving(json!(asked)))
}

/// A sign that the host was started since we asked for it, although the BMC says off.
async fn started(
    step: &str,
    site: &Site,
    context: &StepContext,
    host: &Host,
    found: &Discovered,
) -> Result<Option<&'static str>, StepReport> {
    let override_ =
        host.bmc.boot_override(&found.discovery.system).await.map_err(|error| of_redfish(step, &error))?;
    if !override_.is_active() {
        return Ok(Some("the one-time boot was consumed"));
    }
    let built: Built = left(step, context, "iso.build")?;
    let spliced = found.spliced.as_ref().map(|spliced| &spliced.grant);
    for grant in [&built.boot_grant, &built.task_grant].into_iter().chain(spliced) {
        let reads = site.grants.evidence(grant).await.map_err(|why| {
            StepReport::new(crate::engine::Verdict::Retry(failure(
                class::TRANSIENT,
                step,
                why.reason,
                "see /readyz for what is wrong with the controller",
            )))
        })?;
        // The BMC itself looked at the media when they were inserted; only what came after the intent counts.
        let since = context.record.started_at.timestamp();
        if reads.last_read_at.is_some_and(|read| read > since) {
            return Ok(Some("media were read"));
        }
    }
    Ok(None)
}
