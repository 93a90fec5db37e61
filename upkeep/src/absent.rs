//! A BMC that does not respond while it flashes, restarts or applies settings: how long it is waited for, and what ends the wait.
//!
//! ```text
//!   no response, not ready      -> wait, thirty minutes at most, or the time of an update, then failure `bmc_not_back`
//!   logins refused              -> wait with a minute between two, as long
//!   another certificate, or
//!   one that is not trusted     -> hold `certificate_changed`: the operator compares and registers it
//! ```

use std::time::Duration;

use redfish::{Bmc, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::certificate::{self, ShownCertificate};
use super::identified::{Identified, input};
use super::look::Look;
use super::{UpkeepServices, names, waits};
use bmc::{class, failure, output_of, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use model::{StepName, Time};

/// How long a BMC may be away in the middle of a change.
pub(super) const AWAY_LIMIT: Duration = Duration::from_secs(30 * 60);
/// The delay between two looks at a BMC that is away.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// The delay after a refused login: a BMC that locks accounts must not be asked often.
pub(super) const AFTER_DENIAL: Duration = Duration::from_secs(60);

/// How long a BMC may be away that flashes: one that does not respond while it writes may take the whole time of an update.
pub(super) fn away_limit(update: Duration) -> Duration {
    AWAY_LIMIT.max(update)
}

/// Since when the BMC is away; a part of the output of each step that can meet such a BMC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Absent {
    since: Option<Time>,
    /// Whether the run was held for a certificate during this absence; the time of a hold does not count.
    held: bool,
    /// The longest absence that is over. A BMC that starts can be away once more for a moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest: Option<Away>,
}

/// An absence of the BMC, from the first read without a response to the first one with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Away {
    since: Time,
    until: Time,
}

impl Away {
    /// How long the BMC was away.
    pub(super) fn time(&self) -> Duration {
        self.until.since(self.since)
    }
}

/// Why nothing can be read from the BMC now.
#[derive(Debug)]
pub(super) enum Absence {
    Away(String),
    Certificate(ShownCertificate),
    Denied(String),
}

impl Absence {
    /// Returns the absence that a failed read of the BMC shows. A stored record that cannot be used fails the step.
    pub(super) fn of(step: &StepName, look: Look) -> Result<Self, StepError> {
        Ok(match look {
            Look::Silent(why) => Self::Away(why),
            Look::OtherCertificate(error) => Self::Certificate(ShownCertificate::of(&error)),
            Look::Denied(error) => Self::Denied(error.kind.to_string()),
            Look::Error(error) => Self::Away(error.to_string()),
            Look::Unusable(why) => {
                let next = "correct it with `shoal server update SERIAL`";
                return Err(StepError::fail(failure(class::INPUT, step, why, next)));
            }
        })
    }
}

impl Absence {
    /// Why nothing can be read, for operators.
    pub(super) fn words(&self) -> &str {
        match self {
            Self::Away(why) | Self::Denied(why) => why,
            Self::Certificate(ShownCertificate { why: Some(why), .. }) => why,
            Self::Certificate(_) => "it shows another certificate",
        }
    }

    /// Returns the absence that a polled state of an update shows, if it is one.
    pub(super) fn of_state(state: &UpdateState) -> Option<Self> {
        match state {
            UpdateState::Away { why } => Some(Self::Away(why.clone())),
            UpdateState::CertificateChanged { shown, why } => {
                Some(Self::Certificate(ShownCertificate { fingerprint: shown.clone(), why: why.clone() }))
            }
            UpdateState::LoginRefused { why } => Some(Self::Denied(why.clone())),
            _ => None,
        }
    }
}

impl Absent {
    /// The BMC does not respond. Returns since when.
    pub(super) fn begin(&mut self, now: Time) -> Time {
        *self.since.get_or_insert(now)
    }

    /// The BMC responds again. Returns whether it was away.
    pub(super) fn over(&mut self, now: Time) -> bool {
        let was_away = self.since.is_some() || self.held;
        *self = Self { longest: self.away(now), ..Self::default() };
        was_away
    }

    /// The longest absence; one that is not over lasts until now.
    pub(super) fn away(&self, now: Time) -> Option<Away> {
        let open = self.since.map(|since| Away { since, until: now });
        open.into_iter().chain(self.longest).max_by_key(Away::time)
    }

    /// The report of a step that met an absent BMC, which may be away for `limit`. `output` makes the output of the step with this
    /// state in it.
    pub(super) async fn report(
        &mut self,
        (step, services, context): (&StepName, &UpkeepServices, &StepContext),
        absence: Absence,
        (what, limit): (&str, Duration),
        output: impl FnOnce(Self) -> Value,
    ) -> Result<StepReport, StepError> {
        let now = context.now();
        if let Absence::Certificate(shown) = absence {
            *self = Self { since: None, held: true, longest: self.away(now) };
            let server = services.bmc.server(step, &input(step, context)?.server).await?;
            let hold = certificate::hold(services, context, &server, &shown).await;
            return Ok(hold.with_output(output(self.clone())));
        }
        let since = self.begin(now);
        if now.since(since) >= limit {
            let minutes = limit.as_secs() / 60;
            let why = absence.words();
            let summary = format!("the BMC is not back after {minutes} minutes, {what}: {why}");
            let next = "check that the BMC has power and network, and whether it received another address; \
                        some BMCs start from their second image only after power was removed";
            return Err(StepError::fail(failure(names::class::BMC_NOT_BACK, step, summary, next))
                .with_output(output(self.clone())));
        }
        let detail = format!(
            "{what}; the BMC has been away for {} min: {}",
            now.since(since).as_secs() / 60,
            absence.words()
        );
        let mut wait = wait_for_bmc(&waits::BMC_BACK, limit * 2, detail);
        wait.poll = Some(match absence {
            Absence::Denied(_) => AFTER_DENIAL,
            _ => LOOK_INTERVAL,
        });
        Ok(StepReport::wait(wait).with_output(output(self.clone())))
    }
}

/// Connects to the BMC that the step `by` of the run verified, also when it may be restarting.
pub(super) async fn connect(
    (step, by): (&StepName, &StepName),
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<Result<(Bmc, Identified), Absence>, StepError> {
    let found: Identified = output_of(step, context, by)?;
    let server = services.bmc.server(step, &input(step, context)?.server).await?;
    if server.bmc_address != found.bmc_address {
        let summary = format!(
            "the BMC address of {} was changed during this run, from {} to {}",
            server.serial, found.bmc_address, server.bmc_address
        );
        let next = "check the BMC at the new address with `shoal bmc doctor`";
        return Err(StepError::fail(failure(class::INPUT, step, summary, next)));
    }
    match services.bmc.connections.connect(&server, &context.lease).await {
        Ok(connected) => {
            connected.bmc.recall(&found.discovery);
            Ok(Ok((connected.bmc, found)))
        }
        Err(error) => Absence::of(step, Look::of_connect(error)).map(Err),
    }
}
