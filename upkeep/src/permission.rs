//! Whether an order permits the restart of a host that is on.
//!
//! ```text
//!   restart: forbidden           wait until the BMC shows the change: an operator restarts the host
//!   restart_from in the future   wait until then
//!   restart_until in the past    failure `window_over`: what was stored is used after the next restart
//! ```

use std::time::Duration;

use super::install_order::{HostRestart, OPERATOR_LIMIT};
use super::{names, waits};
use bmc::failure;
use engine::{StepContext, StepError, WaitRequest};
use model::{StepName, Time};

/// The delay between two reads while an operator restarts the host.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Whether the order permits the restart now.
pub(super) enum Permission {
    Granted,
    Later(WaitRequest),
}

/// What an order says about a restart of the host, and what the restart is for.
pub(super) struct RestartRule {
    pub(super) restart: HostRestart,
    pub(super) from: Option<Time>,
    pub(super) until: Option<Time>,
    /// What the restart puts into use, with its verb: "bios 2.19 is used".
    pub(super) used: String,
    /// What is still open when the window is over: "bios 2.19 is not installed yet".
    pub(super) open: String,
    /// The next action when the window is over.
    pub(super) next: &'static str,
}

impl RestartRule {
    /// Whether the host may be restarted now.
    pub(super) fn permission(self, step: &StepName, context: &StepContext) -> Result<Permission, StepError> {
        let Self { restart, from, until, used, open, next } = self;
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
            return Ok(Permission::Later(WaitRequest {
                reason: &waits::RESTART_WINDOW,
                signals: Vec::new(),
                poll: Some(from.since(now).min(LOOK_INTERVAL * 10)),
                limit: (from.since(now) + LOOK_INTERVAL * 20).into(),
                detail: format!("{used} after a restart of the host, which may happen from {from} on"),
            }));
        }
        if let Some(until) = until.filter(|until| *until <= now) {
            let summary =
                format!("the maintenance window ended at {until} before the host was restarted; {open}");
            return Err(StepError::fail(failure(names::class::WINDOW_OVER, step, summary, next)));
        }
        Ok(Permission::Granted)
    }
}
