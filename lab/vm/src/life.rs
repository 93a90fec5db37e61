//! The life of one start of a machine: a state machine without process, socket or clock.
//!
//! ```text
//!   Starting ──connected──► Running ──power cut──► Quitting ──time is up──► Killed
//!      │ power cut             │ power button: press it                        │
//!      └─────────────► Killed  │ connection lost: Killed                       │
//!                              ▼                                               ▼
//!                        the process ended ─► Off, Restart, Cut or Failed ◄────┘
//! ```
//!
//! The state of the machine is that of the process: only its end ends a life.
//!
//! Invariants: after a power cut no button is pressed; a life whose power was cut ends as [`End::Cut`], whatever QEMU
//! said; a process is killed only after a power cut or when it cannot be controlled.

use crate::qmp::ShutdownReason;

/// An event of the life of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The control connection is open.
    Connected,
    /// The BMC asks the system to shut down.
    PowerButton,
    /// The BMC cuts the power.
    PowerCut,
    /// QEMU says why the machine ends.
    Shutdown(ShutdownReason),
    /// The control connection is over, or was not opened in time.
    Disconnected,
    /// QEMU did not end in time.
    TimeIsUp,
}

/// The action that the host must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// There is no action.
    Nothing,
    /// Press the power button (`system_powerdown`).
    PressButton,
    /// End QEMU (`quit`); the time for it begins.
    Quit,
    /// Kill the process.
    Kill,
}

/// The end of the life of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The system switched the machine off.
    Off,
    /// The system restarted the machine.
    Restart,
    /// The BMC cut the power.
    Cut,
    /// QEMU did not start, or ended for another reason.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Quitting,
    Killed,
}

/// The life of one start.
#[derive(Debug)]
pub(crate) struct Life {
    phase: Phase,
    cut: bool,
    reason: Option<ShutdownReason>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Starting, cut: false, reason: None }
    }

    /// Applies an input and returns what is to be done.
    pub(crate) fn apply(&mut self, input: Input) -> Action {
        if input == Input::PowerCut {
            self.cut = true;
        }
        match (self.phase, input) {
            (Phase::Killed, _) => Action::Nothing,
            (Phase::Starting, Input::Connected) => {
                self.phase = Phase::Running;
                Action::Nothing
            }
            (Phase::Running, Input::PowerButton) if self.reason.is_none() => Action::PressButton,
            (Phase::Running, Input::PowerCut) => {
                self.phase = Phase::Quitting;
                Action::Quit
            }
            (_, Input::Shutdown(reason)) => {
                self.reason.get_or_insert(reason);
                Action::Nothing
            }
            // After an announced end the connection ends before the process does. A time runs for a process that is quitting.
            (Phase::Running, Input::Disconnected) if self.reason.is_some() => Action::Nothing,
            (Phase::Quitting, Input::Disconnected) => Action::Nothing,
            (Phase::Starting, Input::PowerCut) | (_, Input::Disconnected | Input::TimeIsUp) => {
                self.phase = Phase::Killed;
                Action::Kill
            }
            (Phase::Starting | Phase::Running | Phase::Quitting, _) => Action::Nothing,
        }
    }

    /// The end of the life, after the end of the process.
    pub(crate) fn end(&self) -> End {
        match self.reason {
            _ if self.cut => End::Cut,
            Some(ShutdownReason::SystemOff) => End::Off,
            Some(ShutdownReason::SystemRestart) => End::Restart,
            Some(ShutdownReason::Panic | ShutdownReason::Outside) | None => End::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(inputs: &[Input]) -> (Vec<Action>, End) {
        let mut life = Life::new();
        let actions = inputs.iter().map(|&input| life.apply(input)).collect();
        (actions, life.end())
    }

    #[test]
    fn a_system_that_switches_off_or_restarts_ends_the_life_by_itself() {
        use Input as I;
        for (reason, end) in [
            (ShutdownReason::SystemOff, End::Off),
            (ShutdownReason::SystemRestart, End::Restart),
            (ShutdownReason::Panic, End::Failed),
        ] {
            let (actions, ended) = run(&[I::Connected, I::Shutdown(reason), I::Disconnected]);
            assert_eq!(actions, [Action::Nothing; 3]);
            assert_eq!(ended, end);
        }
    }

    #[test]
    fn a_power_cut_ends_qemu_and_kills_it_if_it_does_not_end() {
        use Input as I;
        let (actions, end) = run(&[I::Connected, I::PowerCut, I::PowerButton, I::TimeIsUp, I::TimeIsUp]);
        assert_eq!(actions, [Action::Nothing, Action::Quit, Action::Nothing, Action::Kill, Action::Nothing]);
        assert_eq!(end, End::Cut);
        let (actions, end) = run(&[I::PowerCut]);
        assert_eq!((actions, end), (vec![Action::Kill], End::Cut));
    }

    #[test]
    fn the_power_button_is_passed_on_as_often_as_it_is_pressed() {
        use Input as I;
        let (actions, _) = run(&[I::PowerButton, I::Connected, I::PowerButton, I::PowerButton]);
        assert_eq!(actions, [Action::Nothing, Action::Nothing, Action::PressButton, Action::PressButton]);
    }

    #[test]
    fn a_qemu_that_cannot_be_controlled_is_killed() {
        use Input as I;
        assert_eq!(run(&[I::Disconnected]), (vec![Action::Kill], End::Failed));
        assert_eq!(run(&[I::Connected, I::Disconnected]), (vec![Action::Nothing, Action::Kill], End::Failed));
    }

    fn any_input() -> impl Strategy<Value = Input> {
        use Input as I;
        prop_oneof![
            Just(I::Connected),
            Just(I::PowerButton),
            Just(I::PowerCut),
            Just(I::Shutdown(ShutdownReason::SystemOff)),
            Just(I::Shutdown(ShutdownReason::SystemRestart)),
            Just(I::Shutdown(ShutdownReason::Outside)),
            Just(I::Disconnected),
            Just(I::TimeIsUp),
        ]
    }

    proptest! {
        #[test]
        fn a_cut_is_final_and_leads_to_the_end(before in proptest::collection::vec(any_input(), 0..8), after in proptest::collection::vec(any_input(), 0..8)) {
            let mut life = Life::new();
            let mut killed = 0;
            for input in before {
                killed += usize::from(life.apply(input) == Action::Kill);
            }
            killed += usize::from(life.apply(Input::PowerCut) == Action::Kill);
            for input in after {
                let action = life.apply(input);
                prop_assert_ne!(action, Action::PressButton);
                killed += usize::from(action == Action::Kill);
            }
            killed += usize::from(life.apply(Input::TimeIsUp) == Action::Kill);
            prop_assert_eq!(killed, 1);
            prop_assert_eq!(life.end(), End::Cut);
        }
    }
}
