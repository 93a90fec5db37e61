//! Server conditions: actions requested for one server, as the firmware install service describes them. A view over runs;
//! nothing is stored twice.
//!
//! ```text
//!   condition            run                                    fields
//!   pending              queued, also behind a lock or a gate   kind, parameters     the input of the run
//!   active               from the first claim to the end        status               phase, step, wait, hold, failure, output
//!   succeeded, failed    ended; a cancelled run has failed      controller           the instance that works on it
//!                                                               revision             the revision of the run, as `ETag`
//! ```
//!
//! Invariants
//! - A server has at most one open condition of a kind, and by default one at all. The locks of the run decide in the
//!   transaction that creates it, so of any number of requests at the same time one is accepted.
//! - `kind`, `parameters` and the server of a condition never change.
//! - A request that names a revision is refused with 409 when the newest condition of the kind has another one.

mod bios;
mod create;
pub(super) mod dry_run;
mod firmware;
pub(super) mod request;
mod show;
pub(super) mod view;

pub(super) use create::create;
pub(super) use show::{list, show};

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::Rule;
use super::extract::unknown_server;
use model::{Job, Serial, Server};
use store::JobFilter;
use upkeep::ConditionKind;
use upkeep::order::KIND_LABEL;

/// The server of a path: by its serial number, or by the id of its record.
async fn server_of(api: &Api, name: &Serial) -> Result<Server, ApiError> {
    let found = api.store().server_or_id(name).await?;
    found.ok_or_else(|| unknown_server(name.as_str()))
}

/// The kind of a name in one of its spellings.
fn kind_of(path: &str, name: &str) -> Result<ConditionKind, ApiError> {
    ConditionKind::parse(name).ok_or_else(|| {
        let known: Vec<&str> = ConditionKind::all().iter().map(|kind| kind.as_str()).collect();
        let message = format!(
            "no controller is registered for this kind of condition; the kinds are {}",
            known.join(", ")
        );
        ApiError::invalid(vec![Detail::new(path, Rule::Unknown, message)])
    })
}

/// The newest condition of a kind; `None` when the server never had one.
async fn newest(api: &Api, server: &Serial, kind: ConditionKind) -> Result<Option<Job>, ApiError> {
    let filter = JobFilter {
        server: Some(server.clone()),
        workflow: Some(kind.workflow().to_owned()),
        labels: vec![(KIND_LABEL.to_owned(), kind.as_str().to_owned())],
        limit: 1,
        ..JobFilter::default()
    };
    Ok(api.store().jobs(filter).await?.jobs.pop())
}
