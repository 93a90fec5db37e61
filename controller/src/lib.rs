//! The controller: the HTTP API, settings, access, outgoing webhooks, and the place where all parts are wired.
//!
//! ```text
//!   app       -> api auth config webhooks telemetry      (the only place that wires)
//!   api       -> auth telemetry                          (the routes as one table, one action per file)
//!   webhooks  -> telemetry                               (events sent to receivers outside)
//!   telemetry -> config
//!   config    -> auth
//!   auth      ->
//! ```

pub mod api;
pub mod app;
pub mod auth;
pub mod config;
pub mod telemetry;
pub mod webhooks;
