//! Logs and metrics.
//!
//! Logs go to standard error: text on a terminal, JSON otherwise. Metrics are a value ([`Metrics`]), not a global, so that
//! a test reads the same numbers an operator scrapes.

mod logs;
mod metrics;

pub use logs::{LogsError, init};
pub use metrics::{ImagesGauges, Metrics};
