//! The controller: HTTP API, settings, authentication, outgoing webhooks, and the module that connects all parts.
//!
//! ```text
//!   app       -> api accounts auth config webhooks telemetry   (the only module that connects the parts)
//!   api       -> accounts auth telemetry tls             (one table of routes, one file per action)
//!   accounts  -> auth                                    (users and API tokens)
//!   webhooks  -> telemetry                               (events for external receivers)
//!   telemetry -> config
//!   config    -> auth
//!   tls       ->                                         (certificates and handshakes of the listeners)
//!   auth      ->
//!   descriptors ->                                     (the limit of open files)
//! ```

pub mod accounts;
pub mod api;
pub mod app;
pub mod auth;
pub mod config;
pub mod descriptors;
pub mod telemetry;
pub mod tls;
pub mod webhooks;
