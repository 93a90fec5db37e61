//! One world: its state, and the controller that its clients reach.

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use parking_lot::Mutex;

use super::boundary::Boundary;
use super::state::WorldState;

/// A simulated data centre.
pub(super) struct World {
    pub(super) state: Arc<WorldState>,
    endpoint: Mutex<Option<(Router, Arc<Boundary>)>>,
}

impl Deref for World {
    type Target = WorldState;

    fn deref(&self) -> &WorldState {
        &self.state
    }
}

impl World {
    /// A world in which no controller runs.
    pub(super) fn new(state: WorldState) -> Self {
        Self { state: Arc::new(state), endpoint: Mutex::new(None) }
    }

    /// The router and boundary of the current controller, if it is alive.
    pub(super) fn endpoint(&self) -> Option<(Router, Arc<Boundary>)> {
        self.endpoint.lock().clone().filter(|(_, boundary)| !boundary.is_dead())
    }

    pub(super) fn set_endpoint(&self, endpoint: Option<(Router, Arc<Boundary>)>) {
        *self.endpoint.lock() = endpoint;
    }
}
