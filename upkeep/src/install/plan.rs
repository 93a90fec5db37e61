//! `firmware.plan`: reads what is installed, decides for each component, and adds the steps of those that are installed.

use std::time::Duration;

use redfish::RedfishError;
use serde_json::json;

use super::super::identified::identified_bmc;
use super::super::{InstallFirmware, UpkeepServices, names, waits};
use super::component::{inventory, wait_for_unread};
use super::offer::{PlanItem, Planned, planned};
use super::validate::order;
use bmc::{QUEUE, class, failure, from_redfish, wait_for_bmc};
use engine::{StepContext, StepError, StepReport, WaitRequest};
use firmware::{OwnVersions, ServerFirmware};
use model::{EventLevel, NewEvent, StepInstance, StepName, StepPhase};

const STEP: &StepName = names::FW_PLAN;
/// How long a host boots until its BMC lists all parts.
const BOOT_TIME: Duration = Duration::from_secs(10 * 60);
/// The delay between two reads meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let order = order(STEP, context)?;
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    let failed = |error: RedfishError| from_redfish(STEP, &error);
    let shown = inventory(&connected.bmc).await.map_err(failed)?;
    let system = &found.discovery.system;
    let own = OwnVersions::from(&found.discovery);
    let named = (system.manufacturer.as_deref(), system.model.as_deref());
    let read = (&shown.members[..], shown.unreadable);
    let server = ServerFirmware::of_shown(read, &own, named).map_err(|missing| {
        let summary =
            format!("the BMC shows no {missing} of the server, so that no firmware can be chosen for it");
        let next = "restart the BMC, then read the inventory: `shoal server inventory SERIAL --refresh`";
        StepError::fail(failure(class::UNSUPPORTED, STEP, summary, next))
    })?;
    let wait = parts_may_appear(context, &order, &server).map(StepReport::wait);
    if let Some(wait) = wait.or_else(|| wait_for_unread(context, server.unread)) {
        connected.bmc.release_idle();
        return Ok(wait);
    }
    let items = planned(&order, &server)
        .map_err(|why| StepError::fail(failure(class::INPUT, STEP, why, "order the installation again")))?;
    let installs: Vec<String> = items.iter().filter(|item| item.installs()).map(PlanItem::what).collect();
    if !installs.is_empty() {
        order.window().may_send(STEP, context, &installs.join(", "))?;
    }
    let own = context.snapshot.plan.forward.iter().find(|instance| instance.name == *STEP);
    let queue = own.map_or(QUEUE, |instance| &instance.queue);
    report(Planned { summary: summary(&items), items }, queue).map(|report| connected.report(report))
}

/// Some parts are listed only after the host has tested them. A host that this run has just powered on gets time for that, so that a
/// part does not count as absent.
fn parts_may_appear(
    context: &StepContext,
    order: &InstallFirmware,
    server: &ServerFirmware,
) -> Option<WaitRequest> {
    let powered_on = context.snapshot.records_of(names::FW_POWER_ON).next_back()?;
    let since = powered_on.ended_at.filter(|_| powered_on.phase == StepPhase::Done)?;
    let left = BOOT_TIME.checked_sub(context.now().since(since))?;
    let is_shown = |component| server.installed.iter().any(|installed| installed.component == component);
    let missing = order.files.iter().map(|entry| entry.file.component).find(|part| !is_shown(*part))?;
    let detail = format!("the host was powered on, and its BMC shows no {missing} yet");
    let mut wait = wait_for_bmc(&waits::PARTS, left + BOOT_TIME, detail);
    wait.poll = Some(LOOK_INTERVAL);
    Some(wait)
}

/// The report of a plan. The steps of its components are executed in `queue`, like this step.
fn report(plan: Planned, queue: &str) -> Result<StepReport, StepError> {
    let refused: Vec<String> = plan
        .items
        .iter()
        .filter(|item| item.decision == "refuse")
        .map(|item| {
            let then = item.then.as_ref().map_or(String::new(), |then| format!(" to {then}"));
            format!("{} from {}{then}: {}", item.component, item.version_now(), item.reason)
        })
        .collect();
    if !refused.is_empty() {
        let summary = format!("the set is not installed, and nothing was changed: {}", listed(&refused));
        let next = "correct the set or the order as the plan says; `shoal firmware plan SERIAL` shows it";
        return Err(StepError::fail(failure(names::class::PLAN_REFUSED, STEP, summary, next))
            .with_output(json!(plan)));
    }
    let mut report = StepReport::done();
    for item in plan.items.iter().filter(|item| item.installs()) {
        let instance = |name: &&StepName| StepInstance {
            name: (*name).clone(),
            key: item.key(),
            queue: queue.to_owned(),
        };
        report.plan.extend(names::OF_COMPONENT.iter().map(instance));
    }
    let mut event =
        NewEvent::info("firmware.planned", plan.summary.clone()).with(json!({ "items": plan.items }));
    if plan.items.iter().any(|item| item.decision == "unknown") {
        event.level = EventLevel::Warn;
    }
    Ok(report.with_output(json!(plan)).event(event))
}

/// The plan in one sentence.
pub(super) fn summary(items: &[PlanItem]) -> String {
    let parts: Vec<String> = items
        .iter()
        .map(|item| match item.decision.as_str() {
            "install" => format!("install {} over {}", item.what(), item.version_now()),
            "skip" => format!("skip {} ({})", item.component, item.reason),
            "unknown" => format!("leave {} ({})", item.component, item.reason),
            _ => format!("refuse {} ({})", item.component, item.reason),
        })
        .collect();
    listed(&parts)
}

/// The longest list of components in words, in bytes: the text of an event has less than twice that.
const MAX_LISTED: usize = 4096;

/// The parts as one text. Those that would make it too long are counted.
fn listed(parts: &[String]) -> String {
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 && text.len() + part.len() > MAX_LISTED {
            return format!("{text}; and {} more", parts.len() - index);
        }
        text.push_str(if index == 0 { "" } else { "; " });
        text.push_str(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_components_of_many_drives_are_counted_where_their_list_would_be_too_long() {
        let part = |number: usize| {
            format!("install drive in slot {number} 2.0 over 1.0 (the set has a newer version)")
        };
        assert_eq!(listed(&["one".to_owned(), "two".to_owned()]), "one; two");
        let text = listed(&(0..256).map(part).collect::<Vec<_>>());
        assert!(text.len() < 2 * MAX_LISTED && text.ends_with(" more"), "{text}");
    }
}
