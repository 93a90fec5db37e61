//! Checkpoints: a step writes its progress durably before it returns.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::lease::{LeaseGuard, LeaseLost, LeaseTerms};
use crate::model::{Effect, Run, StepRecord};
use crate::store::Store;

/// Writes the checkpoints of one step.
pub(super) struct Checkpoint {
    pub(super) store: Store,
    pub(super) terms: LeaseTerms,
    pub(super) run: Run,
    pub(super) record: Arc<Mutex<StepRecord>>,
}

impl Checkpoint {
    /// Writes the output of the step with the effects that belong to it, and renews the lease.
    pub(super) async fn write(
        &self,
        output: Value,
        effects: Vec<Effect>,
        lease: &LeaseGuard,
    ) -> Result<(), LeaseLost> {
        let record = {
            let mut record = self.record.lock();
            record.output = output;
            record.epoch = self.run.epoch;
            record.clone()
        };
        let since = self.terms.clock.elapsed();
        let run = self.terms.renew(&self.run);
        match self.store.progress_with(run, record, effects, self.terms.clock.now()).await {
            Ok(true) => {
                lease.renewed(since, self.terms.ttl);
                Ok(())
            }
            Ok(false) => Err(LeaseLost),
            Err(error) => {
                tracing::error!(error = %crate::model::error_chain(&error), "a checkpoint was not written");
                Err(LeaseLost)
            }
        }
    }
}
