//! The verbs that operators can use on the jobs of each workflow.
//!
//! ```text
//!                           cancel  hold  resume  retry
//!   provision                yes    yes    yes    with its recipe and images
//!   diagnostics              yes     -     yes    with its options
//!   power.cycle, bmc.reset,
//!   inventory.out-of-band,
//!   firmware.install,
//!   bios.apply               yes     -     yes    with its parameters
//!   unknown                  yes    yes    yes     -       (a job of another version of the program)
//! ```
//!
//! A job of `rescue.target` in its session offers `finish` too.
//!
//! The first three columns are `Workflow::verbs` of the workflow; the phase of a job decides which of them apply now.

use strum::VariantArray;

use super::super::Api;
use model::{Job, Phase, Verb};

/// How a job of a workflow is retried.
#[derive(Clone, Copy)]
pub(super) enum Retry {
    /// With its recipe and images.
    Installation,
    /// With its options.
    Diagnostics,
    /// With its parameters.
    Upkeep,
}

impl Retry {
    /// How jobs of a workflow are retried; `None` when they are not.
    pub(super) fn of(workflow: &str) -> Option<Self> {
        match workflow {
            provision::WORKFLOW => Some(Self::Installation),
            diagnostics::WORKFLOW => Some(Self::Diagnostics),
            upkeep if upkeep::WORKFLOWS.contains(&upkeep) => Some(Self::Upkeep),
            _ => None,
        }
    }
}

/// Returns the verbs that an operator can use on a job now: those that its workflow offers in its phase, `finish` and `retry`.
pub(super) fn available(api: &Api, job: &Job) -> Vec<&'static str> {
    let workflow = api.engine.workflows().get(&job.run.workflow);
    let offered = workflow.map_or(Verb::VARIANTS, |workflow| workflow.verbs());
    let allowed = offered.iter().filter(|verb| verb.allowed(job.run.phase)).map(|verb| verb.as_str());
    let retry = (job.run.phase == Phase::Ended && Retry::of(&job.run.workflow).is_some()).then_some("retry");
    let finish = provision::may_finish(job).then_some("finish");
    allowed.chain(finish).chain(retry).collect()
}
