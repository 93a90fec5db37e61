//! The power of the host: a pure state machine without clock, socket or task.
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
//!              └────────────────────────────────────────────────── │ GracefulStop │
//!                                                                  └──────────────┘
//! ```
//!
//! What `PowerState` shows: Off `Off`, Post `PoweringOn`, On and GracefulStop `On`, Stopping `PoweringOff`.
//!
//! Invariants
//! - An operating system runs in On and GracefulStop only; leaving them ends it before anything else happens.
//! - Each command and each change starts a new `epoch`; a timer of an older epoch does nothing.
//! - The boot source is chosen at the end of Post, so that an override written during Post still counts.
//!
//! Reference: DSP0268 ComputerSystem `PowerState` and the `Reset` action.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    config::{Graceful, PowerPolicy},
    host::BootSource,
};

/// What `PowerState` of the system says.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Power {
    /// No power.
    Off,
    /// Between power-on and the choice of what to boot.
    PoweringOn,
    /// An operating system has been started.
    On,
    /// Between the end of the operating system and no power.
    PoweringOff,
}

impl Power {
    /// The word of the schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::PoweringOn => "PoweringOn",
            Self::On => "On",
            Self::PoweringOff => "PoweringOff",
        }
    }
}

/// The values of `ResetType` a twin knows; which of them it offers is data ([`PowerPolicy::reset_types`]).
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum ResetType {
    /// Power on.
    On,
    /// Power on, even where `On` is refused.
    ForceOn,
    /// Power off at once.
    ForceOff,
    /// Ask the operating system to shut down.
    GracefulShutdown,
    /// Ask the operating system to shut down, then power on.
    GracefulRestart,
    /// Power off at once, then on.
    ForceRestart,
    /// Like [`ResetType::ForceRestart`], the power removed in between.
    PowerCycle,
    /// On when off, a graceful shutdown when on.
    PushPowerButton,
    /// A non-maskable interrupt; a twin's operating system takes no notice.
    Nmi,
}

impl ResetType {
    const ALL: [Self; 9] = [
        Self::On,
        Self::ForceOn,
        Self::ForceOff,
        Self::GracefulShutdown,
        Self::GracefulRestart,
        Self::ForceRestart,
        Self::PowerCycle,
        Self::PushPowerButton,
        Self::Nmi,
    ];

    /// The word of the schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOn => "ForceOn",
            Self::ForceOff => "ForceOff",
            Self::GracefulShutdown => "GracefulShutdown",
            Self::GracefulRestart => "GracefulRestart",
            Self::ForceRestart => "ForceRestart",
            Self::PowerCycle => "PowerCycle",
            Self::PushPowerButton => "PushPowerButton",
            Self::Nmi => "Nmi",
        }
    }
}

impl fmt::Display for ResetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ResetType {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(())
    }
}

/// What follows when the power is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Then {
    StayOff,
    PowerOn,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Off,
    Post,
    On,
    GracefulStop(Then),
    Stopping(Then),
}

/// The operating system which runs now.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) source: BootSource,
    /// Slots whose medium was there at boot: what this system may be reading from.
    pub(super) slots: Vec<usize>,
    pub(super) cancel: CancellationToken,
}

/// A moment in the future at which [`Machine::elapse`] is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Timer {
    pub(super) after: Duration,
    pub(super) epoch: u64,
}

/// Why a reset is not carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// The host is where the command would take it.
    AlreadyThere,
    /// A restart of a host that is off.
    Standby,
    /// The host is still on its way down.
    Moving,
}

/// What the passing of time brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Elapsed {
    /// A timer of an earlier epoch.
    Stale,
    /// The operating system has shut down; the power follows.
    ShutDown(Timer),
    /// The power is off and stays so.
    Off,
    /// The power is off and comes back (a restart).
    OffAndOn(Timer),
    /// Post is over: choose the boot source and call [`Machine::started`].
    Boot,
}

/// The host's power.
#[derive(Debug)]
pub(super) struct Machine {
    phase: Phase,
    epoch: u64,
    pub(super) generation: u64,
    pub(super) power_ons: u64,
    pub(super) running: Option<Running>,
}

impl Machine {
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

    /// Between power-on and the choice of the boot source.
    pub(super) fn is_in_post(&self) -> bool {
        self.phase == Phase::Post
    }

    /// Carries out one reset. `Ok(None)`: accepted, nothing to wait for.
    pub(super) fn reset(&mut self, kind: ResetType, policy: &PowerPolicy) -> Result<Option<Timer>, Refusal> {
        use ResetType as R;
        match (kind, self.phase) {
            (R::Nmi, Phase::Off) => Err(Refusal::Standby),
            (R::Nmi, _) => Ok(None),
            (_, Phase::Stopping(_)) if kind == R::ForceOff => {
                Ok(Some(self.enter(Phase::Stopping(Then::StayOff), policy.off_time)))
            }
            (_, Phase::Stopping(_)) => Err(Refusal::Moving),
            (R::On | R::ForceOn | R::PushPowerButton, Phase::Off) => Ok(Some(self.power_on(policy))),
            (R::On | R::ForceOn, _) => Err(Refusal::AlreadyThere),
            (R::ForceOff | R::GracefulShutdown, Phase::Off) => Err(Refusal::AlreadyThere),
            (_, Phase::Off) => Err(Refusal::Standby),
            (R::ForceOff, _) => Ok(Some(self.stop(Then::StayOff, policy))),
            (R::ForceRestart | R::PowerCycle, _) => Ok(Some(self.stop(Then::PowerOn, policy))),
            (R::GracefulShutdown | R::PushPowerButton, phase) => {
                Ok(self.ask_to_stop(phase, Then::StayOff, policy))
            }
            (R::GracefulRestart, phase) => Ok(self.ask_to_stop(phase, Then::PowerOn, policy)),
        }
    }

    /// The operating system of `generation` ends by itself.
    pub(super) fn host_stops(
        &mut self,
        generation: u64,
        restart: bool,
        policy: &PowerPolicy,
    ) -> Option<Timer> {
        if self.running.is_none() || self.generation != generation {
            return None;
        }
        Some(self.stop(if restart { Then::PowerOn } else { Then::StayOff }, policy))
    }

    /// The timer of `epoch` has run out.
    pub(super) fn elapse(&mut self, epoch: u64, policy: &PowerPolicy) -> Elapsed {
        if epoch != self.epoch {
            return Elapsed::Stale;
        }
        match self.phase {
            Phase::Off | Phase::On => Elapsed::Stale,
            Phase::Post => Elapsed::Boot,
            Phase::GracefulStop(then) => Elapsed::ShutDown(self.stop(then, policy)),
            Phase::Stopping(Then::StayOff) => {
                self.enter(Phase::Off, Duration::ZERO);
                Elapsed::Off
            }
            Phase::Stopping(Then::PowerOn) => Elapsed::OffAndOn(self.power_on(policy)),
        }
    }

    /// Post ended with this operating system; returns its generation.
    pub(super) fn started(&mut self, running: Running) -> u64 {
        self.enter(Phase::On, Duration::ZERO);
        self.running = Some(running);
        self.generation += 1;
        self.generation
    }

    fn power_on(&mut self, policy: &PowerPolicy) -> Timer {
        self.power_ons += 1;
        self.enter(Phase::Post, policy.post_time)
    }

    fn stop(&mut self, then: Then, policy: &PowerPolicy) -> Timer {
        if let Some(running) = self.running.take() {
            running.cancel.cancel();
        }
        self.enter(Phase::Stopping(then), policy.off_time)
    }

    fn ask_to_stop(&mut self, phase: Phase, then: Then, policy: &PowerPolicy) -> Option<Timer> {
        match (phase, policy.graceful) {
            // Before an operating system runs nothing can refuse: the button takes the power away.
            (Phase::Post, _) => Some(self.stop(then, policy)),
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

    use super::*;

    fn finish(machine: &mut Machine, mut timer: Option<Timer>, policy: &PowerPolicy) {
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
        let mut machine = Machine::new(true);
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
        let mut machine = Machine::new(true);
        assert_eq!(machine.reset(ResetType::GracefulShutdown, &policy), Ok(None));
        assert_eq!(machine.power(), Power::On);
        assert!(machine.running.is_some());
    }

    #[test]
    fn a_restart_of_a_host_that_is_off_is_refused() {
        let policy = PowerPolicy::default();
        for kind in [ResetType::ForceRestart, ResetType::PowerCycle, ResetType::GracefulRestart] {
            assert_eq!(Machine::new(false).reset(kind, &policy), Err(Refusal::Standby), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn an_operating_system_runs_exactly_while_the_power_is_on(
            starts_on: bool,
            commands in proptest::collection::vec((0_usize..ResetType::ALL.len(), any::<bool>()), 0..24),
        ) {
            let policy = PowerPolicy::default();
            let mut machine = Machine::new(starts_on);
            for (kind, settle) in commands {
                let timer = machine.reset(ResetType::ALL[kind], &policy).ok().flatten();
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
