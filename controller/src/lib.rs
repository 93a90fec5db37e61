//! The controller: the module that connects all parts, its listeners, and what runs beside the requests.
//!
//! ```text
//!   app      -> webhooks, and the crates access api keys settings telemetry web worker  (the only module that connects the parts)
//!   webhooks -> telemetry                                                               (events for external receivers)
//! ```

pub mod app;
#[doc(hidden)]
pub mod fuzz;
pub mod webhooks;
