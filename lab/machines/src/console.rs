//! The lines that the simulated machines print, for any number of readers.
//!
//! Lines are broadcast and bounded. A reader that is too slow loses the oldest lines and receives their number
//! ([`tokio::sync::broadcast::error::RecvError::Lagged`]). A machine never waits for a reader. No line holds a token, a
//! password, more of a media URL than its file name, or the content of a file of the task image.

use tokio::sync::broadcast;

/// Lines kept for a slow reader.
const CAPACITY: usize = 4096;

/// One line of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleLine {
    /// Serial number of the machine.
    pub serial: String,
    /// Number of the machine's boot, counted from 1.
    pub generation: u64,
    /// The unit that printed the line, such as `partition.service`; `kernel` before units start.
    pub unit: &'static str,
    /// The text.
    pub text: String,
}

/// The output of all machines.
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
    /// Receives every line printed after this call.
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
        // The console usually has no reader; that is not an error.
        let _ = self.console.sender.send(ConsoleLine {
            serial: self.serial.clone(),
            generation: self.generation,
            unit,
            text,
        });
    }
}
