//! Logs and metrics.
//!
//! Logs go to standard error: text on a terminal, JSON otherwise. Metrics are a value ([`Metrics`]) and not a global, so
//! that a test can read the metrics of one controller.

mod json_line;
mod logs;
mod metrics;

#[cfg(test)]
mod tests;

pub use logs::{LogsError, init};
pub use metrics::{Metrics, RegistryGauges};
