//! Carries out an operation as a Redfish task: 202 at once, the result later.

use http::{StatusCode, header};
use serde_json::Value;

use super::{
    config::Success,
    reply::{ErrorReply, Reply},
    routes::{self, Resource},
    sim_bmc::SimBmc,
};

impl SimBmc {
    /// Returns 202 and carries out `work` in a separate task.
    pub(super) fn begin_task(
        &self,
        name: &'static str,
        how: Success,
        work: impl Future<Output = Result<(), ErrorReply>> + Send + 'static,
    ) -> Reply {
        let config = &self.inner.config;
        let id = self.state().tasks.begin(name);
        let shown = self.state().tasks.show(config, id).unwrap_or_default();
        let bmc = self.clone();
        let least = config.tasks.time;
        tokio::spawn(async move {
            let ((), done) = tokio::join!(tokio::time::sleep(least), work);
            let done = match done {
                Ok(()) => (StatusCode::NO_CONTENT, Value::Null),
                Err(refused) => refused.status_and_body(&bmc.inner.config.errors),
            };
            bmc.state().tasks.end(id, done);
            bmc.notify();
        });
        let reply = match how {
            Success::TaskLocation => Reply::empty(StatusCode::ACCEPTED),
            _ => Reply::json(StatusCode::ACCEPTED, &shown),
        };
        if how == Success::TaskBody {
            return reply;
        }
        reply.with(header::LOCATION, &routes::uri(config, &Resource::TaskMonitor(id)))
    }
}
