//! Reports without a network: messages as reads of the beacon on the medium.
//!
//! ```text
//! message --symbols--> set 1: sector, 1 s, sector, 1 s, sector, 1 s   set 2: the same with other sectors
//! final message: the same again after 20 s (success), or every minute ten times (failure)
//!     of which reads failed: the medium comes from a controller that is away; it is sent again for half an hour
//! ```
//!
//! Invariants: one message at a time. A read that fails does not end the installation; the power state tells the rest.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use beacon::{BeaconStep, Class, CodeBook, Message};

use crate::clock::Clock;
use crate::job::Job;
use crate::log::Log;
use crate::medium::{Medium, MediumVolume};
use crate::outcome::{self, Outcome};

/// The unit under which messages are logged.
const UNIT: &str = "provision-report.service";
/// The pause between two reads: the read-ahead of a BMC ends meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause before a success is said again.
const SUCCESS_PAUSE: Duration = Duration::from_secs(20);
/// The pause before a failure is said again.
const FAILURE_PAUSE: Duration = Duration::from_secs(60);
/// How often a failure is said again: the machine stays on.
const FAILURE_REPEATS: u32 = 10;
/// How long a final message is sent again because reads fail. After it the machine powers off, or stays on, without being heard.
const UNHEARD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Why the OS image could not be read, as far as the reader knows it.
pub type Fault = Arc<OnceLock<Class>>;

/// Sends the messages of one run as reads of its medium.
pub struct Transmitter<'run> {
    clock: &'run dyn Clock,
    log: &'run Log,
    book: CodeBook,
    /// The medium and the offset of the beacon on it; the reason when there is none.
    channel: Result<(Arc<dyn Medium>, u64), String>,
    fault: Fault,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: bool,
    step: Option<BeaconStep>,
}

impl<'run> Transmitter<'run> {
    /// Creates the transmitter of a job. Without a volume nothing is said.
    #[must_use]
    pub fn new(
        clock: &'run dyn Clock,
        job: &Job,
        log: &'run Log,
        volume: Result<&MediumVolume, String>,
    ) -> Self {
        let channel = volume.and_then(|volume| Ok((Arc::clone(volume.medium()), volume.beacon()?)));
        if let Err(reason) = &channel {
            log.line(UNIT, format!("nothing can be reported by the medium: {reason}"));
        }
        let book = CodeBook::new(job.webhook_token.as_bytes(), &job.job_id.to_string());
        Self { clock, log, book, channel, fault: Fault::default(), state: Mutex::default() }
    }

    /// Returns the place in which a reader of the OS image leaves the class of its failure.
    pub fn fault(&self) -> Fault {
        Arc::clone(&self.fault)
    }

    /// Sends that the agent runs, and which step has ended, when `unit` begins.
    pub fn progress(&self, unit: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut state.started, true) {
            self.send(Message::Started);
        }
        let Some(step) = BeaconStep::of_unit(unit) else { return };
        let before = state.step.replace(step);
        if let Some(before) = before.filter(|before| *before < step) {
            self.send(Message::Done(before));
        }
    }

    /// Sends how the run ended, and repeats the message. Returns after the last repetition, or when `limit` has passed.
    pub fn deliver(&self, outcome: &Outcome, limit: Option<Duration>) {
        let begun = self.clock.elapsed();
        let (message, pause, repeats) = match outcome {
            // The rescue system needs a network, and reads have no word for it.
            Outcome::Reachable(_) => return,
            Outcome::Success => {
                let last = self.state.lock().unwrap_or_else(PoisonError::into_inner).step;
                if let Some(step) = last {
                    self.send(Message::Done(step));
                }
                (Message::Success, SUCCESS_PAUSE, 1)
            }
            Outcome::Failed { step, .. } => {
                let class = outcome::class(self.fault.get().copied(), step);
                let step = BeaconStep::of_unit(step).unwrap_or(BeaconStep::Dispatcher);
                (Message::Failed { step, class: Some(class) }, FAILURE_PAUSE, FAILURE_REPEATS)
            }
        };
        self.log.line(UNIT, format!("said by reads of the medium: {message:?}"));
        let mut left = 1 + repeats;
        loop {
            let was_read = self.send(message);
            left -= u32::from(was_read);
            let is_over = |limit| self.clock.elapsed().saturating_sub(begun) + pause > limit;
            let is_unheard = !was_read && is_over(UNHEARD_LIMIT);
            if left == 0 || self.channel.is_err() || limit.is_some_and(is_over) || is_unheard {
                return;
            }
            self.clock.sleep(pause);
        }
    }

    /// Sends a message. Returns whether all of its reads succeeded, as they do only when something served them.
    fn send(&self, message: Message) -> bool {
        let Ok((medium, base)) = &self.channel else { return false };
        let mut failed = None;
        for symbol in message.symbols() {
            for sector in self.book.reads(symbol).into_iter().flatten() {
                if let Err(source) = medium.touch(base + sector) {
                    failed = Some(source);
                }
                self.clock.sleep(PAUSE);
            }
        }
        let Some(source) = failed else { return true };
        self.log.line(UNIT, format!("the medium could not be read to say {message:?}: {source}"));
        false
    }
}
