//! Servers: registered machines with the address and credentials of their BMCs.

pub(super) mod bios;
mod bmc_error;
pub(super) mod card;
pub(super) mod change;
mod create;
pub(super) mod delete;
pub(super) mod diagnostics;
pub(super) mod import;
pub(super) mod inventory;
mod list;
mod maintenance;
mod password_reach;
mod probe;
pub(super) mod release;
mod show;
mod update;
pub(super) mod view;

pub(super) use card::card;
pub(super) use create::create;
pub(super) use delete::delete;
pub(super) use diagnostics::{diagnose, last as last_diagnostics};
pub(super) use import::import;
pub(super) use inventory::inventory;
pub(super) use list::list;
pub(super) use maintenance::{begin_maintenance, end_maintenance};
pub(super) use probe::{look, probe};
pub(super) use release::{release, show_restored};
pub(super) use show::show;
pub(super) use update::update;
