//! The whole terminal: alternate screen, no echo, keys one by one.
//!
//! ```text
//!   enter: settings saved, no line editing, alternate screen, cursor hidden
//!   drop:  cursor shown, first screen, settings restored                        at every return, error, panic and signal
//! ```
//!
//! Specification: XTerm control sequences, private modes 25 and 1049; POSIX termios.

use std::io::{self, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::error::CliError;
use crate::output::Output;
use crate::silent::ends_itself;

/// The input of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The operator ends the page.
    Quit,
    /// Draw again: another key, or another size.
    Redraw,
}

/// A terminal that shows one page.
pub(super) struct FullScreen {
    keys: mpsc::Receiver<u8>,
    /// Without keys the channel stays open, because its end is the end of the page.
    _kept: Option<mpsc::Sender<u8>>,
    resized: Signal,
    ended: Signal,
    interrupted: Signal,
    _restore: Restore,
}

/// Restores the terminal.
struct Restore {
    settings: Option<Termios>,
}

impl FullScreen {
    /// Takes the terminal over.
    pub(super) fn enter() -> Result<Self, CliError> {
        let resized = signal(SignalKind::window_change())?;
        let ended = signal(SignalKind::terminate())?;
        ends_itself();
        let interrupted = signal(SignalKind::interrupt())?;
        // Without a terminal as standard input there are no keys; Ctrl-C ends.
        let settings = tcgetattr(io::stdin()).ok();
        if let Some(settings) = &settings {
            let mut raw = settings.clone();
            raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            raw.special_codes[SpecialCodeIndex::VMIN] = 1;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(io::Error::from)?;
        }
        let restore = Restore { settings };
        write!(io::stdout(), "\u{1b}[?1049h\u{1b}[?25l")?;
        let (sender, keys) = mpsc::channel(16);
        let mut kept = None;
        if restore.settings.is_some() {
            // A read of a terminal cannot be cancelled: the thread ends with the process, or with the next key.
            std::thread::spawn(move || {
                let mut key = [0];
                while io::stdin().read_exact(&mut key).is_ok() && sender.blocking_send(key[0]).is_ok() {}
            });
        } else {
            kept = Some(sender);
        }
        Ok(Self { keys, _kept: kept, resized, ended, interrupted, _restore: restore })
    }

    /// Waits for a key, another size or a signal.
    pub(super) async fn input(&mut self) -> Input {
        tokio::select! {
            key = self.keys.recv() => match key {
                Some(b'q' | b'Q' | 3 | 4) | None => Input::Quit,
                Some(_) => Input::Redraw,
            },
            _ = self.resized.recv() => Input::Redraw,
            _ = self.ended.recv() => Input::Quit,
            _ = self.interrupted.recv() => Input::Quit,
        }
    }

    /// Draws the page.
    pub(super) fn draw(&mut self, lines: &[String], output: &mut Output<'_>) -> Result<(), CliError> {
        let mut text = String::from("\u{1b}[H");
        for (place, line) in lines.iter().take(output.screen.height).enumerate() {
            if place > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\u{1b}[K");
        }
        text.push_str("\u{1b}[J");
        output.out.write_all(text.as_bytes())?;
        Ok(output.out.flush()?)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _closed = write!(out, "\u{1b}[?25h\u{1b}[?1049l");
        let _closed = out.flush();
        if let Some(settings) = &self.settings {
            let _closed = tcsetattr(io::stdin(), OptionalActions::Now, settings);
        }
    }
}
