//! Jobs: create, dry run, list, show, explain, events, log, verbs, retry.

pub(super) mod create;
mod dry_run;
mod events;
mod explain;
mod list;
pub(super) mod log;
pub(super) mod media;
pub(super) mod order;
mod retry;
pub(super) mod selected;
pub(super) mod selection;
mod show;
pub(super) mod verbs;
pub(super) mod view;
mod workflows;

pub(super) use create::create;
pub(super) use events::events;
pub(super) use explain::{explain, explanation};
pub(super) use list::list;
pub(super) use log::log;
pub(super) use media::media;
pub(super) use order::{
    JobRequest, LAST_ROW, MAX_LABELS, created_job, find_replay, idempotency_key, refused,
    with_server_resources,
};
pub(super) use retry::retry;
pub(super) use selection::{cancel_selected, retry_selected};
pub(super) use show::show;
pub(super) use verbs::{cancel, finish, hold, reason, resume};
