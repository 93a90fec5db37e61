//! Logs, the spans of requests, and metrics.
//!
//! Logs go to standard error: text on a terminal, JSON otherwise. No caller waits for standard error (`log_queue`). Metrics
//! are a value ([`Metrics`]) and not a global, so that a test can read the metrics of one controller.

mod host_metrics;
mod json_line;
mod log_filter;
mod log_level;
mod log_queue;
mod logs;
mod metrics;
mod nats_metrics;
pub mod observability;
pub mod request_span;

#[cfg(test)]
mod tests;

pub use host_metrics::HostGauges;
pub use log_filter::{LogsError, REQUESTED};
pub use log_level::{LogLevel, LogLevelOrigin, log_level, set_log_level};
pub use logs::{Logs, dropped_log_lines, init, log_panics, recent_log_lines};
pub use metrics::{Metrics, RegistryGauges};
