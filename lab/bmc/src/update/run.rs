//! Time and restarts: advances the running update, restarts the BMC after its own update.

use std::sync::Arc;
use std::time::Duration;

use super::{UpdateRecord, progress::Next};
use crate::{
    config::{Component, UpdateAnswer},
    sim_bmc::SimBmc,
    state::State,
};

impl State {
    /// The firmware as an operator of the simulated BMC sees it.
    fn installed_firmware(&self) -> Vec<(String, String)> {
        self.updates.items.iter().map(|item| (item.id.clone(), item.version.clone())).collect()
    }
}

impl SimBmc {
    /// The updates that were started, oldest first.
    pub fn updates(&self) -> Vec<UpdateRecord> {
        self.state().updates.log.iter().cloned().collect()
    }

    /// Id and version of each installed firmware.
    pub fn installed(&self) -> Vec<(String, String)> {
        self.state().installed_firmware()
    }

    /// Component and version of the images that were accepted, oldest first; the first 256.
    pub fn accepted_images(&self) -> Vec<(String, String)> {
        self.state().updates.accepted.clone()
    }

    /// Whether an image is being checked or written now.
    pub fn is_flashing(&self) -> bool {
        self.settle_update();
        self.state().updates.is_working(self.elapsed())
    }

    /// Lets an update that hangs go on.
    pub fn continue_update(&self) {
        self.state().updates.go_on();
        self.settle_update();
    }

    /// Writes another version of a component by hand, past the update service; returns the old one. Does nothing while an update
    /// runs or waits.
    pub fn replace_firmware(&self, component: Component, version: &str) -> Option<String> {
        let mut state = self.state();
        if state.updates.has_job() {
            return None;
        }
        state.updates.replace(component, version)
    }

    /// The versions of the components of a kind.
    pub fn versions_of(&self, component: Component) -> Vec<String> {
        let state = self.state();
        let of_kind = state.updates.items.iter().filter(|item| item.component == component);
        of_kind.map(|item| item.version.clone()).collect()
    }

    /// Lets this much time pass for the running update only.
    pub fn skip_flash_time(&self, time: Duration) {
        self.state().updates.skipped += time;
        self.settle_update();
    }

    /// Advances the running update to the current time.
    pub(crate) fn settle_update(&self) {
        loop {
            let at = self.elapsed();
            let next = {
                let mut state = self.state();
                let State { updates, tasks, .. } = &mut *state;
                updates.step(&self.inner.config, tasks, at)
            };
            match next {
                Next::Wait => break,
                Next::Again => self.notify(),
                Next::RestartBmc { new_certificate, for_ever } => {
                    self.restart_after_update(new_certificate, for_ever);
                }
                Next::LosePower(away) => self.lose_power(away),
            }
        }
    }

    /// Advances the update when its stage ends, without a request.
    pub(crate) fn schedule_update(&self) {
        let due = self.state().updates.due();
        let Some(due) = due else { return };
        let after = due.saturating_sub(self.elapsed());
        let bmc = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            if let Some(inner) = bmc.upgrade() {
                let bmc = SimBmc { inner };
                bmc.settle_update();
                // The next stage has its own end; a skipped time may have passed several.
                let left = bmc.state().updates.due().is_some_and(|due| due > bmc.elapsed());
                if left {
                    bmc.schedule_update();
                }
            }
        });
    }

    fn restart_after_update(&self, new_certificate: bool, for_ever: bool) {
        let policy = &self.inner.config.update;
        let time = if for_ever { Duration::from_secs(86_400) } else { policy.restart_time };
        self.restart_bmc(time);
        if new_certificate {
            self.state().certificate += 1;
        }
    }

    /// The host restarts or is powered on.
    pub(crate) fn update_at_restart(&self, state: &mut State, at: Duration) {
        let State { updates, tasks, .. } = state;
        updates.host_restarts(&self.inner.config, tasks, at);
    }

    /// Notes an upload that broke off.
    pub(crate) fn upload_was_cut(&self) {
        self.state().updates.cut += 1;
        self.notify();
    }

    /// Whether a response names no task because the service shows the state.
    pub(super) fn shows_state_at_service(&self) -> bool {
        self.inner.config.update.answer == UpdateAnswer::ServiceState
    }
}
