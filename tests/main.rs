//! Tests of the whole program through its public surfaces: real sockets, the public API, simulated servers, and the real
//! binary where a process is killed.
//!
//! ```text
//!   kit        Client ----------------------+--> controller, in this process (Scene) or as a child process (DataDir)
//!              Farm of simulated servers <--+
//!
//!   jobs       a job without faults             api        errors of the API
//!   reports    installation reports             media      reads of task and boot images
//!   bmc        faults of BMCs                   crash      what a killed controller leaves to its successor
//!   secrets    no secret in any output          demo       the command `shoal demo`
//!   stream     the event stream                 batches    many jobs in one request
//!   images     OS images that jobs use          requests   the number of requests a job sends to a BMC
//!   registry   access rules and maintenance     admission  dry run, drain, maintenance, limits, step timeouts
//!   guards     what must never happen           operators  explain, hold, resume, cancel, retry
//!   webhooks   outgoing webhooks                esxi       an installer that cannot report
//!   limits     sessions, circuit, logins        slots      fallback to another slot plan
//!   probe      `bmc probe` and `bmc doctor`     vendors    one job on the simulated BMC of each vendor
//!   emulator   one job on sushy-emulator        soak       load while the controller is killed
//!   conditions power cycles, restarts of the BMC, inventories, their order
//!   faults     each known fault of a BMC        kill       the controller is killed at every effect of a job
//!   tls_clients   the TLS listener, asked by openssl and curl
//!   process    signals, log, first admin token  tls        HTTPS of API, registry and media
//!   doors      each secret at every door        crowd      idle connections, descriptors, trusted proxies
//!   restored   copied, old and restored data, backups, locks
//!   backups    backups by schedule and on request: folder, registry, kill
//!   taken_away  logins after a restore
//!   rotation, rotation_tls   keys, tokens and certificates are replaced under load
//!   modes      who can open the files of the program
//!   report_certificates   installation reports by client certificate
//!   accounts   users, API tokens and their limits    actors     every change names its user or token
//!   sessions   logins of browsers, security headers    ui         the web interface over the socket
//!   delivery   OS images on media, results by reads of them
//!   rescue     sessions of `rescue.target`
//!   firmware   firmware files and sets               firmware_install   installations of firmware
//!   firmware_away   firmware on BMCs that are away, change, or never end    firmware_start   starts whose response is lost
//!   firmware_drift   drift from sets, history of a server, previews of viewers
//!   bios_apply  settings of the BIOS, the boot order
//!   audit      the audit log and its offline check       service    service manager, log filter, dashboards
//!   fleet      filters, imports, batches that stop and are retried    listing   memory of `iso ls --json`
//!   ui_login   forms before and at the login          ui_servers   one server changed, deleted, released
//!   ui_logs    filters and downloads of the logs      ui_webhooks   outgoing webhooks through their pages
//!   workers    workers elsewhere: killed, stopped, late, refused    nats    events and wake-ups over NATS
//!   agent_program   `shoal-agent` as an ordinary program: its task on a file, its report
//!   documents  every command of the documents for operators      blocks   their other blocks
//! ```
//! What each file proves: docs/testing.md.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accounts;
mod actors;
mod admission;
mod agent_program;
mod api;
mod audit;
mod backups;
mod batches;
mod bios_apply;
mod blocks;
mod bmc;
mod boot_images;
mod command_line;
mod command_login;
mod conditions;
mod crash;
mod crowd;
mod delivery;
mod demo;
mod disk_images;
mod documents;
mod doors;
mod emulator;
mod esxi;
mod faults;
mod firmware;
mod firmware_away;
mod firmware_crowd;
mod firmware_drift;
mod firmware_held;
mod firmware_install;
mod firmware_restart;
mod firmware_start;
mod firmware_url;
mod fleet;
mod guards;
mod images;
mod jobs;
mod json_samples;
mod kill;
mod kit;
mod limits;
mod listing;
mod media;
mod media_bytes;
mod modes;
mod nats;
mod operators;
mod probe;
mod process;
mod registry;
mod report_certificates;
mod reports;
mod requests;
mod rescue;
mod restored;
mod rotation;
mod rotation_tls;
mod secrets;
mod service;
mod sessions;
mod slots;
mod soak;
mod stream;
mod taken_away;
mod tls;
mod tls_clients;
mod ui;
mod ui_again;
mod ui_changes;
mod ui_confirmations;
mod ui_login;
mod ui_logs;
mod ui_servers;
mod ui_webhooks;
mod vendors;
mod webhooks;
mod workers;
