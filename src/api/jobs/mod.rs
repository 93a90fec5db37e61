//! Jobs: create, list, show, events, cancel.

mod cancel;
mod create;
mod events;
mod list;
mod show;
mod view;

pub(super) use cancel::cancel;
pub(super) use create::create;
pub(super) use events::events;
pub(super) use list::list;
pub(super) use show::show;
