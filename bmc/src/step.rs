//! Helpers of steps that use a BMC.

use std::time::Duration;

use redfish::Bmc;
use serde::de::DeserializeOwned;

use super::class;
use super::classify::failure;
use super::profiles;
use engine::{StepContext, StepError, StepReport, WaitReason, WaitRequest};
use model::{Effect, Server, StepName};

/// Delay between two reads of a BMC that does not show a change yet.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The longest pause before a change is sent again.
const RESEND_AT_MOST: Duration = Duration::from_secs(15);

/// A connected BMC and the record of its server.
pub struct ConnectedBmc {
    /// The record of the server.
    pub server: Server,
    /// The client.
    pub bmc: Bmc,
    /// Maximum number of attempts of a step that uses the BMC.
    pub tries: u32,
    /// The effect that stores a certificate fingerprint read for the first time.
    pub(super) learned: Option<Effect>,
}

impl ConnectedBmc {
    /// Adds the effects that store what was learned about the BMC to a report.
    #[must_use]
    pub fn report(&self, report: StepReport) -> StepReport {
        let behaviour = profiles::learned_effect(&self.server, &self.bmc);
        self.learned.clone().into_iter().chain(behaviour).fold(report, StepReport::effect)
    }
}

/// Reads the output of an earlier step.
///
/// # Errors
/// Returns a failure when the output is missing or cannot be read.
pub fn output_of<T: DeserializeOwned>(
    step: &StepName,
    context: &StepContext,
    by: &StepName,
) -> Result<T, StepError> {
    context.find_output(by).ok_or_else(|| {
        StepError::fail(failure(
            model::class::INTERNAL,
            step,
            format!("the output of {by} is missing, or this version cannot read it"),
            "create the job again",
        ))
    })
}

/// Builds a wait until the BMC shows a change that each call of the step sends again: the pause grows with the time of the wait.
pub(super) fn wait_after_resend(
    context: &StepContext,
    reason: &'static WaitReason,
    within: Duration,
    detail: impl Into<String>,
) -> WaitRequest {
    let wait = context.previous_wait.as_ref().filter(|wait| wait.reason == reason.name);
    let waited = wait.map_or(Duration::ZERO, |wait| context.now().since(wait.since));
    WaitRequest { poll: Some(resend_pause(waited)), ..wait_for_bmc(reason, within, detail) }
}

/// The pause before a change is sent again that was first sent so long ago.
fn resend_pause(waited: Duration) -> Duration {
    (waited / 2).clamp(POLL_INTERVAL, RESEND_AT_MOST)
}

/// Builds a wait until the BMC shows a change.
pub fn wait_for_bmc(reason: &'static WaitReason, within: Duration, detail: impl Into<String>) -> WaitRequest {
    let poll = Some(POLL_INTERVAL);
    WaitRequest { reason, signals: Vec::new(), poll, limit: within.into(), detail: detail.into() }
}

/// Builds the error of a step that lost the lease; the engine does not commit it.
pub fn lease_lost(step: &StepName) -> StepError {
    StepError::retry(failure(
        class::TRANSIENT,
        step,
        "the lease was lost",
        "nothing; another worker continues the job",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_a_bmc_shows_late_is_sent_again_a_few_times() {
        let (mut waited, mut sent) = (Duration::ZERO, 1);
        while waited < Duration::from_secs(180) {
            let pause = resend_pause(waited);
            assert!(pause >= POLL_INTERVAL && pause <= RESEND_AT_MOST, "{pause:?}");
            (waited, sent) = (waited + pause, sent + 1);
        }
        assert!(sent < 20, "{sent}");
    }
}
