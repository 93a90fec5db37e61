//! Whether a machine stays on or powers off after its final report.
//!
//! ```text
//! `after: off`   success, acknowledged: off     failure: off after ten minutes, in which the console can be read
//! by the medium  success: off     failure: stay     (the recipe does not matter: the power state is part of the report)
//! rescue         stay: an operator works on it, and the controller ends the session
//! anything else  stay
//! ```
//!
//! Staying is the rule: the controller powers the machine off, ejects the media and powers it on. A machine that restarts by
//! itself before that boots the medium again.

use std::{collections::BTreeMap, time::Duration};

use recipe::After;
use serde::Deserialize;

use crate::outcome::Outcome;
use crate::report::ReportDelivery;

/// How long a failed machine stays on at least.
pub const FAILED_TIME: Duration = Duration::from_secs(600);

/// Whether the machine stays on or powers off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The machine stays on.
    Stay,
    /// The machine powers off after this time.
    Off(Duration),
}

/// Reads the wish of the recipe from the files of a task. Without a known word it is the default: the controller decides.
#[must_use]
pub fn wish(files: &BTreeMap<String, Vec<u8>>) -> After {
    #[derive(Deserialize)]
    struct Recipe {
        after: Option<String>,
    }
    let recipe = files.get("recipe.json").and_then(|bytes| serde_json::from_slice::<Recipe>(bytes).ok());
    recipe.and_then(|recipe| After::parse(&recipe.after?)).unwrap_or_default()
}

/// Returns what the machine does after its final report.
#[must_use]
pub fn ending(after: After, outcome: &Outcome, delivery: &ReportDelivery) -> Ending {
    match (after, outcome, delivery) {
        (After::Off, Outcome::Success, ReportDelivery::Acknowledged) => Ending::Off(Duration::ZERO),
        // The power state is the acknowledgement: the controller reads it, then powers the machine on if the recipe says so.
        (_, Outcome::Success, ReportDelivery::Said) => Ending::Off(Duration::ZERO),
        (_, Outcome::Failed { .. }, ReportDelivery::Said) => Ending::Stay,
        (After::Off, Outcome::Failed { .. }, _) => Ending::Off(FAILED_TIME),
        _ => Ending::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_stays_on_unless_its_recipe_says_otherwise() {
        assert_eq!(wish(&BTreeMap::new()), After::Restart);
        for (recipe, expected) in [
            ("{}", After::Restart),
            ("broken", After::Restart),
            (r#"{"after": "explode"}"#, After::Restart),
            (r#"{"after": 7}"#, After::Restart),
            (r#"{"after": "restart", "task_target": "x"}"#, After::Restart),
            (r#"{"after": "off"}"#, After::Off),
        ] {
            assert_eq!(
                wish(&[("recipe.json".to_owned(), recipe.as_bytes().to_vec())].into()),
                expected,
                "{recipe}"
            );
        }
    }

    #[test]
    fn a_machine_never_restarts_by_itself_and_stays_on_for_ten_minutes_after_a_failure() {
        let failed = Outcome::Failed { step: "a".to_owned(), message: "b".to_owned() };
        for delivery in [ReportDelivery::Acknowledged, ReportDelivery::Refused(404), ReportDelivery::GaveUp] {
            assert_eq!(ending(After::Off, &failed, &delivery), Ending::Off(FAILED_TIME));
            assert_eq!(ending(After::Restart, &failed, &delivery), Ending::Stay);
        }
        assert_eq!(ending(After::Restart, &Outcome::Success, &ReportDelivery::Acknowledged), Ending::Stay);
        let reachable = Outcome::Reachable(crate::rescue::RescueReach::default());
        assert_eq!(ending(After::Off, &reachable, &ReportDelivery::Acknowledged), Ending::Stay);
        assert_eq!(ending(After::Off, &Outcome::Success, &ReportDelivery::Refused(409)), Ending::Stay);
        assert_eq!(
            ending(After::Off, &Outcome::Success, &ReportDelivery::Acknowledged),
            Ending::Off(Duration::ZERO)
        );
    }

    #[test]
    fn a_machine_that_reports_by_its_medium_is_off_after_a_success_and_on_after_a_failure() {
        let failed = Outcome::Failed { step: "a".to_owned(), message: "b".to_owned() };
        for after in [After::Off, After::Restart] {
            assert_eq!(ending(after, &Outcome::Success, &ReportDelivery::Said), Ending::Off(Duration::ZERO));
            assert_eq!(ending(after, &failed, &ReportDelivery::Said), Ending::Stay);
        }
    }
}
