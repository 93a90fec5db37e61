//! Finds the task in the response to an accepted update, in every place where BMCs name it.
//!
//! ```text
//!   Location                                  monitor, or Task; of a stored upload the path of the image
//!   body: Task with @odata.id, TaskMonitor
//!   body: MessageArgs ["/redfish/v1/TaskService/Tasks/1"] at any depth
//!   nothing                                   the task list, or the service, shows the update
//! ```

use serde_json::{Map, Value};

use crate::exchange::BmcResponse;
use crate::json;

/// The depth to which a body is searched for message arguments.
const MAX_DEPTH: usize = 6;
/// Maximum number of values that are searched.
const MAX_SEARCHED: usize = 512;

/// Paths named by a response.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) monitor: Option<String>,
    pub(crate) task: Option<String>,
    /// The `Location`, when it is neither a task nor a monitor.
    pub(crate) other: Option<String>,
}

impl Accepted {
    pub(crate) fn of(response: &BmcResponse) -> Self {
        let fields = json::object(&response.body).unwrap_or_default();
        Accepted::read(response.location(), &fields)
    }

    pub(crate) fn read(location: Option<String>, fields: &Map<String, Value>) -> Self {
        let mut found = Accepted::default();
        if let Some(location) = location {
            found.note(location);
        }
        let is_task = fields.contains_key("TaskState")
            || json::word(fields, "@odata.type").is_some_and(|kind| kind.contains("Task."));
        let path = |name: &str| json::word(fields, name).and_then(|path| json::path_of(&path));
        if is_task && let Some(task) = path("@odata.id") {
            found.task = Some(task);
        }
        if is_task && let Some(monitor) = path("TaskMonitor") {
            found.monitor.get_or_insert(monitor);
        }
        if found.monitor.is_none() && found.task.is_none() {
            let mut left = MAX_SEARCHED;
            let named = argument(&Value::Object(fields.clone()), false, MAX_DEPTH, &mut left);
            if let Some(path) = named {
                found.note(path);
            }
        }
        found
    }

    /// Sorts a path by its form: task, monitor, or another one.
    fn note(&mut self, path: String) {
        let lower = path.to_ascii_lowercase();
        let ends = lower.trim_end_matches('/').ends_with("/monitor");
        if lower.contains("/taskmonitor") || ends {
            self.monitor.get_or_insert(path);
        } else if lower.contains("/tasks/") || lower.contains("/jobs/") {
            self.task.get_or_insert(path);
        } else {
            self.other.get_or_insert(path);
        }
    }
}

/// The first message argument that is the path of a task.
fn argument(value: &Value, in_arguments: bool, depth: usize, left: &mut usize) -> Option<String> {
    if depth == 0 || *left == 0 {
        return None;
    }
    *left -= 1;
    match value {
        Value::String(text) if in_arguments => {
            let path = json::path_of(text)?;
            let lower = path.to_ascii_lowercase();
            (lower.contains("/tasks/") || lower.contains("/taskmonitor")).then_some(path)
        }
        Value::Array(entries) => {
            entries.iter().find_map(|entry| argument(entry, in_arguments, depth - 1, left))
        }
        Value::Object(members) => {
            members.iter().find_map(|(name, member)| argument(member, name == "MessageArgs", depth - 1, left))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(location: Option<&str>, body: Value) -> Accepted {
        Accepted::read(location.map(str::to_owned), body.as_object().unwrap())
    }

    #[test]
    fn the_task_is_found_in_every_place() {
        let task = "/redfish/v1/TaskService/Tasks/1";
        let named = json!({ "Accepted": { "@Message.ExtendedInfo": [
            { "MessageId": "X.1.0.OemAccepted", "Message": task, "MessageArgs": [task] }
        ]}});
        for (location, body, expected) in [
            (Some(task), json!({}), (None, Some(task))),
            (
                Some("/redfish/v1/TaskService/TaskMonitors/1"),
                json!({}),
                (Some("/redfish/v1/TaskService/TaskMonitors/1"), None),
            ),
            (
                Some("/redfish/v1/TaskService/Tasks/1/Monitor"),
                json!({ "@odata.id": task, "TaskState": "New" }),
                (Some("/redfish/v1/TaskService/Tasks/1/Monitor"), Some(task)),
            ),
            (None, named, (None, Some(task))),
            (None, json!({ "Messages": [{ "MessageArgs": ["BIOS"] }] }), (None, None)),
        ] {
            let found = read(location, body);
            assert_eq!((found.monitor.as_deref(), found.task.as_deref()), expected);
        }
        let stored = read(Some("/redfish/v1/UpdateService/FirmwareInventory/Available-1"), json!({}));
        assert!(stored.task.is_none() && stored.other.is_some());
    }

    #[test]
    fn a_path_of_another_host_is_reduced_to_this_bmc() {
        let found =
            read(None, json!({ "MessageArgs": ["https://elsewhere/redfish/v1/TaskService/Tasks/9"] }));
        assert_eq!(found.task.as_deref(), Some("/redfish/v1/TaskService/Tasks/9"));
    }
}
