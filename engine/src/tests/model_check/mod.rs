//! A model check of claims, leases, epochs, takeovers and cancels: every interleaving of two controllers, a clock and crashes.
//!
//! ```text
//!   row       step, intent, owner, epoch, due time, cancel       what the store contains
//!   worker    down | idle | busy: what it last read of the row and whether that has changed, its lease, its progress
//!   air       requests in flight: each has its effect ("lands") or is lost within its deadline
//!   outside   the steps whose effect exists
//! ```
//!
//! The actions of [`rules`] lead from one state to the next. The search visits every state within the bounds once and records
//! the path to it, so that a broken rule is reported with its sequence of actions. Times count down to zero, so that equal
//! situations at different times are one state. The invariants of every state:
//!
//! - at most one effect is sent under one epoch for one step;
//! - no effect lands after a later epoch has observed the outside world (except requests of a killed predecessor);
//! - a run that has not ended has a due time;
//! - no claim made after a cancel sends a forward effect;
//! - the end can be reached.
//!
//! [`conformance`] shows that the rules are those of the real store: random walks take the same actions in both and compare the
//! rows. The search finds every rule that is omitted on purpose ([`Mutant`]).

mod conformance;
mod rules;

use std::collections::HashMap;

use rules::{Action, ENDED, EPOCHS, Mutant, State};

/// The result of a search.
struct Searched {
    states: usize,
    /// States from which the end cannot be reached although another claim is within the bounds.
    stuck: usize,
    broken: Option<(&'static str, Vec<Action>)>,
}

fn search(mutant: Mutant) -> Searched {
    let mut states = vec![State::start()];
    let mut known = HashMap::from([(State::start(), 0)]);
    // The predecessors of each state, the first one found first.
    let mut from: Vec<Vec<(usize, Action)>> = vec![Vec::new()];
    let mut at = 0;
    while at < states.len() {
        let state = states[at].clone();
        for action in state.actions() {
            let Some(next) = state.after(action, mutant) else { continue };
            if let Some(rule) = state.broken(action, &next) {
                let broken = Some((rule, path_to(&from, at, action)));
                return Searched { states: states.len(), stuck: 0, broken };
            }
            let found = match known.get(&next) {
                Some(found) => *found,
                None => {
                    known.insert(next.clone(), states.len());
                    states.push(next);
                    from.push(Vec::new());
                    states.len() - 1
                }
            };
            from[found].push((at, action));
        }
        at += 1;
    }
    let mut ends = vec![false; states.len()];
    let mut left: Vec<usize> = (0..states.len()).filter(|at| states[*at].row.step == ENDED).collect();
    while let Some(at) = left.pop() {
        if !std::mem::replace(&mut ends[at], true) {
            left.extend(from[at].iter().map(|(before, _)| *before));
        }
    }
    let stuck = (0..states.len()).filter(|at| !ends[*at] && states[*at].row.epoch < EPOCHS).count();
    Searched { states: states.len(), stuck, broken: None }
}

/// The actions that lead to a state, and the last action.
fn path_to(from: &[Vec<(usize, Action)>], mut at: usize, last: Action) -> Vec<Action> {
    let mut actions = vec![last];
    while at > 0 {
        let (before, action) = from[at][0];
        actions.push(action);
        at = before;
    }
    actions.reverse();
    actions
}

#[test]
fn no_interleaving_of_two_controllers_and_crashes_breaks_a_rule_or_sticks() {
    let searched = search(Mutant::None);
    if let Some((rule, path)) = searched.broken {
        panic!("{rule}: {path:?}");
    }
    assert_eq!(searched.stuck, 0, "states from which the end cannot be reached, of {}", searched.states);
    assert!(searched.states > 10_000, "{} states are too few for a complete search", searched.states);
}

#[test]
fn every_omitted_rule_is_found_by_the_search() {
    for (mutant, rule) in [
        (Mutant::NoGrace, "an effect landed after a later owner had observed"),
        (Mutant::SameEpoch, "two effects under one epoch"),
        (Mutant::CommitsAnyway, "an effect landed after a later owner had observed"),
        (Mutant::SendsAnyway, "an effect landed after a later owner had observed"),
        (Mutant::NeverDue, "a run that has not ended has no due time"),
        (Mutant::RepeatsUnobserved, "two effects under one epoch"),
        (Mutant::IgnoresCancel, "a forward effect by a claim made after a cancel"),
    ] {
        let (found, path) = search(mutant).broken.unwrap_or_else(|| panic!("{mutant:?} was not found"));
        assert_eq!(found, rule, "{mutant:?}: {path:?}");
    }
}
