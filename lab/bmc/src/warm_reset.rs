//! A warm reset: the operating system restarts its machine and the power stays on.
//!
//! ```text
//!   PowerState      On ─────────────── On      unchanged
//!   LastResetTime   t1 ──┐        ┌─── t2
//!   system A ────────────┘ ended  └─── system B, chosen as after any POST (an override of `Once` is consumed)
//! ```

use super::sim_bmc::SimBmc;

impl SimBmc {
    /// Lets the running operating system restart its machine warm; returns `false` when none runs.
    pub fn warm_reset(&self) -> bool {
        let at = self.elapsed();
        let boot = self.drive(|state| {
            let running = state.machine.running.take()?;
            running.cancel.cancel();
            state.last_reset = Some(at);
            state.system_revision += 1;
            self.update_at_restart(state, at);
            Some(self.boot(state, at))
        });
        let Some(boot) = boot else { return false };
        self.inner.host.power_off(&self.inner.config.serial);
        self.inner.host.power_on(boot);
        true
    }
}
