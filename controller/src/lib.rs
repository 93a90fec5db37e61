//! The controller: HTTP API, settings, authentication, outgoing webhooks, and the module that connects all parts.
//!
//! ```text
//!   app       -> api accounts auth config webhooks telemetry   (the only module that connects the parts)
//!   api       -> accounts auth telemetry                 (one table of routes, one file per action)
//!   accounts  -> auth                                    (users and API tokens)
//!   webhooks  -> telemetry                               (events for external receivers)
//!   telemetry -> config
//!   config    -> auth
//!   auth      ->
//! ```

pub mod accounts;
pub mod api;
pub mod app;
pub mod auth;
pub mod config;
pub mod telemetry;
pub mod webhooks;
