//! Checkpoints: a step writes its progress durably before it returns.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use super::lease::{LeaseGuard, LeaseLost};
use model::{Clock, Effect, Run, StepRecord};

/// Why a command of a worker was not carried out, or is not known to be. The run continues after its lease has expired.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BackendError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

impl From<store::StoreError> for BackendError {
    fn from(error: store::StoreError) -> Self {
        Self(Box::new(error))
    }
}

/// Stores the progress of a running step.
#[async_trait]
pub trait Progress: Send + Sync {
    /// Writes the record of the running step with its output and the effects that belong to it, in one transaction, and renews
    /// the lease. `false`: the lease is lost, and nothing was written.
    ///
    /// # Errors
    /// When it is not known whether the record was written.
    async fn progress(
        &self,
        run: &Run,
        record: StepRecord,
        effects: Vec<Effect>,
    ) -> Result<bool, BackendError>;
}

/// Writes the checkpoints of one call.
pub(super) struct Checkpoint {
    pub(super) progress: Arc<dyn Progress>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a lease lasts without progress.
    pub(super) ttl: Duration,
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
        let since = self.clock.elapsed();
        match self.progress.progress(&self.run, record, effects).await {
            Ok(true) => {
                lease.renewed(since, self.ttl);
                Ok(())
            }
            Ok(false) => Err(LeaseLost),
            Err(error) => {
                tracing::error!(error = %model::error_chain(&error), "a checkpoint was not written");
                Err(LeaseLost)
            }
        }
    }
}
