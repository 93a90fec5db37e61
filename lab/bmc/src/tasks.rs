//! Asynchronous operations: Redfish tasks and task monitors.
//!
//! ```text
//!   202 + Location /TaskService/TaskMonitors/{id}, and the task in the body; or one of the two
//!   monitor  202 while it runs ──► the response of the operation | 404 | still 202
//!   task     TaskState running ──► completed | Exception
//! ```
//!
//! Invariant: at most 64 tasks are kept, the oldest is dropped first.

use std::collections::VecDeque;

use http::{StatusCode, header};
use serde_json::{Value, json};

use super::{
    config::{MonitorAfter, SimBmcConfig},
    reply::Reply,
    routes::{self, Resource},
};

const KEPT: usize = 64;

/// One task.
#[derive(Debug)]
struct Task {
    id: u64,
    name: &'static str,
    /// Status and body of the operation's response; `None` while the task runs.
    done: Option<(StatusCode, Value)>,
    /// Members that take precedence over those of every task.
    overlay: Value,
}

/// The tasks that are kept.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    list: VecDeque<Task>,
    last: u64,
}

impl Tasks {
    pub(super) fn begin(&mut self, name: &'static str) -> u64 {
        if self.list.len() == KEPT {
            self.list.pop_front();
        }
        self.last += 1;
        self.list.push_back(Task { id: self.last, name, done: None, overlay: Value::Null });
        self.last
    }

    /// Sets members of a task; `ended` ends it with success or failure.
    pub(super) fn overlay(&mut self, id: u64, members: Value, ended: Option<bool>) {
        let Some(task) = self.list.iter_mut().find(|task| task.id == id) else { return };
        task.overlay = members;
        task.done = match ended {
            Some(true) => Some((StatusCode::NO_CONTENT, Value::Null)),
            Some(false) => Some((
                StatusCode::BAD_REQUEST,
                json!({ "error": {
                    "code": "Update.1.1.ApplyFailed",
                    "message": "The update failed.",
                    "@Message.ExtendedInfo": task.overlay["Messages"].clone(),
                }}),
            )),
            None => None,
        };
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.list.retain(|task| task.id != id);
    }

    /// The ids of the tasks, oldest first.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.list.iter().map(|task| task.id)
    }

    pub(super) fn end(&mut self, id: u64, done: (StatusCode, Value)) {
        if let Some(task) = self.list.iter_mut().find(|task| task.id == id) {
            task.done = Some(done);
        }
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    fn get(&self, id: u64) -> Option<&Task> {
        self.list.iter().find(|task| task.id == id)
    }

    /// The task as a resource.
    pub(super) fn show(&self, config: &SimBmcConfig, id: u64) -> Option<Value> {
        let task = self.get(id)?;
        let (state, status, percent) = match &task.done {
            None => (config.tasks.running.as_str(), "OK", 50),
            Some((code, _)) if code.is_success() => (config.tasks.completed.as_str(), "OK", 100),
            Some(_) => ("Exception", "Critical", 100),
        };
        let mut body = json!({
            "@odata.id": routes::uri(config, &Resource::Task(id)),
            "@odata.type": "#Task.v1_7_1.Task",
            "Id": format!("{}{id}", config.tasks.prefix),
            "Name": task.name,
            "TaskMonitor": routes::uri(config, &Resource::TaskMonitor(id)),
            "TaskState": state,
            "TaskStatus": status,
            "PercentComplete": percent,
            "Messages": [],
        });
        if let Some(messages) =
            task.done.as_ref().and_then(|(_, body)| body.pointer("/error/@Message.ExtendedInfo"))
        {
            body["Messages"] = messages.clone();
        }
        for (name, value) in task.overlay.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        Some(body)
    }

    /// The response of the task monitor; `None` when it does not exist.
    pub(super) fn monitor(&self, config: &SimBmcConfig, id: u64) -> Option<Reply> {
        let task = self.get(id)?;
        let accepted = || {
            let shown = self.show(config, id).unwrap_or_default();
            Reply::json(StatusCode::ACCEPTED, &shown)
                .with(header::LOCATION, &routes::uri(config, &Resource::TaskMonitor(id)))
                .with(header::RETRY_AFTER, "1")
        };
        match (&task.done, config.tasks.monitor) {
            (None, _) | (Some(_), MonitorAfter::StillAccepted) => Some(accepted()),
            (Some(_), MonitorAfter::Gone) => None,
            (Some((status, body)), MonitorAfter::Result) if body.is_null() => Some(Reply::empty(*status)),
            (Some((status, body)), MonitorAfter::Result) => Some(Reply::json(*status, body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_task_is_dropped_first() {
        let config = SimBmcConfig::new("S1", "root", "calvin");
        let mut tasks = Tasks::default();
        for _ in 0..=KEPT {
            tasks.begin("Insert");
        }
        assert!(tasks.show(&config, 1).is_none());
        assert!(tasks.show(&config, 2).is_some());
        assert_eq!(tasks.list.len(), KEPT);
    }

    #[test]
    fn the_monitor_of_a_finished_task_responds_as_configured() {
        let mut config = SimBmcConfig::new("S1", "root", "calvin");
        let mut tasks = Tasks::default();
        let id = tasks.begin("Insert");
        assert_eq!(tasks.monitor(&config, id).unwrap().status, StatusCode::ACCEPTED);
        tasks.end(id, (StatusCode::NO_CONTENT, Value::Null));
        for (after, status) in [
            (MonitorAfter::Result, Some(StatusCode::NO_CONTENT)),
            (MonitorAfter::Gone, None),
            (MonitorAfter::StillAccepted, Some(StatusCode::ACCEPTED)),
        ] {
            config.tasks.monitor = after;
            assert_eq!(tasks.monitor(&config, id).map(|reply| reply.status), status, "{after:?}");
        }
        assert_eq!(tasks.show(&config, id).unwrap()["TaskState"], "Completed");
    }
}
