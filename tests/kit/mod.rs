//! What the tests stand on: a controller, simulated servers, a client, a clock that can be moved.

mod client;
mod clock;
mod process;
mod scene;
mod servers;

pub(crate) use client::{Answer, Client, recipe};
pub(crate) use process::{DataDir, Served, binary};
pub(crate) use scene::{Scene, maintenance_iso};
pub(crate) use servers::{BMC_PASSWORD, BMC_USER, honest, silent, start_farm, struck, with_bmc};

use std::time::Duration;

/// After this long without what a test waits for, something is wrong. Longer than the minute a BMC is given to show what it
/// was told: the process has no clock that could be put forward.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at something that has no event.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// Waits for something that has an event, bounded.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(value) => value,
        Err(_elapsed) => panic!("{what} did not happen within {} s", PATIENCE.as_secs()),
    }
}
