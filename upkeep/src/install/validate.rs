//! `firmware.validate`: holds the files of the order, so that nothing deletes them while the run needs them.

use super::super::identified::input;
use super::super::order::UpkeepAction;
use super::super::{InstallFirmware, UpkeepServices, names};
use super::FirmwareFileError;
use bmc::{class, failure, unavailable};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName};

const STEP: &StepName = names::FW_VALIDATE;

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let order = order(STEP, context)?;
    if order.files.is_empty() {
        let next = "order the installation with a set: `shoal firmware install SERIAL --set NAME`";
        return Err(StepError::fail(failure(class::INPUT, STEP, "the order has no firmware files", next)));
    }
    services
        .firmware
        .hold(context.snapshot.run.id, &order.files)
        .await
        .map_err(|why| unusable(STEP, &why))?;
    let bytes = order.files.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.file.size));
    let message = format!("{} firmware files are held, {bytes} bytes", order.files.len());
    Ok(StepReport::done().event(NewEvent::info("firmware.held", message)))
}

/// The parameters of the run.
pub(super) fn order(step: &StepName, context: &StepContext) -> Result<InstallFirmware, StepError> {
    match input(step, context)?.action {
        UpkeepAction::Firmware(order) => Ok(*order),
        other => {
            let summary = format!("the stored input is one of {}", other.kind());
            Err(StepError::fail(failure(model::class::INTERNAL, step, summary, "order it again")))
        }
    }
}

/// The error for a file that cannot be used.
pub(super) fn unusable(step: &StepName, why: &FirmwareFileError) -> StepError {
    match why {
        FirmwareFileError::Unavailable(_) => unavailable(step, why),
        FirmwareFileError::Unusable(_) => {
            let next = "nothing was sent to the BMC; add the file again with `shoal firmware add`, then order the installation again";
            StepError::fail(failure(names::class::FIRMWARE_FILE, step, why.to_string(), next))
        }
    }
}
