//! Whether an order permits the restart of a host that is on, or to send what is used without one.
//!
//! ```text
//!   restart: forbidden           wait until the BMC shows the change: an operator restarts the host
//!   restart_from in the future   wait until then, before the restart; before the image is sent, if it is used without the host
//!   restart_until in the past    failure `window_over`: what was stored is used after the next restart
//! ```
//!
//! The window is one for the whole change: after its end nothing more is sent, because what is stored is used at any later restart, and
//! firmware of the BMC restarts the BMC itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{names, waits};
use bmc::failure;
use engine::{StepContext, StepError, WaitRequest};
use model::{StepName, Time};

/// The delay between two reads while an operator restarts the host.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Whether the host may be restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostRestart {
    /// The run restarts the host where a component needs it.
    #[default]
    Allowed,
    /// The run waits until an operator has restarted the host.
    Forbidden,
}

/// When an order lets the host be restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartWindow {
    /// Whether the run may restart the host at all.
    pub restart: HostRestart,
    /// The beginning of the window.
    pub from: Option<Time>,
    /// The end of the window.
    pub until: Option<Time>,
}

impl RestartWindow {
    /// Checks that the window does not end before it begins.
    pub(super) fn checked(self) -> Result<(), String> {
        match (self.from, self.until) {
            (Some(from), Some(until)) if until <= from => {
                Err("restart_until is later than restart_from".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The wait for the beginning of the window, for what is used as soon as the BMC has it.
    pub(super) fn begins_later(self, now: Time, what: &str) -> Option<WaitRequest> {
        let from = self.from.filter(|from| *from > now)?;
        Some(until_begin(
            from,
            now,
            format!("{what} is used without a restart of the host and is sent from {from} on"),
        ))
    }

    /// Refuses to send `what` after the end of the window: a run may have waited for locks, a gate or a BMC until then.
    pub(super) fn may_send(
        self,
        step: &StepName,
        context: &StepContext,
        what: &str,
    ) -> Result<(), StepError> {
        let Some(until) = self.until.filter(|until| *until <= context.now()) else { return Ok(()) };
        let sent = if has_sent(context) { "nothing more was sent" } else { "nothing was sent" };
        let summary = format!("the maintenance window ended at {until} before {what} could be sent; {sent}");
        let next = "order it again with another window; what the run did before it ended is in its events";
        Err(StepError::fail(failure(names::class::WINDOW_OVER, step, summary, next)))
    }

    /// Until when a run may wait for a restart: an operator has a week, and a window its time.
    pub(super) fn waits_until(self, now: Time) -> Time {
        match self.restart {
            HostRestart::Forbidden => now.plus(OPERATOR_LIMIT),
            HostRestart::Allowed => self.until.max(self.from).map_or(now, |end| end.max(now)),
        }
    }
}

/// The number of times that a step has sent its change; a part of the output of each step that sends one.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sent {
    sent: u32,
}

/// Whether a step of the run has sent an image or settings.
fn has_sent(context: &StepContext) -> bool {
    [names::FW_UPLOAD, names::BIOS_WRITE, names::BIOS_BOOT_ORDER]
        .into_iter()
        .flat_map(|step| context.snapshot.records_of(step))
        .any(|record| Sent::deserialize(&record.output).is_ok_and(|output| output.sent > 0))
}

fn until_begin(from: Time, now: Time, detail: String) -> WaitRequest {
    WaitRequest {
        reason: &waits::RESTART_WINDOW,
        signals: Vec::new(),
        poll: Some(from.since(now).min(LOOK_INTERVAL * 10)),
        limit: (from.since(now) + LOOK_INTERVAL * 20).into(),
        detail,
    }
}

/// How long a run waits for an operator who restarts the host.
pub(super) const OPERATOR_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Whether the order permits the restart now.
pub(super) enum Permission {
    Granted,
    Later(WaitRequest),
}

/// When an order permits a restart of the host, and the words for what the restart is for.
pub(super) struct RestartRule {
    pub(super) window: RestartWindow,
    /// The effect of the restart, with its verb: "bios 2.19 is used".
    pub(super) used: String,
    /// The part of the order that is open when the window is over, with its verb: "bios 2.19 is not installed yet".
    pub(super) open: String,
    /// The next action when the window is over.
    pub(super) next: &'static str,
}

impl RestartRule {
    /// Whether the host may be restarted now.
    pub(super) fn permission(self, step: &StepName, context: &StepContext) -> Result<Permission, StepError> {
        let Self { window: RestartWindow { restart, from, until }, used, open, next } = self;
        if restart == HostRestart::Forbidden {
            return Ok(Permission::Later(WaitRequest {
                reason: &waits::RESTART_FORBIDDEN,
                signals: Vec::new(),
                poll: Some(LOOK_INTERVAL),
                limit: OPERATOR_LIMIT.into(),
                detail: format!("{used} after a restart of the host, which the order forbids"),
            }));
        }
        let now = context.now();
        if let Some(from) = from.filter(|from| *from > now) {
            let detail = format!("{used} after a restart of the host, which may happen from {from} on");
            return Ok(Permission::Later(until_begin(from, now, detail)));
        }
        if let Some(until) = until.filter(|until| *until <= now) {
            let summary =
                format!("the maintenance window ended at {until} before the host was restarted; {open}");
            return Err(StepError::fail(failure(names::class::WINDOW_OVER, step, summary, next)));
        }
        Ok(Permission::Granted)
    }
}
