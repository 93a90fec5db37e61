//! The steps, one file per action. A step observes before it acts and can be called again at any time.

mod await_completion;
mod await_media;
mod await_report;
mod await_session;
mod boot_again;
mod boot_override;
mod cleanup;
mod discover;
mod eject;
mod iso_build;
mod mount;
mod power;
mod power_on_permit;
mod reinsert;
mod reported;
mod signs;
mod slot_fallback;
mod validate;

use std::time::Duration;

use serde::Deserialize;

pub(super) use await_completion::AwaitCompletion;
pub(super) use await_report::AwaitReport;
pub(super) use await_session::AwaitSession;
pub(super) use boot_override::SetBootOverride;
pub(super) use cleanup::{CleanupBootOverride, CleanupEject, CleanupGrant, CleanupPowerOff, CleanupPowerOn};
pub(super) use discover::Discover;
pub(super) use eject::Eject;
pub(super) use iso_build::IsoBuild;
pub use iso_build::remove_task_images;
pub(super) use iso_build::{BuiltTaskImage, task_image};
pub(super) use mount::{MountMaintenance, MountTask};
pub(super) use power::{PowerOff, PowerOn};
pub(super) use slot_fallback::slot_fallbacks;
pub use slot_fallback::slot_plan;
pub(super) use validate::ImageName;
pub(super) use validate::Validate;

use super::class;
use super::names;
use super::order::JobInput;
use super::outputs::Discovered;
use super::services::Services;
use ::recipe::Recipe;
use bmc::{ConnectedBmc, failure, output_of};
use engine::{StepContext, StepError, StepPolicy};
use model::StepName;

/// The policy of steps that only read a BMC.
fn reading_policy(services: &Services) -> StepPolicy {
    services.bmc.reading_policy()
}

/// The policy of steps that change a BMC.
fn bmc_policy(services: &Services) -> StepPolicy {
    services.bmc.changing_policy()
}

/// The policy of cleanup steps: enough attempts to wait for a BMC that restarts.
fn cleanup_policy(services: &Services) -> StepPolicy {
    StepPolicy {
        attempts: services.bmc.tries.saturating_mul(4),
        backoff_cap: Duration::from_secs(30),
        budget: services.settings.cleanup_timeout,
        ..bmc_policy(services)
    }
}

/// The policy of the last step, which must run at every end and needs no BMC.
fn last_policy(_services: &Services) -> StepPolicy {
    StepPolicy::last()
}

/// The policy of steps that use no BMC.
fn own_policy(_services: &Services) -> StepPolicy {
    StepPolicy::default()
}

/// Reads the stored input of the run.
fn input(step: &StepName, context: &StepContext) -> Result<JobInput, StepError> {
    Deserialize::deserialize(&*context.snapshot.input).map_err(|why| {
        StepError::fail(failure(
            model::class::INTERNAL,
            step,
            format!("the stored input of this job cannot be read: {why}"),
            "create the job again",
        ))
    })
}

/// Reads the recipe with which the job was accepted, on the network of the server's record; the only way to it for a step. It is not
/// validated again.
fn recipe(step: &StepName, context: &StepContext) -> Result<Recipe, StepError> {
    let stored = context.snapshot.recipe.as_ref().ok_or_else(|| "the job has none".to_owned());
    let read = stored.and_then(|stored| {
        Recipe::accepted(&stored.json, &stored.schema_id).map_err(|errors| {
            errors.first().map_or_else(String::new, |error| format!("{}: {}", error.path, error.message))
        })
    });
    let recipe = read.map_err(|why| {
        StepError::fail(failure(
            model::class::INTERNAL,
            step,
            format!("the stored recipe of this job cannot be read: {why}"),
            "create the job again",
        ))
    })?;
    Ok(match input(step, context)?.network {
        Some(network) => recipe.on_network(network),
        None => recipe,
    })
}

/// Connects to the BMC that `redfish.discover` verified, and returns its output with the current slot plan.
async fn discovered_bmc(
    step: &StepName,
    services: &Services,
    context: &StepContext,
) -> Result<(ConnectedBmc, Discovered), StepError> {
    let found = output_of::<Discovered>(step, context, names::DISCOVER)?;
    let serial = input(step, context)?.server;
    let verified = (found.bmc_address.as_str(), &found.discovery);
    let connected = services.bmc.connect_verified(step, context, &serial, verified).await?;
    let found = slot_fallback::current(&context.snapshot, found);
    Ok((connected, found))
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
                bmc::finished($run(&self.0, context).await.into(), context, &[super::names::DISCOVER])
            }

            fn on_wait_deadline(&self, _: &model::Snapshot, wait: &model::Wait) -> engine::StepReport {
                bmc::overdue(wait)
            }
        }
    };
}
use step;
