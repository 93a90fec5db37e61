//! What the simulated machines print: one line at a time, to whoever looks.
//!
//! Lines are broadcast and bounded: a reader that is too slow loses the oldest ones and is told how many
//! ([`tokio::sync::broadcast::error::RecvError::Lagged`]); a machine never waits for a reader. No line holds a token, a
//! password, a media URL beyond its file name, or the content of a file from the task image.

use tokio::sync::broadcast;

/// Lines kept for a slow reader.
const CAPACITY: usize = 4096;

/// One line of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleLine {
    /// Serial of the machine.
    pub serial: String,
    /// Which boot of it, counted from 1.
    pub generation: u64,
    /// The unit that speaks, such as `partition.service`; `kernel` before there are units.
    pub unit: &'static str,
    /// The text.
    pub text: String,
}

/// Where machines print to.
#[derive(Clone, Debug)]
pub struct Console {
    sender: broadcast::Sender<ConsoleLine>,
}

impl Default for Console {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(CAPACITY) }
    }
}

impl Console {
    /// Every line printed from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<ConsoleLine> {
        self.sender.subscribe()
    }

    /// The console of one boot of one machine.
    pub(crate) fn of(&self, serial: &str, generation: u64) -> MachineConsole {
        MachineConsole { console: self.clone(), serial: serial.to_owned(), generation }
    }
}

/// The console of one boot of one machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineConsole {
    console: Console,
    serial: String,
    generation: u64,
}

impl MachineConsole {
    /// Prints a line.
    pub(crate) fn print(&self, unit: &'static str, text: impl Into<String>) {
        let text = text.into();
        tracing::debug!(server_serial = %self.serial, generation = self.generation, unit, "{text}");
        // Nobody listening is the normal case, not an error.
        let _ = self.console.sender.send(ConsoleLine {
            serial: self.serial.clone(),
            generation: self.generation,
            unit,
            text,
        });
    }
}
