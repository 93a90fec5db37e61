//! Reads the time of the last reset of a manager, and resets it: the BMC restarts, the host keeps running.
//!
//! ```text
//!   manager_status   GET manager -> the Reset action, LastResetTime, DateTime
//!   reset_manager    AllowableValues, else ActionInfo, else the first wish -> POST Manager.Reset, sent once
//!
//!   LastResetTime  t1 ───── (BMC away) ───── t2     proof of a restart, where the BMC has the property
//!                  t1 ± 60 s                        the same restart: a BMC may compute the time from its clock and its uptime
//!                  earlier                          no proof: the clock of the BMC was set, or was lost
//! ```
//!
//! The response proves nothing: a BMC may refuse to restart after a 2xx, and it may cut the connection before its response. An
//! error with [`RedfishError::maybe_applied`] therefore means the same as a 2xx to the caller, which observes the BMC.
//! Specification: DSP0268 Manager, Actions.Reset and LastResetTime.

use http::Method;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bmc::Bmc;
use crate::discovery::{ManagerInfo, ResetAction, reset_types};
use crate::error::{Operation, RedfishError};
use crate::exchange::Call;
use crate::json::{self, Resource};
use crate::power_state::ResetType;

const OPERATION: Operation = Operation::ResetManager;
/// A BMC that computes its `LastResetTime` from its clock shows one that moves by some seconds.
const CLOCK_ERROR: SignedDuration = SignedDuration::from_secs(60);

/// The kind of reset of a manager that the caller wants.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ManagerReset {
    /// The manager ends its work first. A BMC that does not offer this is restarted at once.
    Graceful,
    /// The manager restarts at once. A BMC that does not offer this is restarted gracefully.
    Forced,
}

impl ManagerReset {
    /// The types that fulfil this wish, the best first.
    fn wishes(self) -> [ResetType; 2] {
        match self {
            ManagerReset::Graceful => [ResetType::GracefulRestart, ResetType::ForceRestart],
            ManagerReset::Forced => [ResetType::ForceRestart, ResetType::GracefulRestart],
        }
    }
}

/// The resets of a manager, as the manager shows them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ManagerStatus {
    /// Path of the manager.
    pub uri: String,
    /// The Reset action; `None` when the BMC offers none.
    pub reset: Option<ResetAction>,
    /// The `LastResetTime` of the manager.
    pub last_reset: Option<String>,
    /// `FirmwareVersion`.
    pub firmware: Option<String>,
}

impl ManagerStatus {
    fn of(manager: &Resource) -> Self {
        let fields = &manager.fields;
        let reset = json::action(fields, "#Manager.Reset").and_then(|action| {
            let target = json::path_of(&json::word(action, "target")?)?;
            let allowed = reset_types(&json::texts(action, "ResetType@Redfish.AllowableValues"));
            let info = json::word(action, "@Redfish.ActionInfo").and_then(|path| json::path_of(&path));
            Some(ResetAction { target, info: info.filter(|_| allowed.is_empty()), allowed })
        });
        Self {
            uri: manager.path.clone(),
            reset,
            last_reset: json::word(fields, "LastResetTime"),
            firmware: json::word(fields, "FirmwareVersion"),
        }
    }
}

/// What the `LastResetTime` of a manager says about a restart since an earlier read of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RestartSince {
    /// The manager has restarted: its time is later by more than a minute.
    Yes,
    /// The manager has not restarted: its time is the same, within a minute.
    No,
    /// Nothing: a time is missing, is no time, or is earlier than before.
    Unknown,
}

impl ManagerStatus {
    /// Returns whether the manager has restarted since the read whose [`last_reset`](Self::last_reset) was `before`.
    #[must_use]
    pub fn restart_since(&self, before: Option<&str>) -> RestartSince {
        let (Some(before), Some(now)) = (before, self.last_reset.as_deref()) else {
            return RestartSince::Unknown;
        };
        if before == now {
            return RestartSince::No;
        }
        let (Some(before), Some(now)) = (time(before), time(now)) else { return RestartSince::Unknown };
        let later = now.duration_since(before);
        match later.abs() > CLOCK_ERROR {
            false => RestartSince::No,
            true if later.is_positive() => RestartSince::Yes,
            true => RestartSince::Unknown,
        }
    }
}

/// Reads a Redfish time. The offset is missing on some BMCs; two times of one BMC can be compared without it.
fn time(text: &str) -> Option<Timestamp> {
    let zoned = || text.parse::<Timestamp>();
    let local = || text.parse::<DateTime>().and_then(|local| TimeZone::UTC.to_timestamp(local));
    zoned().or_else(|_no_offset| local()).ok()
}

impl Bmc {
    /// Reads the resets of a manager, as the manager shows them; never from a cache.
    ///
    /// # Errors
    ///
    /// When the manager cannot be read.
    pub async fn manager_status(&self, manager: &ManagerInfo) -> Result<ManagerStatus, RedfishError> {
        Ok(ManagerStatus::of(&self.core.read(OPERATION, &manager.uri).await?))
    }

    /// Returns the type that a reset of this manager would use.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the manager has no Reset action, or lists no restart; an error of the read of `ActionInfo`.
    pub async fn manager_reset_type(
        &self,
        status: &ManagerStatus,
        wish: ManagerReset,
    ) -> Result<ResetType, RedfishError> {
        let Some(action) = &status.reset else {
            return Err(RedfishError::not_supported(OPERATION, "the manager has no Reset action"));
        };
        let mut listed = action.allowed.clone();
        if let Some(info) = action.info.as_deref().filter(|_| listed.is_empty()) {
            let details = self.core.read(OPERATION, info).await?;
            let parameters = details.fields.get("Parameters").and_then(Value::as_array);
            let named = parameters.into_iter().flatten().take(json::MAX_ENTRIES).filter_map(Value::as_object);
            let types =
                named.filter(|parameter| json::word(parameter, "Name").as_deref() == Some("ResetType"));
            listed =
                types.flat_map(|parameter| reset_types(&json::texts(parameter, "AllowableValues"))).collect();
        }
        let offered = |reset: &ResetType| listed.is_empty() || listed.contains(reset);
        wish.wishes().into_iter().find(offered).ok_or_else(|| {
            let names: Vec<&str> = listed.iter().map(|reset| reset.as_str()).collect();
            let what = format!("the manager offers no restart, only {}", names.join(", "));
            RedfishError::not_supported(OPERATION, what)
        })
    }

    /// Sends one reset to a manager. The session and everything cached is gone afterwards.
    ///
    /// # Errors
    ///
    /// When the manager has no Reset action or refuses it; with [`RedfishError::maybe_applied`] when the connection ended
    /// before the response, which is what a BMC that restarts at once does.
    pub async fn reset_manager(&self, status: &ManagerStatus, reset: ResetType) -> Result<(), RedfishError> {
        let Some(action) = &status.reset else {
            return Err(RedfishError::not_supported(OPERATION, "the manager has no Reset action"));
        };
        let body = json!({ "ResetType": reset.as_str() });
        let deadline = self.core.profile().mutation_timeout;
        let call = Call::mutation(OPERATION, Method::POST, &action.target, deadline).body(&body);
        let response = self.core.perform(&call, 1).await?;
        if !response.status.is_success() {
            return Err(self.core.refusal(OPERATION, &response, &[]));
        }
        // A task of a restart ends with the BMC that runs it, so it is not followed.
        self.release_idle();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(body: &str) -> ManagerStatus {
        let fields = json::object(body.as_bytes()).unwrap();
        ManagerStatus::of(&Resource::new("/redfish/v1/Managers/1", &http::HeaderMap::new(), fields))
    }

    #[test]
    fn the_reset_action_and_the_last_reset_are_read() {
        let full = status(
            r##"{"LastResetTime": "2026-11-20T08:00:00Z", "Actions": {"#Manager.Reset": {
                "target": "/redfish/v1/Managers/1/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": ["ForceRestart", "Sideways"]}}}"##,
        );
        let reset = full.reset.unwrap();
        assert_eq!(reset.allowed, [ResetType::ForceRestart], "an unknown type is left out");
        assert_eq!(full.last_reset.as_deref(), Some("2026-11-20T08:00:00Z"));
        let none = status("{}");
        assert_eq!((none.reset, none.last_reset), (None, None));
    }

    #[test]
    fn only_a_time_that_is_later_by_more_than_a_minute_proves_a_restart() {
        let since = |before: Option<&str>, now: &str| {
            status(&format!(r#"{{"LastResetTime": "{now}"}}"#)).restart_since(before)
        };
        let before = Some("2026-11-20T08:00:00Z");
        for (now, expected) in [
            ("2026-11-20T08:00:00Z", RestartSince::No),
            ("2026-11-20T08:01:00Z", RestartSince::No),
            ("2026-11-20T07:59:58Z", RestartSince::No),
            ("2026-11-20T10:00:03+02:00", RestartSince::No),
            ("2026-11-20T08:01:01Z", RestartSince::Yes),
            ("2026-11-20T08:04:00", RestartSince::Yes),
            ("1970-01-01T00:00:31Z", RestartSince::Unknown),
            ("yesterday", RestartSince::Unknown),
            ("", RestartSince::Unknown),
        ] {
            assert_eq!(since(before, now), expected, "{now}");
        }
        assert_eq!(since(None, "2026-11-20T08:00:00Z"), RestartSince::Unknown);
        assert_eq!(since(Some("at noon"), "at noon"), RestartSince::No, "the same text is the same restart");
        assert_eq!(status("{}").restart_since(before), RestartSince::Unknown);
    }

    #[test]
    fn a_wish_falls_back_to_the_other_restart() {
        assert_eq!(ManagerReset::Graceful.wishes()[0], ResetType::GracefulRestart);
        assert_eq!(ManagerReset::Forced.wishes()[0], ResetType::ForceRestart);
        assert_eq!(ManagerReset::Graceful.wishes()[1], ResetType::ForceRestart);
    }
}
