//! Batches: many jobs ordered in one call, watched and ended as one.

mod cancel;
mod create;
mod list;
mod show;
mod view;

pub(super) use cancel::cancel;
pub(super) use create::create;
pub(super) use list::list;
pub(super) use show::show;
