//! The commands of `shoal` that are clients of a running controller: one file per command.
//!
//! ```text
//! Command ──> one file per command ──> connection::Client ── HTTP ──> controller
//!                     └──> output: text, tables, JSON, YAML on standard output; all other text on standard error
//! ```
//!
//! The program `shoal` adds its local commands, which use the same connection, output and errors.
//!
//! Invariants: a command never opens the database of a controller; data goes to standard output, all other text to standard
//! error; control characters in text of a controller or a file are replaced before output; no command asks a question but for a
//! password.
//!
//! See docs/operating.md.

mod addresses;
pub mod backup_online;
mod batch;
mod bios;
mod bmc;
mod bmc_password;
mod command;
mod condition;
pub mod connection;
mod controller;
mod dry_runs;
pub mod error;
mod event;
pub mod exit;
mod filter;
mod firmware;
mod hardware;
mod ids;
mod image;
mod import;
pub mod input;
mod inventory;
mod job;
mod job_live;
mod job_media;
mod job_verbs;
pub mod live;
mod log;
mod login;
mod many;
mod media;
mod new_file;
pub mod output;
mod plan_view;
pub mod progress;
mod ready;
mod registry_content;
pub mod registry_online;
mod repeat;
mod restored;
mod runtime;
mod server;
mod server_preview;
mod session;
mod silent;
mod support;
mod targets;
#[doc(hidden)]
pub mod test_kit;
mod timeline;
mod top;
mod watch;
mod webhook;
mod whoami;

pub use command::Command;
pub use filter::label;
pub use many::each_of;
pub use runtime::{current_thread, no_runtime};
