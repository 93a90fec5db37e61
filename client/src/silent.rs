//! A terminal that shows no keys, for the time of a question.
//!
//! ```text
//!   enter ── settings saved, no echo, no line editing ── the end of the question ──> settings restored
//!                                                     └── SIGTERM, SIGHUP ──> settings restored, the process ends
//! ```
//!
//! A signal handler stays for the rest of the process. After the question a thread ends the process at both signals, as without the
//! handler; a page that ends itself at SIGTERM says so ([`ends_itself`]). A signal that the process ignores from its start, as below `nohup`,
//! stays ignored.
//!
//! Specification: POSIX termios; signal(7); proc_pid_status(5).

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether the process ends itself at SIGTERM.
static ENDS_ITSELF: AtomicBool = AtomicBool::new(false);

/// The process ends itself at SIGTERM from here on.
pub(super) fn ends_itself() {
    ENDS_ITSELF.store(true, Ordering::Relaxed);
}

/// A terminal that shows no keys and returns each at once.
pub(super) struct Silent(Arc<Saved>);

/// A terminal and its settings, until they are restored.
struct Saved {
    terminal: File,
    settings: Mutex<Option<Termios>>,
}

impl Saved {
    /// Restores the settings, once. Returns whether it did.
    fn restore(&self) -> bool {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(settings) = settings else { return false };
        let _closed = tcsetattr(&self.terminal, OptionalActions::Now, &settings);
        true
    }
}

impl Silent {
    pub(super) fn enter(terminal: &File) -> io::Result<Self> {
        let settings = tcgetattr(terminal)?;
        let mut silent = settings.clone();
        // Ctrl-C is read as a key, so that the question ends with the settings restored.
        silent.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        let saved = Arc::new(Saved { terminal: terminal.try_clone()?, settings: Mutex::new(Some(settings)) });
        watch(Arc::clone(&saved))?;
        let entered = Self(saved);
        // What was typed before the question is discarded.
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(entered)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// Restores the terminal and ends the process at a signal.
fn watch(saved: Arc<Saved>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let status = process_status();
    let of = |kind: SignalKind| (!is_ignored(&status, kind)).then(|| signal(kind)).transpose();
    let (mut terminated, mut hung_up) = (of(SignalKind::terminate())?, of(SignalKind::hangup())?);
    drop(entered);
    let wait = async move {
        let kind = tokio::select! {
            Some(()) = next(&mut terminated) => SignalKind::terminate(),
            Some(()) = next(&mut hung_up) => SignalKind::hangup(),
            else => return,
        };
        let is_asking = saved.restore();
        if is_asking {
            let _closed = writeln!(&saved.terminal);
        }
        if is_asking || kind != SignalKind::terminate() || !ENDS_ITSELF.load(Ordering::Relaxed) {
            // As a shell shows a process that a signal ended.
            std::process::exit(128 + kind.as_raw_value());
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(wait))?;
    Ok(())
}

/// The next signal; `None` of one that is ignored.
async fn next(signals: &mut Option<Signal>) -> Option<()> {
    signals.as_mut()?.recv().await
}

/// The status of this process as the kernel shows it; empty if it cannot be read.
fn process_status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Whether the process began with a signal ignored, as `nohup` starts it: it stays so.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (kind.as_raw_value() - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_nohup_ignores_is_known_from_the_status_of_the_process() {
        let status =
            "Name:\tshoal\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004000\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::terminate()));
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
