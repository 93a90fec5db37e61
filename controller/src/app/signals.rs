//! The Unix signals of a controller process.
//!
//! ```text
//!  TERM, INT, QUIT   stop         a second one during the stop ends the process at once
//!  HUP               reload       settings and the files that they name, as far as they can change in a running controller
//!  USR1, USR2        state        what the controller does now, as one log line
//!  PIPE              ignored      a closed output is an error of the write
//! ```

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The request of a signal to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessSignal {
    /// Stop in order; the name of the signal.
    Stop(&'static str),
    /// Reload what can be reloaded.
    Reload,
    /// Write the state to the log.
    State,
}

/// The signals that the process receives. While it exists, none of them ends the process.
#[derive(Debug)]
pub struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

impl ProcessSignals {
    /// Replaces the default of each signal. Must be called inside a runtime.
    ///
    /// # Errors
    /// When the operating system accepts no handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal. Dropping the future loses no signal.
    pub async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => ProcessSignal::Stop("SIGTERM"),
            _ = self.interrupt.recv() => ProcessSignal::Stop("SIGINT"),
            _ = self.quit.recv() => ProcessSignal::Stop("SIGQUIT"),
            _ = self.hangup.recv() => ProcessSignal::Reload,
            _ = self.user1.recv() => ProcessSignal::State,
            _ = self.user2.recv() => ProcessSignal::State,
        }
    }

    /// Waits for a signal that stops the process; all others are ignored.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            if let ProcessSignal::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}

/// Waits for SIGTERM, SIGINT or SIGQUIT, for commands that have nothing to reload: SIGHUP ends them, as it does when their
/// terminal is closed.
pub async fn stop_signal() {
    let one = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        // Without a handler the signal ends the process at once.
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = one(SignalKind::terminate()) => {}
        () = one(SignalKind::interrupt()) => {}
        () = one(SignalKind::quit()) => {}
    }
}
