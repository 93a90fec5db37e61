//! The log of the agent: to the consoles as it is written, and its last lines in memory for reports.
//!
//! ```text
//! line(unit, text) --> "[   12.345] unit: text" --> every sink (consoles, kernel log)
//!                                              `--> ring of 256 KiB --tail--> report, /var/log of the new system
//! ```
//!
//! Invariants: the ring is bounded. A line has no control characters. A sink that fails is ignored: a console must not
//! stop an installation. A sink that takes nothing must not either: [`detached`] is the sink for a pipe or terminal that blocks.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Capacity of the ring in bytes.
pub const RING_BYTES: usize = 256 * 1024;
/// Maximum length of one line in bytes.
const MAX_LINE: usize = 1024;

struct Inner {
    lines: VecDeque<String>,
    bytes: usize,
    sinks: Vec<Box<dyn Write + Send>>,
}

/// A handle to the log; clones share it.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Mutex<Inner>>,
    started: Instant,
}

impl Log {
    /// Creates a log that writes each line to every sink.
    #[must_use]
    pub fn new(sinks: Vec<Box<dyn Write + Send>>) -> Self {
        let inner = Inner { lines: VecDeque::new(), bytes: 0, sinks };
        Self { inner: Arc::new(Mutex::new(inner)), started: Instant::now() }
    }

    /// Appends one line. Control characters become spaces.
    pub fn line(&self, unit: &str, text: impl AsRef<str>) {
        let clean: String =
            text.as_ref().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        let mut line = format!("[{:9.3}] {unit}: {clean}", self.started.elapsed().as_secs_f64());
        if line.len() > MAX_LINE {
            let mut end = MAX_LINE;
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            line.truncate(end);
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for sink in &mut inner.sinks {
            let _ = writeln!(sink, "{line}\r").and_then(|()| sink.flush());
        }
        inner.bytes += line.len() + 1;
        inner.lines.push_back(line);
        while inner.bytes > RING_BYTES {
            let Some(oldest) = inner.lines.pop_front() else { break };
            inner.bytes -= oldest.len() + 1;
        }
    }

    /// Returns the newest whole lines that fit into `bytes`.
    #[must_use]
    pub fn tail(&self, bytes: usize) -> String {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = bytes;
        let mut first = inner.lines.len();
        while first > 0 && inner.lines[first - 1].len() < left {
            first -= 1;
            left -= inner.lines[first].len() + 1;
        }
        let mut text = String::with_capacity(bytes - left);
        for line in inner.lines.iter().skip(first) {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// Lines that wait for a slow output; further ones are lost there.
const MAX_WAITING: usize = 1024;
/// How long the end of the program waits for a slow output.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A sink that a thread writes to `output`, so that an output that takes nothing holds nothing up.
pub fn detached(mut output: impl Write + Send + 'static) -> (Box<dyn Write + Send>, Drain) {
    let waiting = Arc::new(Waiting::default());
    let written = Arc::clone(&waiting);
    std::thread::spawn(move || {
        loop {
            let lines = written.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = written.changed.wait_while(lines, |lines| lines.is_empty());
            let first = lines.unwrap_or_else(PoisonError::into_inner).front().cloned().unwrap_or_default();
            let _ = output.write_all(&first).and_then(|()| output.flush());
            written.lines.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            written.changed.notify_all();
        }
    });
    (Box::new(Detached { waiting: Arc::clone(&waiting), line: Vec::new() }), Drain(waiting))
}

/// The lines that are not written yet. A line stays until it is written whole.
#[derive(Default)]
struct Waiting {
    lines: Mutex<VecDeque<Vec<u8>>>,
    changed: Condvar,
}

struct Detached {
    waiting: Arc<Waiting>,
    line: Vec<u8>,
}

impl Write for Detached {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// The log flushes once for each line.
    fn flush(&mut self) -> std::io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let mut lines = self.waiting.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_WAITING {
            lines.push_back(line);
            self.waiting.changed.notify_all();
        }
        Ok(())
    }
}

/// The end of a [`detached`] sink.
pub struct Drain(Arc<Waiting>);

impl Drain {
    /// Waits until everything is written, a second at most.
    pub fn wait(self) {
        let lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.0.changed.wait_timeout_while(lines, DRAIN_TIME, |lines| !lines.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// An output that takes nothing until it is released.
    struct Held(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_output_that_takes_nothing_holds_no_line_up_and_gets_the_first_ones_later() {
        let (release, held) = mpsc::channel();
        let written = Arc::default();
        let (sink, drain) = detached(Held(held, Arc::clone(&written)));
        let log = Log::new(vec![sink]);
        for number in 0..3 * MAX_WAITING {
            log.line("unit", format!("line {number}."));
        }
        assert!(log.tail(RING_BYTES).contains("line 3071."), "the log itself has every line");
        drop(release);
        drain.wait();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.contains("line 0.") && !text.contains("line 3071."), "{}", text.len());
    }

    #[test]
    fn the_ring_keeps_the_newest_lines_within_its_capacity() {
        let log = Log::new(Vec::new());
        for number in 0..5000 {
            log.line("unit", format!("line {number} {}", "x".repeat(100)));
        }
        let all = log.tail(usize::MAX >> 1);
        assert!(all.len() <= RING_BYTES && all.len() > RING_BYTES / 2);
        assert!(all.contains("line 4999 ") && !all.contains("line 0 "));
        let tail = log.tail(300);
        assert!(tail.len() <= 300 && tail.contains("line 4999 ") && tail.starts_with('['));
    }

    #[test]
    fn a_line_is_bounded_and_has_no_control_characters() {
        let log = Log::new(Vec::new());
        log.line("unit", format!("a\nb\x1b[0m{}", "ü".repeat(4000)));
        let tail = log.tail(4096);
        assert_eq!(tail.matches('\n').count(), 1);
        assert!(!tail.contains('\x1b') && tail.len() <= MAX_LINE + 1);
    }
}
