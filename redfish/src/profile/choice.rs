//! The profile in force for one BMC: fixed, or found out; refined by what was learned; overridden by the operator.
//!
//! ```text
//!   fixed(profile)                                  ┐
//!   detecting: generic -> by the root -> by it all  ┘ -> refined(learned) -> with(overrides) = in force
//! ```

use std::sync::{Arc, PoisonError, RwLock};

use super::{Flags, Identity, Learned, Profile};

/// What decides about the profile, and the profile.
pub(crate) struct Choice(RwLock<State>);

struct State {
    base: Profile,
    detecting: bool,
    overrides: Flags,
    learned: Learned,
    in_force: Arc<Profile>,
}

impl Choice {
    pub(crate) fn new(base: Profile, detecting: bool, overrides: Flags, learned: Learned) -> Self {
        let in_force = Arc::new(base.clone().refined(&learned).with(&overrides));
        Choice(RwLock::new(State { base, detecting, overrides, learned, in_force }))
    }

    /// The profile in force now.
    pub(crate) fn profile(&self) -> Arc<Profile> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).in_force)
    }

    pub(crate) fn learned(&self) -> Learned {
        self.0.read().unwrap_or_else(PoisonError::into_inner).learned.clone()
    }

    /// Chooses by what the BMC says of itself, unless the profile is fixed.
    pub(crate) fn identify(&self, identity: &Identity) {
        self.change(|state| {
            if state.detecting {
                state.base = Profile::detect(identity);
            }
        });
    }

    /// Learns something; what is known already changes nothing.
    pub(crate) fn learn(&self, learn: impl FnOnce(&mut Learned)) {
        self.change(|state| learn(&mut state.learned));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let in_force = state.base.clone().refined(&state.learned).with(&state.overrides);
        if in_force != *state.in_force {
            state.in_force = Arc::new(in_force);
        }
    }
}
