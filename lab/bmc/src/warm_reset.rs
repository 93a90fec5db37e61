//! A restart that the power does not notice: the operating system resets its machine warm.
//!
//! ```text
//!   PowerState      On ─────────────── On      nothing to see
//!   LastResetTime   t1 ──┐        ┌─── t2
//!   system A ────────────┘ gone   └─── system B, chosen as after any Post (an override of once is used up)
//! ```

use super::sim_bmc::SimBmc;

impl SimBmc {
    /// The running operating system restarts its machine warm; `false` when none runs.
    pub fn warm_reset(&self) -> bool {
        let at = self.elapsed();
        let boot = self.drive(|state| {
            let running = state.machine.running.take()?;
            running.cancel.cancel();
            state.last_reset = Some(at);
            state.system_revision += 1;
            Some(self.boot(state, at))
        });
        let Some(boot) = boot else { return false };
        self.inner.host.power_off(&self.inner.config.serial);
        self.inner.host.power_on(boot);
        true
    }
}
