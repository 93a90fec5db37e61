//! Restarts a BMC.
//!
//! ```text
//!   reset_manager   read the manager -> first of [GracefulRestart, ForceRestart] that it lists -> POST Manager.Reset
//!                   2xx, or the connection ends after the request: sent; the BMC is away for minutes
//! ```
//!
//! A restart ends sessions, tasks and on many BMCs virtual media; the host keeps running. Specification: DSP0268 Manager.

use http::Method;
use serde_json::{Value, json};

use crate::bmc::Bmc;
use crate::discovery::ManagerInfo;
use crate::error::{Operation, RedfishError};
use crate::exchange::Call;
use crate::json::{self, Resource};
use crate::power_state::ResetType;

const OPERATION: Operation = Operation::ResetManager;
/// The types in order of preference: a graceful restart ends running writes to flash.
const PREFERRED: [ResetType; 2] = [ResetType::GracefulRestart, ResetType::ForceRestart];

/// A restart of a BMC that was sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ManagerReset {
    /// The type that was sent; `None` without a list, where the BMC chooses.
    pub reset: Option<ResetType>,
    /// Whether the BMC accepted the request; if not, it may have restarted before its response.
    pub accepted: bool,
}

impl Bmc {
    /// Restarts the BMC by its manager, or only by the type `only` if one is given.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the manager has no Reset action or does not list a usable type; else when the request is refused.
    /// A lost connection after the request is not an error: see [`ManagerReset::accepted`].
    pub async fn reset_manager(
        &self,
        manager: &ManagerInfo,
        only: Option<ResetType>,
    ) -> Result<ManagerReset, RedfishError> {
        let resource = self.core.read(OPERATION, &manager.uri).await?;
        let action = json::action(&resource.fields, "#Manager.Reset");
        let target = action.and_then(|action| json::path_of(&json::word(action, "target")?));
        let (Some(action), Some(target)) = (action, target) else {
            return Err(RedfishError::not_supported(OPERATION, "the manager has no Reset action"));
        };
        let mut listed = json::texts(action, "ResetType@Redfish.AllowableValues");
        let info = json::word(action, "@Redfish.ActionInfo").and_then(|path| json::path_of(&path));
        if let Some(info) = info.filter(|_| listed.is_empty()) {
            // The types are not known without it, and the reset needs none on many BMCs.
            if let Ok(info) = self.core.read(OPERATION, &info).await {
                listed = reset_types_of(&info);
            }
        }
        let reset = choose(&listed, only)?;
        let body = reset.map_or_else(|| json!({}), |reset| json!({ "ResetType": reset.as_str() }));
        let deadline = self.core.profile().mutation_timeout;
        let call = Call::mutation(OPERATION, Method::POST, &target, deadline).body(&body);
        match self.core.perform(&call, 1).await {
            Ok(response) if response.status.is_success() => Ok(ManagerReset { reset, accepted: true }),
            Ok(response) => Err(self.core.refusal(OPERATION, &response, &[])),
            Err(error) if error.maybe_applied => Ok(ManagerReset { reset, accepted: false }),
            Err(error) => Err(error),
        }
    }
}

fn reset_types_of(info: &Resource) -> Vec<String> {
    let parameters = info.fields.get("Parameters").and_then(Value::as_array);
    let named = parameters.into_iter().flatten().take(json::MAX_ENTRIES).filter_map(Value::as_object);
    let types = named.filter(|parameter| json::word(parameter, "Name").as_deref() == Some("ResetType"));
    types.flat_map(|parameter| json::texts(parameter, "AllowableValues")).collect()
}

/// The type to send; `None` when the manager lists none and none is demanded.
fn choose(listed: &[String], only: Option<ResetType>) -> Result<Option<ResetType>, RedfishError> {
    let lists = |reset: &ResetType| listed.iter().any(|name| name.eq_ignore_ascii_case(reset.as_str()));
    match only {
        Some(reset) if listed.is_empty() || lists(&reset) => return Ok(Some(reset)),
        None if listed.is_empty() => return Ok(None),
        _ => {}
    }
    let allowed = PREFERRED.into_iter().find(|reset| only.is_none_or(|only| only == *reset) && lists(reset));
    allowed.map(Some).ok_or_else(|| {
        let wanted = only.map_or("a restart", ResetType::as_str);
        let what = format!("the manager does not offer {wanted}; it lists {}", listed.join(", "));
        RedfishError::not_supported(OPERATION, json::clip(&what, 300))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graceful_restart_is_preferred_and_a_listed_one_is_needed() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let both = list(&["ForceRestart", "GracefulRestart"]);
        assert_eq!(choose(&both, None).unwrap(), Some(ResetType::GracefulRestart));
        assert_eq!(choose(&both, Some(ResetType::ForceRestart)).unwrap(), Some(ResetType::ForceRestart));
        assert_eq!(choose(&both[..1], None).unwrap(), Some(ResetType::ForceRestart));
        assert_eq!(choose(&[], None).unwrap(), None);
        assert!(choose(&both[..1], Some(ResetType::GracefulRestart)).is_err());
        assert!(choose(&list(&["ResetToDefaults"]), None).is_err());
    }
}
