//! `firmware.confirm`: reads the inventory once more, stores it, and compares it with the whole plan: the update of a later
//! component may have undone that of an earlier one.

use redfish::{RedfishError, SystemSelector};
use serde_json::json;

use super::super::identified::identified_bmc;
use super::super::{UpkeepServices, names};
use super::component::{inventory, of_item, wait_for_unread};
use super::offer::Planned;
use bmc::{failure, from_redfish, output_of};
use engine::{StepContext, StepError, StepReport};
use firmware::{OwnVersions, VersionOrder, candidates, compare};
use model::mutant::{self, Mutant};
use model::{Effect, EventLevel, NewEvent, StepName};

const STEP: &StepName = names::FW_CONFIRM;

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let plan: Planned = output_of(STEP, context, names::FW_PLAN)?;
    let installs: Vec<_> = plan.items.iter().filter(|item| item.installs()).collect();
    if installs.is_empty() {
        let unknown = plan.items.iter().any(|item| item.decision == "unknown");
        let summary = match unknown {
            false => "nothing to install: every component has its version".to_owned(),
            true => format!("nothing was installed: {}", super::plan::summary(&plan.items)),
        };
        let output = json!({ "summary": summary, "items": plan.items });
        let mut event = NewEvent::info("firmware.current", summary);
        if unknown {
            event.level = EventLevel::Warn;
        }
        return Ok(StepReport::done().with_output(output).event(event));
    }
    let (connected, _) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    let failed = |error: RedfishError| from_redfish(STEP, &error);
    let shown = inventory(&connected.bmc).await.map_err(failed)?;
    // The first step of the run has seen the versions from before.
    let selector = SystemSelector::serial(connected.server.serial.as_str());
    let discovery = connected.bmc.discover(&selector).await.map_err(failed)?;
    let own = OwnVersions::from(&discovery);
    let mut missing = Vec::new();
    for (item, then) in installs.iter().filter_map(|item| Some((item, item.then.as_ref()?))) {
        let all = candidates(&shown.members, item.component);
        let is = of_item(&all, item, then, &own).and_then(|one| one.installed.version);
        let is_new = is.is_some_and(|is| compare(&is, then) == VersionOrder::Same);
        // What no member of the inventory shows was verified by what the manager or the system itself shows.
        if !is_new && !all.is_empty() {
            missing.push(item.what());
        }
    }
    if !missing.is_empty()
        && let Some(wait) = wait_for_unread(context, shown.unreadable)
    {
        connected.bmc.release_idle();
        return Ok(wait);
    }
    if !missing.is_empty() && !mutant::active(Mutant::TrustsTask) {
        let summary = format!(
            "{} was installed and verified, and another version is installed now: the update of another component replaced it",
            missing.join(", ")
        );
        let next = "order the installation again; compare the versions of the set with what the vendor says about their order";
        return Err(StepError::fail(failure(names::class::VERSION_UNCHANGED, STEP, summary, next)));
    }
    let hardware = connected.bmc.hardware(&discovery).await.map_err(failed)?;
    let what: Vec<String> =
        installs.iter().map(|item| format!("{} (was {})", item.what(), item.version_now())).collect();
    let summary = format!("installed {}", what.join(", "));
    let stored =
        Effect::ServerHardwareRead { serial: connected.server.serial.clone(), hardware: json!(hardware) };
    let report = StepReport::done()
        .with_output(json!({ "summary": summary, "items": plan.items }))
        .event(NewEvent::info("firmware.installed", summary))
        .effect(stored);
    Ok(connected.report(report))
}
