//! State of the host from which a restart can be detected.
//!
//! ```text
//!   PowerState      On -> Off -> On     cold restart; a warm restart keeps On
//!   LastResetTime   t1 -> t2            cold or warm restart, where the BMC has the property
//!   BootProgress    LastState, and LastStateTime where the BMC has it
//! ```
//!
//! One read of the system; a missing property is `None`, not an error. The times are those of the BMC's clock and are
//! compared only with each other. Specification: DSP0268 ComputerSystem.

use serde::{Deserialize, Serialize};

use crate::bmc::Bmc;
use crate::discovery::SystemInfo;
use crate::error::{Operation, RedfishError};
use crate::json::{self, Resource};
use crate::power_state::PowerState;

/// Power state, last reset and boot progress of a system.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HostStatus {
    /// The `PowerState` of the system.
    pub power: PowerState,
    /// The `LastResetTime` of the system.
    pub last_reset: Option<String>,
    /// `BootProgress.LastState`.
    pub boot_state: Option<String>,
    /// `BootProgress.LastStateTime`.
    pub boot_state_at: Option<String>,
}

impl HostStatus {
    fn of(system: &Resource) -> Self {
        let progress = json::member(&system.fields, "BootProgress");
        let progress = |name: &str| progress.and_then(|fields| json::word(fields, name));
        Self {
            power: PowerState::of(system),
            last_reset: json::word(&system.fields, "LastResetTime"),
            boot_state: progress("LastState"),
            boot_state_at: progress("LastStateTime"),
        }
    }
}

impl Bmc {
    /// Reads the host status.
    ///
    /// # Errors
    ///
    /// When the system cannot be read.
    pub async fn host_status(&self, system: &SystemInfo) -> Result<HostStatus, RedfishError> {
        let read = self.core.read(Operation::PowerState, &system.uri).await?;
        self.check_same(Operation::PowerState, system, &read)?;
        Ok(HostStatus::of(&read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(body: &str) -> HostStatus {
        let fields = json::object(body.as_bytes()).unwrap();
        HostStatus::of(&Resource::new("/redfish/v1/Systems/1", &http::HeaderMap::new(), fields))
    }

    #[test]
    fn a_property_the_bmc_does_not_show_is_none() {
        let none = status(r#"{"BootProgress": null, "LastResetTime": ""}"#);
        assert_eq!(none.power, PowerState::Unknown);
        assert_eq!((none.last_reset, none.boot_state, none.boot_state_at), (None, None, None));
        let all = status(
            r#"{"PowerState": "On", "LastResetTime": "2026-11-20T08:00:00Z",
                "BootProgress": {"LastState": "OSRunning", "LastStateTime": "2026-11-20T08:03:00Z"}}"#,
        );
        assert_eq!(all.power, PowerState::On);
        assert_eq!(all.last_reset.as_deref(), Some("2026-11-20T08:00:00Z"));
        assert_eq!(all.boot_state.as_deref(), Some("OSRunning"));
        assert_eq!(all.boot_state_at.as_deref(), Some("2026-11-20T08:03:00Z"));
    }
}
