//! The serial console of a machine: the newest text in memory, all text in a file, and readers that receive it as it comes.
//!
//! The machine never waits for a reader or for the disk: a reader that is too slow loses text. The file is at most
//! [`MAX_FILE`] long; the text before that is in `console.log.old`, and older text is gone.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use crate::text::ConsoleText;

/// The newest text that is kept in memory, in bytes.
const KEPT: usize = 64 * 1024;
/// Pieces kept for a slow reader.
const PIECES: usize = 1024;
/// The longest log file.
const MAX_FILE: u64 = 16 << 20;

/// The console of one machine. A clone is another handle to it.
#[derive(Clone, Debug)]
pub struct VmConsole {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    pieces: broadcast::Sender<Arc<str>>,
    /// The length of all text so far.
    length: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    filter: ConsoleText,
    kept: String,
    log: Option<Log>,
}

/// A position in the text of a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsoleMark(u64);

impl VmConsole {
    /// A console whose text is also written to this file.
    pub(crate) fn new(log: &Path) -> io::Result<Self> {
        let state = State { filter: ConsoleText::default(), kept: String::new(), log: Some(Log::open(log)?) };
        let inner = Inner {
            state: Mutex::new(state),
            pieces: broadcast::Sender::new(PIECES),
            length: watch::Sender::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Receives every piece of text after this call, as it comes.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.inner.pieces.subscribe()
    }

    /// The end of the text so far.
    #[must_use]
    pub fn mark(&self) -> ConsoleMark {
        ConsoleMark(*self.inner.length.borrow())
    }

    /// The text after a mark, as far as it is still in memory.
    #[must_use]
    pub fn text_since(&self, mark: ConsoleMark) -> String {
        let state = self.inner.state.lock();
        let new = self.inner.length.borrow().saturating_sub(mark.0);
        let mut start = state.kept.len().saturating_sub(usize::try_from(new).unwrap_or(usize::MAX));
        while !state.kept.is_char_boundary(start) {
            start += 1;
        }
        state.kept[start..].to_owned()
    }

    /// Waits without a limit of time until the text after the mark contains `wanted`, and returns it. Bound the wait with
    /// `tokio::time::timeout`.
    pub async fn wait_for(&self, mark: ConsoleMark, wanted: &str) -> String {
        let mut length = self.inner.length.subscribe();
        loop {
            // Seen before the text is read: a change between the read and the wait is not missed.
            length.borrow_and_update();
            let text = self.text_since(mark);
            if text.contains(wanted) || length.changed().await.is_err() {
                return text;
            }
        }
    }

    /// Adds bytes of the machine.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut state = self.inner.state.lock();
        let text = state.filter.push(bytes);
        self.add(&mut state, &text);
    }

    /// Adds a line of this program.
    pub(crate) fn note(&self, text: &str) {
        tracing::debug!("{text}");
        let mut state = self.inner.state.lock();
        let begin = if state.kept.is_empty() || state.kept.ends_with('\n') { "" } else { "\n" };
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        self.add(&mut state, &format!("{begin}[vm] {text}\n"));
    }

    fn add(&self, state: &mut State, text: &str) {
        if text.is_empty() {
            return;
        }
        state.kept.push_str(text);
        let mut surplus = state.kept.len().saturating_sub(KEPT);
        while !state.kept.is_char_boundary(surplus) {
            surplus += 1;
        }
        state.kept.drain(..surplus);
        if let Some(log) = &mut state.log
            && let Err(error) = log.write(text)
        {
            tracing::warn!(%error, "the console of the virtual machine is no longer written to {}", log.path.display());
            state.log = None;
        }
        // A console without readers is no error.
        let _ = self.inner.pieces.send(Arc::from(text));
        self.inner.length.send_modify(|length| *length += text.len() as u64);
    }
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, length })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.length + text.len() as u64 > MAX_FILE {
            std::fs::rename(&self.path, self.path.with_extension("log.old"))?;
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(text.as_bytes())?;
        self.length += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console() -> (VmConsole, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (VmConsole::new(&folder.path().join("console.log")).unwrap(), folder)
    }

    #[tokio::test]
    async fn a_wait_ends_when_the_text_arrives_in_pieces_and_ignores_older_text() {
        let (console, _folder) = console();
        console.push(b"first login: ");
        let mark = console.mark();
        let waiter = {
            let console = console.clone();
            tokio::spawn(async move { console.wait_for(mark, "login:").await })
        };
        console.push(b"restarted\r\nlog");
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        console.push(b"in: ");
        assert_eq!(waiter.await.unwrap(), "restarted\nlogin: ");
    }

    #[tokio::test]
    async fn the_newest_text_is_kept_and_readers_receive_all() {
        let (console, folder) = console();
        let mut reader = console.subscribe();
        let mark = console.mark();
        console.push("ä".repeat(KEPT).as_bytes());
        console.push(b"end");
        console.note("off\u{1b}[31m");
        let text = console.text_since(mark);
        assert!(text.len() <= KEPT && text.ends_with("ääend\n[vm] off[31m\n"), "{}", text.len());
        assert_eq!(reader.recv().await.unwrap().len(), 2 * KEPT);
        assert_eq!(&*reader.recv().await.unwrap(), "end");
        let log = std::fs::read_to_string(folder.path().join("console.log")).unwrap();
        assert_eq!(log.len(), 2 * KEPT + "end\n[vm] off[31m\n".len());
    }

    #[test]
    fn the_log_file_is_bounded_and_keeps_the_text_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console.log");
        std::fs::File::create(&path).unwrap().set_len(MAX_FILE - 1).unwrap();
        let mut log = Log::open(&path).unwrap();
        log.write("two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(folder.path().join("console.log.old").metadata().unwrap().len(), MAX_FILE - 1);
    }
}
