//! The power of the host: a state machine without clock, socket or task.
//!
//! ```text
//!                     On, ForceOn, PushPowerButton             post_time
//!        ┌─────┐ ──────────────────────────────────► ┌──────┐ ─────────► ┌────┐
//!   ┌──► │ Off │                                      │ Post │  boots     │ On │ ◄─┐ ignored by the OS
//!   │    └─────┘ ◄──────────────┐                     └──┬───┘            └┬─┬─┘ ──┘
//!   │ off_time                  │ off_time, then Post    │ ForceOff,       │ │ GracefulShutdown,
//!   │    ┌──────────┐           │ (a restart)            │ ForceRestart,   │ │ GracefulRestart,
//!   └─── │ Stopping │ ──────────┘                        │ PowerCycle      │ │ PushPowerButton
//!        └──────────┘ ◄──────────────────────────────────┴─────────────────┘ ▼
//!              ▲                      graceful time                ┌──────────────┐
//!              └────────────────────────────────────────────────── │ GracefulStop │   (or the host ends by itself)
//!                                                                  └──────────────┘
//! ```
//!
//! `PowerState` shows: Off `Off`, Post `PoweringOn`, On and GracefulStop `On`, Stopping `PoweringOff`.
//!
//! Invariants
//! - An operating system runs in On and GracefulStop only; leaving these phases ends it first.
//! - Each command and each change of phase starts a new `epoch`; a timer of an older epoch does nothing.
//! - The boot source is chosen at the end of Post, so an override written during Post is used.
//!
//! Reference: DSP0268 ComputerSystem `PowerState` and the `Reset` action.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    config::{Graceful, PowerPolicy},
    host::BootSource,
    types::{Power, ResetType},
};

/// The next state of the host after the power is off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AfterPowerOff {
    StayOff,
    PowerOn,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Off,
    Post,
    On,
    GracefulStop(AfterPowerOff),
    Stopping(AfterPowerOff),
}

/// The running operating system.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) source: BootSource,
    /// Slots that had a medium at boot: the system may be reading from them.
    pub(super) slots: Vec<usize>,
    pub(super) cancel: CancellationToken,
}

/// The time after which [`PowerMachine::elapse`] is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Timer {
    pub(super) after: Duration,
    pub(super) epoch: u64,
}

/// The reason why a reset is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ResetRefusal {
    /// The host already has the requested power state.
    AlreadyThere,
    /// The host is off and the reset is a restart.
    Standby,
    /// The host is powering off.
    Moving,
}

/// The effect of a timer that ran out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Elapsed {
    /// The timer has no effect: it belongs to an earlier epoch.
    Stale,
    /// The operating system has shut down; the power goes off after this timer.
    ShutDown(Timer),
    /// The power is off and stays off.
    Off,
    /// The power is off and comes back after this timer (a restart).
    OffAndOn(Timer),
    /// Post is over: the caller chooses the boot source and calls [`PowerMachine::started`].
    Boot,
}

/// The state machine of the host's power.
#[derive(Debug)]
pub(super) struct PowerMachine {
    phase: Phase,
    epoch: u64,
    pub(super) generation: u64,
    pub(super) power_ons: u64,
    pub(super) running: Option<Running>,
}

impl PowerMachine {
    pub(super) fn new(starts_on: bool) -> Self {
        let running = starts_on.then(|| Running {
            source: BootSource::Disk,
            slots: Vec::new(),
            cancel: CancellationToken::new(),
        });
        let phase = if starts_on { Phase::On } else { Phase::Off };
        Self { phase, epoch: 0, generation: 0, power_ons: 0, running }
    }

    pub(super) fn power(&self) -> Power {
        match self.phase {
            Phase::Off => Power::Off,
            Phase::Post => Power::PoweringOn,
            Phase::On | Phase::GracefulStop(_) => Power::On,
            Phase::Stopping(_) => Power::PoweringOff,
        }
    }

    /// Whether the operating system was asked to shut down and still runs.
    pub(super) fn is_stopping_gracefully(&self) -> bool {
        matches!(self.phase, Phase::GracefulStop(_))
    }

    /// Whether the host is between power-on and the choice of the boot source.
    pub(super) fn is_in_post(&self) -> bool {
        self.phase == Phase::Post
    }

    /// Carries out one reset. `Ok(None)`: accepted, and no timer follows.
    pub(super) fn reset(
        &mut self,
        kind: ResetType,
        policy: &PowerPolicy,
    ) -> Result<Option<Timer>, ResetRefusal> {
        use ResetType as R;
        match (kind, self.phase) {
            (R::Nmi, Phase::Off) => Err(ResetRefusal::Standby),
            (R::Nmi, _) => Ok(None),
            (_, Phase::Stopping(_)) if kind == R::ForceOff => {
                Ok(Some(self.enter(Phase::Stopping(AfterPowerOff::StayOff), policy.off_time)))
            }
            (_, Phase::Stopping(_)) => Err(ResetRefusal::Moving),
            (R::On | R::ForceOn | R::PushPowerButton, Phase::Off) => Ok(Some(self.power_on(policy))),
            (R::On | R::ForceOn, _) => Err(ResetRefusal::AlreadyThere),
            (R::ForceOff | R::GracefulShutdown, Phase::Off) => Err(ResetRefusal::AlreadyThere),
            (_, Phase::Off) => Err(ResetRefusal::Standby),
            (R::ForceOff, _) => Ok(Some(self.stop(AfterPowerOff::StayOff, policy))),
            (R::ForceRestart | R::PowerCycle, _) => Ok(Some(self.stop(AfterPowerOff::PowerOn, policy))),
            (R::GracefulShutdown | R::PushPowerButton, phase) => {
                Ok(self.ask_to_stop(phase, AfterPowerOff::StayOff, policy))
            }
            (R::GracefulRestart, phase) => Ok(self.ask_to_stop(phase, AfterPowerOff::PowerOn, policy)),
        }
    }

    /// Handles the end of the operating system of `generation`. Ignored if another one runs.
    pub(super) fn host_stops(
        &mut self,
        generation: u64,
        restart: bool,
        policy: &PowerPolicy,
    ) -> Option<Timer> {
        if self.running.is_none() || self.generation != generation {
            return None;
        }
        let asked_to_restart = self.phase == Phase::GracefulStop(AfterPowerOff::PowerOn);
        let then = if restart || asked_to_restart { AfterPowerOff::PowerOn } else { AfterPowerOff::StayOff };
        Some(self.stop(then, policy))
    }

    /// Handles the timer of `epoch`, which ran out.
    pub(super) fn elapse(&mut self, epoch: u64, policy: &PowerPolicy) -> Elapsed {
        if epoch != self.epoch {
            return Elapsed::Stale;
        }
        match self.phase {
            Phase::Off | Phase::On => Elapsed::Stale,
            Phase::Post => Elapsed::Boot,
            Phase::GracefulStop(then) => Elapsed::ShutDown(self.stop(then, policy)),
            Phase::Stopping(AfterPowerOff::StayOff) => {
                self.enter(Phase::Off, Duration::ZERO);
                Elapsed::Off
            }
            Phase::Stopping(AfterPowerOff::PowerOn) => Elapsed::OffAndOn(self.power_on(policy)),
        }
    }

    /// Ends Post with this operating system and returns its generation.
    pub(super) fn started(&mut self, running: Running) -> u64 {
        self.enter(Phase::On, Duration::ZERO);
        self.running = Some(running);
        self.generation += 1;
        self.generation
    }

    /// The mains power is gone: the operating system ends at once, and the host stays off when the power is back.
    pub(super) fn lose_power(&mut self) {
        if let Some(running) = self.running.take() {
            running.cancel.cancel();
        }
        self.enter(Phase::Off, Duration::ZERO);
    }

    fn power_on(&mut self, policy: &PowerPolicy) -> Timer {
        self.power_ons += 1;
        self.enter(Phase::Post, policy.post_time)
    }

    fn stop(&mut self, then: AfterPowerOff, policy: &PowerPolicy) -> Timer {
        if let Some(running) = self.running.take() {
            running.cancel.cancel();
        }
        self.enter(Phase::Stopping(then), policy.off_time)
    }

    fn ask_to_stop(&mut self, phase: Phase, then: AfterPowerOff, policy: &PowerPolicy) -> Option<Timer> {
        match (phase, policy.graceful) {
            // During Post no operating system can ignore the request: the power goes off.
            (Phase::Post, _) => Some(self.stop(then, policy)),
            (_, Graceful::PassedToHost) => {
                self.enter(Phase::GracefulStop(then), Duration::ZERO);
                None
            }
            (Phase::GracefulStop(_), _) | (_, Graceful::IgnoredByHost) => None,
            (_, Graceful::After(time)) => Some(self.enter(Phase::GracefulStop(then), time)),
        }
    }

    fn enter(&mut self, phase: Phase, after: Duration) -> Timer {
        self.phase = phase;
        self.epoch += 1;
        Timer { after, epoch: self.epoch }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use strum::VariantArray;

    use super::*;

    fn finish(machine: &mut PowerMachine, mut timer: Option<Timer>, policy: &PowerPolicy) {
        while let Some(due) = timer.take() {
            timer = match machine.elapse(due.epoch, policy) {
                Elapsed::Stale | Elapsed::Off => None,
                Elapsed::ShutDown(next) | Elapsed::OffAndOn(next) => Some(next),
                Elapsed::Boot => {
                    machine.started(Running {
                        source: BootSource::Disk,
                        slots: Vec::new(),
                        cancel: CancellationToken::new(),
                    });
                    None
                }
            };
        }
    }

    #[test]
    fn a_timer_of_an_overtaken_command_does_nothing() {
        let policy =
            PowerPolicy { graceful: Graceful::After(Duration::from_secs(60)), ..PowerPolicy::default() };
        let mut machine = PowerMachine::new(true);
        let graceful = machine.reset(ResetType::GracefulRestart, &policy).unwrap().unwrap();
        let forced = machine.reset(ResetType::ForceOff, &policy).unwrap();
        assert_eq!(machine.elapse(graceful.epoch, &policy), Elapsed::Stale);
        finish(&mut machine, forced, &policy);
        assert_eq!(machine.power(), Power::Off);
        assert_eq!(machine.power_ons, 0);
    }

    #[test]
    fn an_ignored_graceful_shutdown_is_accepted_and_changes_nothing() {
        let policy = PowerPolicy { graceful: Graceful::IgnoredByHost, ..PowerPolicy::default() };
        let mut machine = PowerMachine::new(true);
        assert_eq!(machine.reset(ResetType::GracefulShutdown, &policy), Ok(None));
        assert_eq!(machine.power(), Power::On);
        assert!(machine.running.is_some());
    }

    #[test]
    fn a_shutdown_that_is_passed_to_the_host_has_no_timer_and_a_restart_is_remembered() {
        let policy = PowerPolicy { graceful: Graceful::PassedToHost, ..PowerPolicy::default() };
        for (kind, after) in
            [(ResetType::GracefulShutdown, Power::Off), (ResetType::GracefulRestart, Power::On)]
        {
            let mut machine = PowerMachine::new(true);
            assert_eq!(machine.reset(kind, &policy), Ok(None));
            assert!(machine.is_stopping_gracefully() && machine.running.is_some());
            assert_eq!(machine.power(), Power::On);
            let timer = machine.host_stops(0, false, &policy);
            finish(&mut machine, timer, &policy);
            assert_eq!(machine.power(), after, "{kind}");
        }
    }

    #[test]
    fn a_restart_of_a_host_that_is_off_is_refused() {
        let policy = PowerPolicy::default();
        for kind in [ResetType::ForceRestart, ResetType::PowerCycle, ResetType::GracefulRestart] {
            assert_eq!(PowerMachine::new(false).reset(kind, &policy), Err(ResetRefusal::Standby), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn an_operating_system_runs_exactly_while_the_power_is_on(
            starts_on: bool,
            commands in proptest::collection::vec((0_usize..ResetType::VARIANTS.len(), any::<bool>()), 0..24),
        ) {
            let policy = PowerPolicy::default();
            let mut machine = PowerMachine::new(starts_on);
            for (kind, settle) in commands {
                let timer = machine.reset(ResetType::VARIANTS[kind], &policy).ok().flatten();
                prop_assert_eq!(machine.power() == Power::On, machine.running.is_some());
                if settle {
                    finish(&mut machine, timer, &policy);
                }
                prop_assert_eq!(machine.power() == Power::On, machine.running.is_some());
                prop_assert!(machine.generation <= machine.power_ons);
            }
        }
    }
}
