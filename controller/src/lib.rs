//! The controller: HTTP API, settings, authentication, outgoing webhooks, and the module that connects all parts.
//!
//! ```text
//!   app       -> api pages accounts audit auth carrier config elsewhere keys webhooks telemetry (the only module that connects the parts)
//!   api       -> accounts audit auth elsewhere firmware keys telemetry tls  (one table of routes, one file per action)
//!   elsewhere ->                                         (a worker in another process, and the messages of its routes)
//!   pages     -> auth roster                             (the web interface, a client of the API in this process)
//!   roster    ->                                         (servers of a table or a document)
//!   accounts  -> auth                                    (users and API tokens)
//!   audit     -> auth                                    (the actions of the audit log, sums of refused requests)
//!   firmware  ->                                         (firmware files in the registry, and who holds them)
//!   keys      -> config tls                              (keys of the installation and their rotation)
//!   webhooks  -> telemetry                               (events for external receivers)
//!   carrier   -> telemetry webhooks                      (events and wake-ups over NATS)
//!   telemetry -> config
//!   config    -> auth
//!   tls       ->                                         (certificates and handshakes of the listeners)
//!   auth      -> tls                                     (elements of certificates)
//!   fuzz      -> auth config pages roster                (the bodies of the fuzz targets)
//!   descriptors ->                                     (the limit of open files)
//! ```

pub mod accounts;
pub mod api;
pub mod app;
pub mod audit;
pub mod auth;
pub mod carrier;
pub mod config;
pub mod descriptors;
pub mod elsewhere;
pub mod firmware;
#[doc(hidden)]
pub mod fuzz;
pub mod keys;
pub mod pages;
pub mod roster;
pub mod telemetry;
pub mod tls;
pub mod webhooks;
