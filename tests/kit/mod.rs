//! Helpers of the tests: a controller, simulated servers, a client, a clock that can be skipped forward.

mod canary;
mod client;
mod clock;
mod contract;
mod process;
mod scene;
mod servers;

pub(crate) use canary::{Canaries, unpacked};
pub(crate) use client::{ApiResponse, Client, recipe};
pub(crate) use contract::{Exchange, violation};
pub(crate) use process::{ControllerProcess, DataDir, binary, free_port};
pub(crate) use scene::{Scene, maintenance_iso};
pub(crate) use servers::{
    BMC_PASSWORD, BMC_USER, all_faults_used, healthy, logged_out, silent, start_farm, with_bmc,
};

use std::time::Duration;

/// The time a test waits before it fails. It is longer than the minute that a BMC gets to show a change, because the clock of
/// a child process cannot be skipped.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(120);
/// The time that the session with a BMC may take to end after the job.
pub(crate) const SESSIONS_END: Duration = Duration::from_secs(5);
/// The pause between two reads of a state that has no event.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The longest pause between two reads of a state that takes long.
const LONG_POLL_INTERVAL: Duration = Duration::from_millis(30);

/// The pauses between the reads of a state that may take long. They grow, because a controller that is read without a pause leaves
/// no processor to the other tests.
pub(crate) struct Polls(Duration);

impl Polls {
    pub(crate) fn new() -> Self {
        Self(POLL_INTERVAL)
    }

    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 6 / 5).min(LONG_POLL_INTERVAL);
    }
}

/// Waits for a future, for a limited time.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIME_LIMIT, event).await {
        Ok(value) => value,
        Err(_elapsed) => panic!("{what} did not happen within {} s", TIME_LIMIT.as_secs()),
    }
}
