//! The controller: the module that connects all parts, its listeners, and what runs beside the requests.
//!
//! ```text
//!   app      -> carrier webhooks, and the crates access api keys settings telemetry web worker  (the only module that connects the parts)
//!   webhooks -> telemetry                                                                       (events for external receivers)
//!   carrier  -> telemetry webhooks                                                              (events and wake-ups over NATS)
//! ```

pub mod app;
pub mod carrier;
#[cfg(test)]
mod fuzz;
pub mod webhooks;
