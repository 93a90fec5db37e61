//! `firmware.plan`: reads what is installed, decides for each component, and adds the steps of those that are installed.

use redfish::RedfishError;
use serde_json::json;

use super::super::identified::identified_bmc;
use super::super::{UpkeepServices, names};
use super::component::inventory;
use super::offer::{PlanItem, Planned, planned};
use super::validate::order;
use bmc::{QUEUE, class, failure, from_redfish};
use engine::{StepContext, StepError, StepReport};
use firmware::{OwnVersions, ServerFirmware, recognise};
use model::{NewEvent, StepInstance, StepName};

const STEP: &StepName = names::FW_PLAN;

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let order = order(STEP, context)?;
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    let failed = |error: RedfishError| from_redfish(STEP, &error);
    let shown = inventory(&connected.bmc).await.map_err(failed)?;
    let system = &found.discovery.system;
    let own = OwnVersions {
        bmc: found.discovery.manager.as_ref().and_then(|manager| manager.firmware.clone()),
        bios: system.bios_version.clone(),
    };
    let unnamed = |what: &str| {
        let summary =
            format!("the BMC shows no {what} of the server, so that no firmware can be chosen for it");
        let next = "restart the BMC, then read the inventory: `shoal server inventory SERIAL --refresh`";
        StepError::fail(failure(class::UNSUPPORTED, STEP, summary, next))
    };
    let vendor = system.manufacturer.as_deref().and_then(|text| text.parse().ok());
    let model = system.model.as_deref().and_then(|text| text.parse().ok());
    let server = ServerFirmware {
        vendor: vendor.ok_or_else(|| unnamed("manufacturer"))?,
        model: model.ok_or_else(|| unnamed("model"))?,
        installed: recognise(&shown, &own).into_iter().map(|one| one.installed).collect(),
    };
    let items = planned(&order, &server)
        .map_err(|why| StepError::fail(failure(class::INPUT, STEP, why, "order the installation again")))?;
    let own = context.snapshot.plan.forward.iter().find(|instance| instance.name == *STEP);
    let queue = own.map_or(QUEUE, |instance| &instance.queue);
    report(Planned { summary: summary(&items), items }, queue).map(|report| connected.report(report))
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
        let summary = format!("the set is not installed, and nothing was changed: {}", refused.join("; "));
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
    let event = NewEvent::info("firmware.planned", plan.summary.clone()).with(json!({ "items": plan.items }));
    Ok(report.with_output(json!(plan)).event(event))
}

/// The plan in one sentence.
pub(super) fn summary(items: &[PlanItem]) -> String {
    let parts: Vec<String> = items
        .iter()
        .map(|item| match item.decision.as_str() {
            "install" => format!("install {} over {}", item.what(), item.version_now()),
            "skip" => format!("skip {} ({})", item.component, item.reason),
            _ => format!("refuse {} ({})", item.component, item.reason),
        })
        .collect();
    parts.join("; ")
}
