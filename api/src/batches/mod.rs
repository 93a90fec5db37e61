//! Batches: many jobs created by one request, with a common status and a common cancel.

pub(super) mod cancel;
pub(super) mod create;
mod list;
mod resume;
pub(super) mod retry;
mod show;
pub(super) mod view;

pub(super) use cancel::cancel;
pub(super) use create::create;
pub(super) use list::list;
pub(super) use resume::resume;
pub(super) use retry::retry;
pub(super) use show::show;
