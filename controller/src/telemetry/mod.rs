//! Logs and metrics.
//!
//! Logs go to standard error: text on a terminal, JSON otherwise. No caller waits for standard error (`log_queue`). Metrics
//! are a value ([`Metrics`]) and not a global, so that a test can read the metrics of one controller.

mod json_line;
mod log_queue;
mod logs;
mod metrics;

#[cfg(test)]
mod tests;

pub use logs::{Logs, LogsError, REQUESTED, dropped_log_lines, init, log_panics, recent_log_lines};
pub use metrics::{Metrics, RegistryGauges};
