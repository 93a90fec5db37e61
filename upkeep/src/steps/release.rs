//! The last step of every upkeep workflow: ends the session at the BMC. Runs at every end; needs no BMC to succeed.

use super::super::UpkeepServices;
use super::super::identified::input;
use bmc::unavailable;
use engine::{StepContext, StepError, StepReport};
use model::StepName;

pub(crate) async fn run(
    step: &StepName,
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    let serial = input(step, context)?.server;
    let server = services.bmc.servers.server(&serial).await.map_err(|why| unavailable(step, &why))?;
    if let Some(server) = server {
        services.bmc.connections.close(&server, &context.lease).await;
    }
    Ok(StepReport::done())
}
