//! The form of a new job, with the plan of a dry run beside it.

use askama::Template;

use super::frame::Frame;
use crate::data::{DryRunJson, ErrorDetail};
use crate::state::State;
use crate::time::{When, duration};
use crate::words;

/// The form of a new job.
#[derive(Template)]
#[template(path = "new_job.html")]
pub struct NewJobView {
    f: Frame,
    form: JobForm,
    refused: Vec<ErrorDetail>,
    plan: Option<Plan>,
}

/// The fields of the form.
#[derive(Clone, Debug, Default)]
pub struct JobForm {
    /// The serial number of the server.
    pub server: String,
    /// The recipe, as JSON.
    pub recipe: String,
    /// The priority.
    pub priority: String,
    /// Labels as `key=value` words.
    pub labels: String,
    /// The key under which a repetition creates nothing.
    pub key: String,
}

struct Plan {
    state: State,
    head: String,
    steps: Vec<(String, String)>,
    notes: Vec<(State, String)>,
    deadline: When,
}

impl NewJobView {
    /// The form of a new job with the problems of the last attempt, and the plan of its dry run.
    pub fn of(f: Frame, form: JobForm, refused: Vec<ErrorDetail>, plan: Option<&DryRunJson>) -> Self {
        let plan = plan.map(|plan| Plan::of(&f, plan));
        Self { f, form, refused, plan }
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.refused.iter().any(|detail| detail.path.trim_start_matches('/').split('/').next() == Some(field))
    }
}

impl Plan {
    fn of(f: &Frame, plan: &DryRunJson) -> Self {
        let (state, head) = match (&plan.refused, plan.would.as_str(), plan.blocked_by.is_empty()) {
            (Some(refused), ..) => (State::Failed, words::cut(&refused.error.message)),
            (None, "replay", _) => {
                (State::Held, "This request was made before; its job would be shown.".to_owned())
            }
            (None, _, false) => (State::Waiting, "It would be accepted, and it would fail now.".to_owned()),
            (None, _, true) => (State::Done, "It would be accepted.".to_owned()),
        };
        let steps = plan.steps.iter().map(|step| {
            let longest = step.budget_s + step.wait_s.unwrap_or_default();
            (words::step(&step.step).to_owned(), format!("up to {}", duration(longest)))
        });
        let blocked = plan.blocked_by.iter().map(|why| (State::Failed, words::cut(why)));
        let gates = plan.gates.iter().map(|gate| {
            (
                State::Waiting,
                format!("It would wait: {} since {}", gate.name, When::of(gate.since, f.now).words()),
            )
        });
        let advice = plan
            .warnings
            .iter()
            .map(|warning| (State::Waiting, words::cut(&format!("{} {}", warning.path, warning.message))));
        let image = plan.os_image_held.map(|held| match held {
            true => (State::Done, "The OS image is in the registry.".to_owned()),
            false => (State::Waiting, "The OS image is not in the registry of this controller.".to_owned()),
        });
        let slots =
            plan.slot_plan.iter().map(|plan| (State::Done, format!("Slot plan of the last look: {plan}")));
        Self {
            state,
            head,
            steps: steps.collect(),
            notes: blocked.chain(gates).chain(advice).chain(image).chain(slots).collect(),
            deadline: When::of(plan.deadline_at, f.now),
        }
    }
}
