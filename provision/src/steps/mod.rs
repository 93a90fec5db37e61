//! The steps, one file per action. Each observes before it acts and may be called again at any time.

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
pub(super) use iso_build::{TaskImage, task_image};
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
use super::services::Site;
use engine::model::{Effect, Serial, Server};
use engine::{Reason, StepContext, StepPolicy, StepReport, Verdict, WaitRequest};

/// Pause between two looks at a BMC that has not caught up yet.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The policy of steps that only read a BMC.
fn reading_policy(site: &Site) -> StepPolicy {
    StepPolicy { interruptible: true, ..bmc_policy(site) }
}

/// The policy of cleanup: a BMC that restarts itself meanwhile is waited for.
fn cleanup_policy(site: &Site) -> StepPolicy {
    StepPolicy {
        attempts: site.settings.bmc_tries.saturating_mul(4),
        backoff_cap: Duration::from_secs(30),
        budget: site.settings.cleanup_timeout,
        ..bmc_policy(site)
    }
}

/// The policy of what must happen at every end and needs nothing but this program.
fn last_policy(_site: &Site) -> StepPolicy {
    StepPolicy { always: true, interruptible: false, ..StepPolicy::default() }
}

/// The policy of steps that change a BMC. A change under way is not dropped half way: it would land after the cleanup
/// has looked.
fn bmc_policy(site: &Site) -> StepPolicy {
    StepPolicy {
        // An insert may take the BMC two minutes inside one request.
        call: Duration::from_secs(150),
        budget: Duration::from_secs(20 * 60),
        attempts: site.settings.bmc_tries,
        backoff: Duration::from_millis(500),
        backoff_cap: Duration::from_secs(8),
        wait: None,
        interruptible: false,
        always: false,
    }
}

/// The policy of steps that only work inside of this program.
fn own_policy(_site: &Site) -> StepPolicy {
    StepPolicy::default()
}

/// What a run was asked for. A run of this kind always has it; should it not, the step says so and fails.
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

/// What an earlier step must have left.
fn left<T: serde::de::DeserializeOwned>(
    step: &str,
    context: &StepContext,
    by: &str,
) -> Result<T, StepReport> {
    context.earlier(by).ok_or_else(|| {
        StepReport::fail(failure(
            engine::class::INTERNAL,
            step,
            format!("{by} left nothing this version can read"),
            "create the job again",
        ))
    })
}

/// The server's record as it is now.
async fn server(step: &str, site: &Site, serial: &Serial) -> Result<Server, StepReport> {
    match site.directory.server(serial).await {
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

/// A BMC to work with.
struct Host {
    server: Server,
    bmc: Bmc,
    /// How often a step that talks to it is tried.
    tries: u32,
    /// A certificate that was met for the first time and is to be remembered.
    learned: Option<Effect>,
}

impl Host {
    /// Adds what was learned on the way to a report.
    fn report(&self, report: StepReport) -> StepReport {
        let taught = profiles::taught(&self.server, &self.bmc);
        self.learned.clone().into_iter().chain(taught).fold(report, StepReport::effect)
    }
}

/// Connects to the BMC of the run's server.
async fn host(step: &str, site: &Site, context: &StepContext) -> Result<Host, StepReport> {
    let serial = input(step, context)?.server;
    let server = server(step, site, &serial).await?;
    let connected = site.bmcs.connect(&server, &context.lease).await.map_err(|why| match why {
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
    Ok(Host { server, bmc: connected.bmc, tries: site.settings.bmc_tries, learned })
}

/// The BMC and what was discovered of it.
async fn discovered_bmc(
    step: &str,
    site: &Site,
    context: &StepContext,
) -> Result<(Host, Discovered), StepReport> {
    let found = left::<Discovered>(step, context, "redfish.discover")?;
    let host = host(step, site, context).await?;
    if host.server.bmc_address != found.bmc_address {
        // Another address is another machine until its serial says otherwise (lock L3a), and this job began on the first.
        return Err(StepReport::fail(failure(
            class::INPUT,
            step,
            format!(
                "the BMC address of {} was changed during this job, from {} to {}; nothing is done at the new one",
                host.server.serial, found.bmc_address, host.server.bmc_address
            ),
            "look at the machine behind the old address: media and power may be as this job left them",
        )));
    }
    host.bmc.recall(&found.discovery);
    let found = slot_fallback::in_force(&context.snapshot, found);
    Ok((host, found))
}

/// A wait for a BMC to catch up.
fn settling(reason: &'static Reason, within: Duration, detail: impl Into<String>) -> StepReport {
    StepReport::new(Verdict::Wait(WaitRequest {
        reason,
        signals: Vec::new(),
        poll: Some(LOOK_AGAIN),
        within,
        detail: detail.into(),
    }))
}

/// The address a BMC is reached at, to find out how it reaches us.
pub(super) async fn bmc_address(server: &Server) -> Result<SocketAddr, String> {
    let endpoint: redfish::Endpoint =
        server.bmc_address.parse().map_err(|why| format!("the BMC address is unusable: {why}"))?;
    let (host, port) = (endpoint.host(), endpoint.port());
    // A literal needs nobody's help.
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

/// The `run` of a step, written with `?`: an early return is a report too.
pub(super) fn settled(result: Result<StepReport, StepReport>) -> StepReport {
    result.unwrap_or_else(|report| report)
}

/// Makes a step type over a site.
macro_rules! step {
    ($(#[$doc:meta])* $name:ident, $policy:path, $run:path) => {
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) std::sync::Arc<Site>);

        #[async_trait::async_trait]
        impl engine::Step for $name {
            fn policy(&self) -> engine::StepPolicy {
                $policy(&self.0)
            }

            async fn run(&self, context: &engine::StepContext) -> engine::StepReport {
                crate::classify::naming(settled($run(&self.0, context).await), context)
            }

            fn overdue(&self, _: &engine::model::Snapshot, wait: &engine::model::Wait) -> engine::StepReport {
                crate::classify::overdue(wait)
            }
        }
    };
}
use step;
