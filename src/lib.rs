//! Shoal: a bare-metal provisioning appliance. A recipe and a serial number go in, an installed machine comes out, through
//! nothing but the machine's BMC (Redfish virtual media) and HTTP.
//!
//! # The way of a job
//!
//! ```text
//!  POST /api/v1/jobs --> api --> provision (is the order good?) --> engine --> store (one transaction, one fsync) --> 202
//!                                                                     |
//!   engine claims the run under a lease and carries it from step to step; each step is a file in provision/steps/:
//!                                                                     |
//!   validate -> iso.build -> redfish.discover .. redfish.power-on -> webhook.wait   (parked: no worker, no thread)
//!                   |               |                                       ^
//!                   |               +--> redfish client --> BMC --reads--> media (by grant, over HTTP ranges)
//!                   +--> iso9660: a plan of bytes, computed, not stored     |
//!                                                                           |
//!   the machine boots the maintenance OS, pulls from registry, installs --> POST /api/v1/status-webhook/{serial}
//!                                                                     |
//!   cleanup: power off, eject, clear the override, power on --> complete
//! ```
//!
//! # Architecture
//!
//! Rooms, and what each may use (`tests/house.rs` reads this table and holds the code to it). Arrows point down only; the
//! lower room owns the trait, `app` is the only place that wires. The crates `iso9660`, `registry` and `redfish` know
//! nothing of jobs, configuration, the database or each other.
//!
//! ```text
//! main        -> cli
//! cli         -> app config iso9660 model provision lab_bmc registry secrets selftest sim telemetry
//! selftest    -> api app config engine iso9660 model outbox provision redfish lab_bmc secrets sim store
//! app         -> api auth config engine iso9660 media model outbox provision redfish registry secrets store telemetry
//! api         -> auth engine media model provision secrets store telemetry
//! provision   -> engine media model redfish secrets
//! engine      -> model store
//! media       -> iso9660 model
//! sim         -> iso9660 model lab_bmc
//! outbox      -> model secrets store telemetry
//! store       -> model
//! telemetry   -> config
//! config      -> auth registry secrets
//! auth        -> secrets
//! secrets     ->
//! model       ->
//! ```
//!
//! | room | what lives there |
//! |---|---|
//! | `cli` | one file per command; clients talk to a running controller over HTTP, never to its database |
//! | `app` | puts the rooms together: `start(settings, clock)`, used by serve, demo and tests |
//! | `api` | the routes as one table, thin handlers one file per action, one shape of errors |
//! | `provision` | the provisioning workflow: a table of steps, and the steps |
//! | `engine` | the durable workflow engine: claim, lease, step runner, waits, signals, locks |
//! | `media` | task image composition, grants, range serving, the library of maintenance ISOs |
//! | `outbox` | outgoing webhooks: events posted to others, signed, in order, again until they are taken |
//! | `store` | what can be asked of the database, as types; SQLite behind one writer with group commit |
//! | `model` | pure data and pure rules: runs, jobs, events, servers, recipes, the transition table |
//! | `auth` | who may do what: users, tokens, roles, report secrets |
//! | `secrets` | sealing, credential references, derived tokens |
//! | `config` | every setting once: flag, variable, file key, default, doc line |
//! | `telemetry` | logs and metrics |
//! | `selftest` | the seeded simulation: controllers, twins, machines and people on virtual time in one thread |
//! | `sim` | a simulated data centre: twins and a maintenance OS that really installs |
//!
//! # Promises that span rooms
//!
//! - Acknowledged means durable: a 2xx of the API, a report or a blob is on disk before it is sent.
//! - A waiting job costs a row. Every wait has a reason, a since, a deadline and an exit.
//! - A worker writes under the epoch of its lease or not at all; a BMC is changed only while the lease outlives the request.
//! - After a crash the BMC is observed first. The host boots from the medium exactly once.
//! - Everything rendered from the same inputs is the same bytes.
//! - No secret is in a log, event, error, URL parameter or metric.

pub mod cli;
