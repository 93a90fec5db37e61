//! The profile in force for one BMC: fixed or detected, refined by learned behaviour, overridden by the operator.
//!
//! ```text
//!   fixed profile                                                     ┐
//!   detecting: generic -> by service root -> by root, system, manager ┘ -> refined(learned) -> with(overrides) = in force
//! ```
//!
//! Invariant: the service root alone never replaces what a discovery, of this process or of an earlier one, has found.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{BmcIdentity, Flags, Learned, Profile};

/// The profile in force and what it is computed from.
pub(crate) struct ActiveProfile(RwLock<State>);

struct State {
    base: Profile,
    detecting: bool,
    /// Whether the whole identity is known, not the service root alone.
    identified: bool,
    overrides: Flags,
    learned: Learned,
    in_force: Arc<Profile>,
}

impl ActiveProfile {
    pub(crate) fn new(base: Profile, detecting: bool, overrides: Flags, learned: Learned) -> Self {
        let in_force = Arc::new(base.clone().refined(&learned).with(&overrides));
        ActiveProfile(RwLock::new(State { base, detecting, identified: false, overrides, learned, in_force }))
    }

    /// The profile in force now.
    pub(crate) fn profile(&self) -> Arc<Profile> {
        Arc::clone(&self.0.read().in_force)
    }

    pub(crate) fn learned(&self) -> Learned {
        self.0.read().learned.clone()
    }

    /// Chooses the profile by the identity of the BMC, unless the profile is fixed.
    pub(crate) fn identify(&self, identity: &BmcIdentity) {
        self.change(|state| {
            state.identified = true;
            if state.detecting {
                state.base = Profile::detect(identity);
            }
        });
    }

    /// Chooses the profile by the service root, which is read before the login, until the whole identity is known.
    pub(crate) fn suppose(&self, root: &BmcIdentity) {
        if !self.0.read().identified {
            self.change(|state| {
                if state.detecting && !state.identified {
                    state.base = Profile::detect(root);
                }
            });
        }
    }

    /// Updates the learned behaviour and recomputes the profile.
    pub(crate) fn learn(&self, learn: impl FnOnce(&mut Learned)) {
        self.change(|state| learn(&mut state.learned));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.write();
        change(&mut state);
        let in_force = state.base.clone().refined(&state.learned).with(&state.overrides);
        if in_force != *state.in_force {
            state.in_force = Arc::new(in_force);
        }
    }
}
