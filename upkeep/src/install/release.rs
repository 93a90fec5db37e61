//! `firmware.release`: ends the hold of the files, the right to read them, and the session at the BMC. Runs at every end; needs no BMC to succeed.

use super::super::identified::input;
use super::super::{UpkeepServices, names};
use super::fetch;
use bmc::unavailable;
use engine::{StepContext, StepError, StepReport};
use model::StepName;
use model::mutant::{self, Mutant};

const STEP: &StepName = names::FW_RELEASE;

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    if !mutant::active(Mutant::KeepsFiles) {
        services.firmware.release(context.snapshot.run.id).await.map_err(|why| unavailable(STEP, &why))?;
    }
    let serial = input(STEP, context)?.server;
    let server = services.bmc.servers.server(&serial).await.map_err(|why| unavailable(STEP, &why))?;
    if let Some(server) = server {
        services.bmc.connections.close(&server, &context.lease).await;
    }
    Ok(fetch::end(services, context, StepReport::done()))
}
