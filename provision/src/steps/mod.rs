//! The steps, one file per action. A step observes before it acts and can be called again at any time.

#![expect(
    clippy::result_large_err,
    reason = "a step that cannot go on returns its report early, by `?`; it is made once"
)]

mod await_completion;
mod await_report;
mod boot_override;
mod cleanup;
mod discover;
mod eject;
mod iso_build;
mod mount;
mod power;
mod reinsert;
mod slot_fallback;
mod validate;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use redfish::Bmc;
use serde::Deserialize;

pub(super) use await_completion::AwaitCompletion;
pub(super) use await_report::AwaitReport;
pub(super) use boot_override::SetBootOverride;
pub(super) use cleanup::{CleanupBootOverride, CleanupEject, CleanupGrant, CleanupPowerOff, CleanupPowerOn};
pub(super) use discover::Discover;
pub(super) use eject::Eject;
pub(super) use iso_build::IsoBuild;
pub use iso_build::grant_context;
pub(super) use iso_build::{BuiltTaskImage, task_image};
pub(super) use mount::{MountMaintenance, MountTask};
pub use power::power_on_permit;
pub(super) use power::{PowerOff, PowerOn};
pub(super) use slot_fallback::plans;
pub use slot_fallback::slot_plan;
pub(super) use validate::ImageName;
pub(super) use validate::Validate;

use super::bmc::ConnectError;
use super::class;
use super::classify::{failure, from_redfish, unavailable};
use super::order::JobInput;
use super::outputs::Discovered;
use super::profiles;
use super::services::Services;
use engine::model::{Effect, Serial, Server};
use engine::{StepContext, StepOutcome, StepPolicy, StepReport, WaitReason, WaitRequest};

/// Delay between two reads of a BMC that does not show a change yet.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The policy of steps that only read a BMC.
fn reading_policy(services: &Services) -> StepPolicy {
    StepPolicy { interruptible: true, ..bmc_policy(services) }
}

/// The policy of cleanup steps: enough attempts to wait for a BMC that restarts.
fn cleanup_policy(services: &Services) -> StepPolicy {
    StepPolicy {
        attempts: services.settings.bmc_tries.saturating_mul(4),
        backoff_cap: Duration::from_secs(30),
        budget: services.settings.cleanup_timeout,
        ..bmc_policy(services)
    }
}

/// The policy of the last step, which must run at every end and needs no BMC.
fn last_policy(_site: &Services) -> StepPolicy {
    StepPolicy { runs_past_deadline: true, interruptible: false, ..StepPolicy::default() }
}

/// The policy of steps that change a BMC. They are not interruptible: the BMC could apply an interrupted change after cleanup
/// has read its state.
fn bmc_policy(services: &Services) -> StepPolicy {
    StepPolicy {
        // One insert request may take the BMC two minutes.
        call: Duration::from_secs(150),
        budget: Duration::from_secs(20 * 60),
        attempts: services.settings.bmc_tries,
        backoff: Duration::from_millis(500),
        backoff_cap: Duration::from_secs(8),
        wait: None,
        interruptible: false,
        runs_past_deadline: false,
    }
}

/// The policy of steps that use no BMC.
fn own_policy(_site: &Services) -> StepPolicy {
    StepPolicy::default()
}

/// Reads the stored input of the run.
fn input(step: &str, context: &StepContext) -> Result<JobInput, StepReport> {
    Deserialize::deserialize(&*context.snapshot.input).map_err(|why| {
        StepReport::fail(failure(
            engine::class::INTERNAL,
            step,
            format!("the stored input of this job cannot be read: {why}"),
            "create the job again",
        ))
    })
}

/// Reads the output of an earlier step.
fn output_of<T: serde::de::DeserializeOwned>(
    step: &str,
    context: &StepContext,
    by: &str,
) -> Result<T, StepReport> {
    context.find_output(by).ok_or_else(|| {
        StepReport::fail(failure(
            engine::class::INTERNAL,
            step,
            format!("the output of {by} is missing, or this version cannot read it"),
            "create the job again",
        ))
    })
}

/// Reads the current record of a server.
async fn server(step: &str, services: &Services, serial: &Serial) -> Result<Server, StepReport> {
    match services.servers.server(serial).await {
        Ok(Some(server)) => Ok(server),
        Ok(None) => Err(StepReport::fail(failure(
            class::INPUT,
            step,
            format!("server {serial} is no longer registered"),
            "register it again, then create the job again",
        ))),
        Err(why) => Err(unavailable(step, &why)),
    }
}

/// A connected BMC and the record of its server.
struct ConnectedBmc {
    server: Server,
    bmc: Bmc,
    /// Maximum number of attempts of a step that uses the BMC.
    tries: u32,
    /// The effect that stores a certificate fingerprint read for the first time.
    learned: Option<Effect>,
}

impl ConnectedBmc {
    /// Adds the effects that store what was learned to a report.
    fn report(&self, report: StepReport) -> StepReport {
        let taught = profiles::learned_effect(&self.server, &self.bmc);
        self.learned.clone().into_iter().chain(taught).fold(report, StepReport::effect)
    }
}

/// Connects to the BMC of the run's server.
async fn connect(step: &str, services: &Services, context: &StepContext) -> Result<ConnectedBmc, StepReport> {
    let serial = input(step, context)?.server;
    let server = server(step, services, &serial).await?;
    let connected = services.bmcs.connect(&server, &context.lease).await.map_err(|why| match why {
        ConnectError::Record(_) => StepReport::fail(failure(
            class::INPUT,
            step,
            why.to_string(),
            format!("correct it with `shoal server update {serial}`"),
        )),
        ConnectError::Bmc(why) => from_redfish(step, &why),
    })?;
    let learned = connected
        .learned_fingerprint
        .map(|fingerprint| Effect::ServerPinned { serial: serial.clone(), fingerprint });
    Ok(ConnectedBmc { server, bmc: connected.bmc, tries: services.settings.bmc_tries, learned })
}

/// Connects to the BMC that `redfish.discover` verified, and returns its output with the current slot plan.
async fn discovered_bmc(
    step: &str,
    services: &Services,
    context: &StepContext,
) -> Result<(ConnectedBmc, Discovered), StepReport> {
    let found = output_of::<Discovered>(step, context, "redfish.discover")?;
    let connected = connect(step, services, context).await?;
    if connected.server.bmc_address != found.bmc_address {
        // A new address may be another machine (decision D3a), and this job began at the old one.
        return Err(StepReport::fail(failure(
            class::INPUT,
            step,
            format!(
                "the BMC address of {} was changed during this job, from {} to {}; the job does not use the new address",
                connected.server.serial, found.bmc_address, connected.server.bmc_address
            ),
            "check the machine behind the old address: media and power may be as this job left them",
        )));
    }
    connected.bmc.recall(&found.discovery);
    let found = slot_fallback::current(&context.snapshot, found);
    Ok((connected, found))
}

/// Builds a wait until the BMC shows a change.
fn wait_for_bmc(reason: &'static WaitReason, within: Duration, detail: impl Into<String>) -> StepReport {
    StepReport::new(StepOutcome::Wait(WaitRequest {
        reason,
        signals: Vec::new(),
        poll: Some(POLL_INTERVAL),
        within,
        detail: detail.into(),
    }))
}

/// Resolves the address of a BMC, to find the local address that routes to it.
pub(super) async fn bmc_address(server: &Server) -> Result<SocketAddr, String> {
    let endpoint: redfish::Endpoint =
        server.bmc_address.parse().map_err(|why| format!("the BMC address is unusable: {why}"))?;
    let (host, port) = (endpoint.host(), endpoint.port());
    // An address literal needs no resolver.
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let name = format!("{host}:{port}");
    let resolved = tokio::task::spawn_blocking(move || {
        (host.trim_matches(['[', ']']), port).to_socket_addrs().map(|mut addresses| addresses.next())
    })
    .await;
    match resolved {
        Ok(Ok(Some(address))) => Ok(address),
        _ => Err(format!("the BMC's name {name} does not resolve")),
    }
}

/// Turns the result of a step written with `?` into its report.
pub(super) fn into_report(result: Result<StepReport, StepReport>) -> StepReport {
    result.unwrap_or_else(|report| report)
}

/// Defines a step type over the services.
macro_rules! step {
    ($(#[$doc:meta])* $name:ident, $policy:path, $run:path) => {
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) std::sync::Arc<Services>);

        #[async_trait::async_trait]
        impl engine::Step for $name {
            fn policy(&self) -> engine::StepPolicy {
                $policy(&self.0)
            }

            async fn run(&self, context: &engine::StepContext) -> engine::StepReport {
                crate::classify::name_server(into_report($run(&self.0, context).await), context)
            }

            fn on_wait_deadline(&self, _: &engine::model::Snapshot, wait: &engine::model::Wait) -> engine::StepReport {
                crate::classify::overdue(wait)
            }
        }
    };
}
use step;
