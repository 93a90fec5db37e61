//! Claim, lease, epoch, steal and cancel, searched through every interleaving of two controllers, a clock and crashes.
//!
//! ```text
//!   row       step, intent, owner, epoch, wake time, cancel      what the store keeps
//!   worker    down | idle | busy: what it last read of the row and whether that has moved, its lease, how far it is
//!   air       requests sent and not yet landed: each lands or is lost within one deadline
//!   outside   which steps' effects hold
//! ```
//!
//! A state's successors are the actions of [`rules`]. The search visits every state within the bounds once and keeps how it
//! came there, so that a broken rule is shown as a story. Times count down to zero, so that the same situation later is the
//! same state. Held in every state:
//!
//! - one effect at most is sent under one epoch for one step;
//! - no effect lands after a later epoch has looked at the outside world (but for what a killed predecessor left in the air);
//! - a run that has not ended has a wake time;
//! - no claim made after a cancel sends a forward effect;
//! - the end can be reached.
//!
//! That the rules are those of the real store is shown in [`conformance`]: random walks take the same actions in both and
//! compare the rows. Each rule that is left out on purpose ([`Mutant`]) is found by the search.

mod conformance;
mod rules;

use std::collections::HashMap;

use rules::{Action, ENDED, EPOCHS, Mutant, State};

/// What a search came to.
struct Searched {
    states: usize,
    /// States from which the end cannot be reached although another claim is within the bounds.
    stuck: usize,
    broken: Option<(&'static str, Vec<Action>)>,
}

fn search(mutant: Mutant) -> Searched {
    let mut states = vec![State::start()];
    let mut known = HashMap::from([(State::start(), 0)]);
    // How each state was come to, the first way first.
    let mut from: Vec<Vec<(usize, Action)>> = vec![Vec::new()];
    let mut at = 0;
    while at < states.len() {
        let state = states[at].clone();
        for action in state.actions() {
            let Some(next) = state.after(action, mutant) else { continue };
            if let Some(rule) = state.broken(action, &next) {
                let broken = Some((rule, story(&from, at, action)));
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

/// The actions that lead to a state, and the last one.
fn story(from: &[Vec<(usize, Action)>], mut at: usize, last: Action) -> Vec<Action> {
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
    if let Some((rule, story)) = searched.broken {
        panic!("{rule}: {story:?}");
    }
    assert_eq!(searched.stuck, 0, "states without a way to the end, of {}", searched.states);
    assert!(searched.states > 10_000, "{} states are too few to have searched anything", searched.states);
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    for (mutant, rule) in [
        (Mutant::NoGrace, "an effect landed after a later owner had looked"),
        (Mutant::SameEpoch, "two effects under one epoch"),
        (Mutant::CommitsAnyway, "an effect landed after a later owner had looked"),
        (Mutant::SendsAnyway, "an effect landed after a later owner had looked"),
        (Mutant::SleepsForGood, "a run that has not ended has no wake time"),
        (Mutant::RepeatsBlindly, "two effects under one epoch"),
        (Mutant::DeafToCancel, "a forward effect by a claim made after a cancel"),
    ] {
        let (found, story) = search(mutant).broken.unwrap_or_else(|| panic!("{mutant:?} was not found"));
        assert_eq!(found, rule, "{mutant:?}: {story:?}");
    }
}
