//! `Manager.Reset`: the BMC restarts.
//!
//! ```text
//!   POST Manager.Reset -> 204        begins_after        away           sessions, tasks, media, boot override: gone
//!   ─────────────────────┴────────────────┬───────────────┬────────────  the host: unchanged
//!      LastResetTime t1                   │ no connection │ LastResetTime t2, perhaps another certificate
//! ```

use super::{
    actions::object,
    call::Call,
    config::ManagerRestart,
    reply::{ErrorReply, Reply},
    sim_bmc::SimBmc,
    types::ResetType,
};

const RESET: &str = "Manager.Reset";

impl SimBmc {
    pub(super) fn reset_manager(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = object(call)?.ok_or_else(|| ErrorReply::parameter_missing(RESET, "ResetType"))?;
        let value = body.get("ResetType").ok_or_else(|| ErrorReply::parameter_missing(RESET, "ResetType"))?;
        let word = value.as_str().ok_or_else(|| ErrorReply::parameter_type(RESET, "ResetType"))?;
        let policy = self.inner.config.manager.clone();
        let kind: Option<ResetType> = word.parse().ok();
        if !kind.is_some_and(|kind| policy.reset_types.contains(&kind)) {
            return Err(ErrorReply::parameter_not_in_list(RESET, "ResetType", word));
        }
        self.state().counters.manager_resets += 1;
        if policy.restart == ManagerRestart::Ignored {
            return Ok(Reply::no_content());
        }
        let bmc = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(policy.begins_after).await;
            bmc.state().certificate += u64::from(policy.new_certificate);
            match policy.restart {
                ManagerRestart::StaysAway => {
                    bmc.reset_bmc();
                    bmc.set_reachable(false);
                }
                ManagerRestart::Returns | ManagerRestart::Ignored => bmc.restart_bmc(policy.away),
            }
        });
        Ok(Reply::no_content())
    }

    /// The number of accepted resets of the manager.
    pub fn manager_resets(&self) -> u64 {
        self.state().counters.manager_resets
    }
}
