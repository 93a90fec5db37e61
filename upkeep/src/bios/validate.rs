//! `bios.validate`: the order is complete. It was copied into the run, so that a later file or default changes nothing.

use super::super::identified::input;
use super::super::order::UpkeepAction;
use super::super::{ApplyBios, names};
use bmc::{class, failure};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName};

const STEP: &StepName = names::BIOS_VALIDATE;

pub(super) fn run(context: &StepContext) -> Result<StepReport, StepError> {
    let order = order(STEP, context)?;
    order.checked().map_err(|why| {
        let next = "order it again: `shoal server bios set SERIAL NAME=VALUE`";
        StepError::fail(failure(class::INPUT, STEP, why, next))
    })?;
    Ok(StepReport::done().event(NewEvent::info("bios.ordered", order.sentence())))
}

/// The parameters of the run.
pub(super) fn order(step: &StepName, context: &StepContext) -> Result<ApplyBios, StepError> {
    match input(step, context)?.action {
        UpkeepAction::Bios(order) => Ok(*order),
        other => {
            let summary = format!("the stored input is one of {}", other.kind());
            Err(StepError::fail(failure(model::class::INTERNAL, step, summary, "order it again")))
        }
    }
}
