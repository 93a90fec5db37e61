//! Servers: the map from serial numbers to BMCs.

mod change;
mod create;
mod delete;
mod list;
mod show;
mod update;
mod view;

pub(super) use create::create;
pub(super) use delete::delete;
pub(super) use list::list;
pub(super) use show::show;
pub(super) use update::update;
