//! How long a step usually takes: the median of the last runs of the same workflow that succeeded, on servers of the same model.
//!
//! ```text
//!   the last 100 succeeded runs of the workflow --same model--> their done step of this name and key --at least 3--> median
//! ```
//!
//! A run tree counts with its root only: a child runs in other circumstances.

use std::time::Duration;

use super::rows::all;
use super::{Store, StoreError};
use model::{RunId, StepName};

/// The number of last succeeded runs that are read, which bounds the cost of the query.
const LAST: u32 = 100;
/// The smallest number of runs from which a duration is derived.
const ENOUGH: usize = 3;

/// The time that a step took in former runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualDuration {
    /// The median.
    pub median: Duration,
    /// The number of runs from which the median is derived.
    pub runs: usize,
}

impl Store {
    /// How long the step `step` with this key took in the last runs that are like `run`; `None` when there are too few of them.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn usual_duration(
        &self,
        run: RunId,
        step: &StepName,
        key: &str,
    ) -> Result<Option<UsualDuration>, StoreError> {
        const OPERATION: &str = "read how long a step took in former runs";
        let (step, key) = (step.to_string(), key.to_owned());
        let mut took = self
            .read(OPERATION, move |connection| {
                all(
                    connection,
                    OPERATION,
                    "WITH this AS (SELECT workflow, server_observed.observed ->> '$.model' AS model
                                   FROM runs LEFT JOIN server_observed ON server_observed.serial = runs.server WHERE runs.id = ?1),
                          former AS (SELECT runs.id, runs.server
                                     FROM this CROSS JOIN runs INDEXED BY idx_runs_state
                                     WHERE runs.workflow = this.workflow AND phase = 'ended' AND outcome = 'succeeded'
                                         AND parent IS NULL
                                     ORDER BY runs.rowid DESC LIMIT ?4)
                     SELECT started_at, ended_at
                     FROM this CROSS JOIN former
                         LEFT JOIN server_observed ON server_observed.serial = former.server
                         CROSS JOIN run_steps ON run_steps.run = former.id
                     WHERE stage = 'forward' AND step = ?2 AND key = ?3 AND run_steps.phase = 'done' AND ended_at IS NOT NULL
                         AND server_observed.observed ->> '$.model' IS this.model",
                    &[&run.to_string(), &step, &key, &LAST],
                    |columns| {
                        let (started_at, ended_at) = (columns.time("started_at")?, columns.time("ended_at")?);
                        Ok(ended_at.since(started_at))
                    },
                )
            })
            .await?;
        took.sort_unstable();
        let runs = took.len();
        Ok(took
            .get(runs / 2)
            .filter(|_| runs >= ENOUGH)
            .map(|median| UsualDuration { median: *median, runs }))
    }
}
