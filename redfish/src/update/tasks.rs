//! Finds the task of an update whose path did not arrive: a task that was not there before.
//!
//! ```text
//!   TaskService -> Tasks -> members - tasks_before = new tasks       one that names the update service: it is the task
//!                                                                    one at all: it is the task
//!                                                                    several and none names it: the newest running one
//! ```
//!
//! Before an update is prepared, the newest tasks are read: one of another update that runs makes the BMC busy, also where the
//! service shows no flag for it.
//!
//! Invariant: at most 8 pages of the list and 4 tasks are read.

use serde_json::{Map, Value};

use crate::bmc::Bmc;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::update::handle::{MAX_TASKS, UpdateHandle, task_id};
use crate::update::poll::is_running;
use crate::update::service::is_absent;

const OPERATION: Operation = Operation::UpdateState;
const MAX_PAGES: usize = 8;
/// Maximum number of tasks that are read.
const MAX_READ: usize = 4;

impl Core {
    /// The paths of the images that a collection lists as stored and not installed.
    pub(crate) async fn stored_images(
        &self,
        operation: Operation,
        collection: &str,
    ) -> Result<Vec<String>, RedfishError> {
        let members = self.members_up_to(operation, collection, MAX_TASKS).await?;
        let stored = members
            .into_iter()
            .map(|member| member.path)
            .filter(|path| json::last_segment(path).to_ascii_lowercase().starts_with("available-"));
        Ok(stored.collect())
    }

    /// The paths of all tasks; `None` when the BMC shows no list of tasks.
    pub(crate) async fn task_paths(
        &self,
        operation: Operation,
        service: &str,
    ) -> Result<Option<Vec<String>>, RedfishError> {
        let service = match self.read(operation, service).await {
            Ok(service) => service,
            Err(error) if says_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(first) = json::link(&service.fields, "Tasks") else { return Ok(None) };
        let (mut pages, mut paths) = (vec![first], Vec::new());
        while let Some(page) = pages.last() {
            let page = match self.read(operation, page).await {
                Ok(page) => page,
                Err(error) if says_absent(&error) => break,
                Err(error) => return Err(error),
            };
            paths.extend(member_paths(&page.fields, MAX_TASKS.saturating_sub(paths.len())));
            let next =
                page.fields.get("Members@odata.nextLink").and_then(Value::as_str).and_then(json::path_of);
            match next {
                Some(next)
                    if pages.len() < MAX_PAGES && paths.len() < MAX_TASKS && !pages.contains(&next) =>
                {
                    pages.push(next);
                }
                _ => break,
            }
        }
        Ok(Some(paths))
    }
}

fn member_paths(page: &Map<String, Value>, limit: usize) -> Vec<String> {
    let members = page.get("Members").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let paths = members.iter().filter_map(|member| json::path_of(member.get("@odata.id")?.as_str()?));
    paths.take(limit).collect()
}

/// Whether a task belongs to the update service, as far as it says.
pub(crate) fn is_update(fields: &Map<String, Value>) -> bool {
    let payload = json::member(fields, "Payload").and_then(|payload| json::word(payload, "TargetUri"));
    let words = [payload, json::word(fields, "Name"), json::word(fields, "Description")];
    words.into_iter().flatten().any(|word| {
        let word = word.to_ascii_lowercase();
        ["updateservice", "update", "firmware", "flash"].iter().any(|part| word.contains(part))
    })
}

fn has_ended(fields: &Map<String, Value>) -> bool {
    let state = json::word(fields, "TaskState").unwrap_or_default().to_ascii_lowercase();
    ["completed", "exception", "killed", "cancelled", "canceled", "interrupted", "failed"]
        .contains(&state.as_str())
}

/// Whether the BMC responded that it does not have the resource. A response that is broken now and may be whole later says
/// nothing: a BMC that flashes sends such responses, and no update begins beside a running one.
fn says_absent(error: &RedfishError) -> bool {
    is_absent(error) && !matches!(error.kind, ErrorKind::BadAnswer { lasting: false, .. })
}

/// Whether the BMC responded that it cannot show the resource. A BMC that is busy has said nothing about it.
fn cannot_be_shown(error: &RedfishError) -> bool {
    says_absent(error) || matches!(error.kind, ErrorKind::Server { .. })
}

/// The task of the update among new tasks, the newest last.
pub(crate) fn pick(new: &[Resource]) -> Option<&Resource> {
    let named: Vec<&Resource> = new.iter().filter(|task| is_update(&task.fields)).collect();
    let candidates: Vec<&Resource> = if named.is_empty() { new.iter().collect() } else { named };
    let running = candidates.iter().rev().find(|task| !has_ended(&task.fields));
    running.or(candidates.last()).copied()
}

impl Core {
    /// The reason why a list of tasks shows that an update runs: a task of the update service that the BMC carries out now. A
    /// task that waits for a restart or a user, or was never begun, is none: nothing is written. Neither is a task that the BMC
    /// lists and cannot show: an old one must not stop every later update.
    pub(crate) async fn running_update(
        &self,
        operation: Operation,
        paths: &[String],
    ) -> Result<Option<String>, RedfishError> {
        // Lists begin with the oldest task.
        for path in paths.iter().skip(paths.len().saturating_sub(MAX_READ)) {
            let task = match self.read(operation, path).await {
                Ok(task) => task,
                Err(error) if cannot_be_shown(&error) => continue,
                Err(error) => return Err(error),
            };
            if is_update(&task.fields) && is_running(&task.fields) {
                return Ok(Some(format!("its task {} carries out an update", task_id(path))));
            }
        }
        Ok(None)
    }
}

impl Bmc {
    /// Searches an update whose start got no clear response, or whose response named no task. Returns the handle with the
    /// task, or with the stored image that waits for its start; `None` when the BMC shows neither.
    ///
    /// `None` does not prove that the BMC has no image: the installed version decides, after the time an update takes.
    ///
    /// # Errors
    ///
    /// When the list of tasks cannot be read.
    pub async fn find_update(&self, handle: &UpdateHandle) -> Result<Option<UpdateHandle>, RedfishError> {
        if let Some(found) = self.find_task(handle).await? {
            return Ok(Some(found));
        }
        let Some(staged) = handle.staged.as_ref().filter(|_| handle.then.is_none()) else { return Ok(None) };
        let stored = self.core.stored_images(OPERATION, &staged.collection).await?;
        let new = stored.into_iter().find(|path| !staged.before.contains(path));
        Ok(new.map(|image| UpdateHandle { then: Some(staged.request(image)), ..handle.clone() }))
    }

    async fn find_task(&self, handle: &UpdateHandle) -> Result<Option<UpdateHandle>, RedfishError> {
        let Some(service) = &handle.task_service else { return Ok(None) };
        let Some(paths) = self.core.task_paths(OPERATION, service).await? else { return Ok(None) };
        let new: Vec<String> =
            paths.into_iter().filter(|path| !handle.tasks_before.contains(&task_id(path))).collect();
        let mut tasks = Vec::new();
        // Lists begin with the oldest task.
        for path in new.iter().skip(new.len().saturating_sub(MAX_READ)) {
            match self.core.read(OPERATION, path).await {
                Ok(task) => tasks.push(task),
                Err(error) if says_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let found = pick(&tasks).map(|task| UpdateHandle { task: Some(task.path.clone()), ..handle.clone() });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_response_that_is_broken_for_now_is_no_word_that_there_is_no_task() {
        let error = |kind| RedfishError::new(OPERATION, kind);
        let bad = |lasting| error(ErrorKind::BadAnswer { detail: String::new(), lasting });
        let gone = || error(ErrorKind::NotFound { message: String::new() });
        let failed = || error(ErrorKind::Server { status: 500, message_id: None, message: String::new() });
        let table = [
            (bad(false), false, false),
            (bad(true), true, true),
            (gone(), true, true),
            (failed(), false, true),
        ];
        for (error, absent, hidden) in table {
            assert_eq!((says_absent(&error), cannot_be_shown(&error)), (absent, hidden), "{error}");
        }
    }

    fn task(path: &str, body: Value) -> Resource {
        Resource {
            path: path.to_owned(),
            fields: body.as_object().unwrap().clone().into(),
            ..Resource::default()
        }
    }

    #[test]
    fn of_several_new_tasks_the_running_one_of_the_update_service_is_taken() {
        let tasks = [
            task("/1", json!({ "Name": "Firmware update", "TaskState": "Completed" })),
            task(
                "/2",
                json!({ "Payload": { "TargetUri": "/redfish/v1/UpdateService/upload" }, "TaskState": "Running" }),
            ),
            task("/3", json!({ "Name": "Log dump", "TaskState": "Running" })),
        ];
        assert_eq!(pick(&tasks).unwrap().path, "/2");
        assert_eq!(pick(&tasks[2..]).unwrap().path, "/3");
        assert!(pick(&[]).is_none());
    }
}
