//! Log lines on their way to standard error, which may be slow, full or closed.
//!
//! ```text
//!  any thread --line--> queue, at most 8,192 lines and 4 MiB --one thread--> standard error
//!                         `- full: the line is dropped        `- refuses the line: it is dropped
//!                                     `------- counted, and stated in a line as soon as a line can be written
//! ```
//!
//! Invariants: no caller waits for standard error and no caller receives its errors; lines are written whole and in order; a
//! line is either written or counted as dropped; a flush ends although standard error accepts nothing.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// The maximum number of lines that wait to be written.
const MAX_LINES: usize = 8192;
/// The maximum number of bytes that wait to be written.
const MAX_BYTES: usize = 4 << 20;
/// The maximum number of bytes of written lines that are kept for a support bundle.
const MAX_RECENT: usize = 512 << 10;
/// The pause before another attempt to write to a descriptor that does not block and has no space.
const NO_SPACE_PAUSE: Duration = Duration::from_millis(10);
/// The time that a flush waits for the next line to be written.
const STALL: Duration = Duration::from_secs(1);
/// The maximum time of a flush.
const MAX_FLUSH: Duration = Duration::from_secs(10);

/// Writes the line that states how many lines were dropped.
pub(super) type DroppedNotice = Box<dyn Fn(u64) -> String + Send>;

/// The queue of log lines of a process. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogQueue(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    /// Notified when a line was queued.
    queued: Condvar,
    /// Notified when a line was written or dropped by the writing thread.
    handled: Condvar,
    dropped: AtomicU64,
    recent: Mutex<Recent>,
}

/// The newest lines that the writing thread has handled.
#[derive(Default)]
struct Recent {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Recent {
    fn keep(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > MAX_RECENT {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

/// The lines that wait, with the line that is being written.
#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether the writing thread has taken a line that is not written yet.
    writing: bool,
    /// The number of lines that the writing thread has handled.
    handled: u64,
}

impl LogQueue {
    /// Starts the thread that writes to `output`.
    ///
    /// # Errors
    /// When the operating system starts no thread.
    pub(super) fn start(output: impl Write + Send + 'static, notice: DroppedNotice) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            queued: Condvar::new(),
            handled: Condvar::new(),
            dropped: AtomicU64::new(0),
            recent: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || of_thread.run(output, &notice))?;
        Ok(Self(shared))
    }

    /// Queues one line with its line feed. A line that finds the queue full is dropped and counted.
    pub(super) fn push(&self, line: &[u8]) {
        let mut waiting = self.0.waiting.lock();
        if waiting.lines.len() >= MAX_LINES || waiting.bytes.saturating_add(line.len()) > MAX_BYTES {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.to_vec());
        self.0.queued.notify_one();
    }

    /// The newest lines, the oldest first, at most [`MAX_RECENT`] bytes. A line that standard error refused is among them.
    pub(super) fn recent(&self) -> String {
        let recent = self.0.recent.lock();
        recent.lines.iter().map(|line| String::from_utf8_lossy(line)).collect()
    }

    /// The number of lines dropped since the start of the process.
    pub(super) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Waits until every queued line is written, at most [`MAX_FLUSH`], and at most [`STALL`] for one line.
    pub(super) fn flush(&self) {
        let end = Instant::now() + MAX_FLUSH;
        let mut waiting = self.0.waiting.lock();
        while waiting.writing || !waiting.lines.is_empty() {
            let before = waiting.handled;
            let limit = end.min(Instant::now() + STALL);
            while waiting.handled == before {
                if self.0.handled.wait_until(&mut waiting, limit).timed_out() && waiting.handled == before {
                    return;
                }
            }
        }
    }
}

impl Shared {
    fn run(&self, mut output: impl Write, notice: &DroppedNotice) {
        // The dropped lines that a line has stated.
        let mut stated = 0;
        loop {
            let (line, last) = self.next();
            if write_line(&mut output, &line).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            self.recent.lock().keep(line);
            // The lines that were dropped while the queue was full came after all lines of the queue.
            let dropped = self.dropped.load(Ordering::Relaxed);
            if last
                && dropped > stated
                && write_line(&mut output, notice(dropped - stated).as_bytes()).is_ok()
            {
                stated = dropped;
            }
            let mut waiting = self.waiting.lock();
            waiting.writing = false;
            waiting.handled += 1;
            self.handled.notify_all();
        }
    }

    /// Waits for a line; also returns whether it is the last of the queue.
    fn next(&self) -> (Vec<u8>, bool) {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                waiting.bytes -= line.len();
                waiting.writing = true;
                return (line, waiting.lines.is_empty());
            }
            self.queued.wait(&mut waiting);
        }
    }
}

/// Writes a whole line. A descriptor that does not block may have no space for now; only this thread waits for it.
fn write_line(output: &mut impl Write, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match output.write(line) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => line = line.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(NO_SPACE_PAUSE),
            Err(error) => return Err(error),
        }
    }
    output.flush()
}

/// `tracing` passes each event as one call of `write`.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// An output that writes a line only when the test allows it, or refuses it.
    struct Gate {
        allowed: Receiver<io::Result<()>>,
        written: Sender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // A test that has ended allows everything.
            self.allowed.recv().unwrap_or(Ok(()))?;
            let _test_ended = self.written.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated() -> (LogQueue, Sender<io::Result<()>>, Receiver<String>) {
        let (allow, allowed) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let notice = Box::new(|lost| format!("{lost} dropped\n"));
        (LogQueue::start(Gate { allowed, written }, notice).unwrap(), allow, lines)
    }

    #[test]
    fn a_line_is_queued_at_once_while_nothing_reads_and_what_was_dropped_is_counted_and_stated() {
        let (queue, allow, lines) = gated();
        let extra = 100;
        // The writing thread may have taken the first line already.
        for number in 0..=MAX_LINES + extra {
            queue.push(format!("line {number}\n").as_bytes());
        }
        let dropped = queue.dropped();
        assert!((extra as u64..=extra as u64 + 1).contains(&dropped), "{dropped}");
        drop(allow);
        queue.flush();
        // A flush ends after its time, also when the thread that writes has not run yet.
        let kept = MAX_LINES + extra + 1 - usize::try_from(dropped).unwrap();
        let lines: Vec<String> = lines.iter().take(kept + 1).collect();
        assert_eq!(lines[0], "line 0\n");
        assert_eq!(*lines.last().unwrap(), format!("{dropped} dropped\n"));
    }

    #[test]
    fn the_bytes_of_the_queue_are_bounded() {
        let (queue, _allow, _lines) = gated();
        let line = vec![b'x'; MAX_BYTES / 4];
        (0..8).for_each(|_| queue.push(&line));
        assert!(queue.dropped() >= 3, "{}", queue.dropped());
    }

    #[test]
    fn a_line_that_the_output_refuses_is_counted_and_stated_once_a_line_can_be_written() {
        let (queue, allow, lines) = gated();
        let refused = || allow.send(Err(ErrorKind::StorageFull.into())).unwrap();
        // The line and the notice about it.
        refused();
        refused();
        queue.push(b"first\n");
        queue.flush();
        assert_eq!(queue.dropped(), 1);
        drop(allow);
        queue.push(b"second\n");
        queue.flush();
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["second\n", "1 dropped\n"]);
        assert_eq!(queue.dropped(), 1);
    }

    #[test]
    fn a_flush_writes_everything_and_ends_when_the_output_accepts_nothing() {
        let (queue, allow, lines) = gated();
        queue.push(b"never read\n");
        let began = Instant::now();
        queue.flush();
        assert!(began.elapsed() < MAX_FLUSH, "{:?}", began.elapsed());
        drop(allow);
        (0..1000).for_each(|number| queue.push(format!("{number}\n").as_bytes()));
        queue.flush();
        assert_eq!(lines.try_iter().count(), 1001);
    }

    #[test]
    fn the_newest_written_lines_are_kept_within_a_bound() {
        let mut recent = Recent::default();
        for number in 0..100_000 {
            recent.keep(format!("line {number}\n").into_bytes());
        }
        let bytes: usize = recent.lines.iter().map(Vec::len).sum();
        assert_eq!(bytes, recent.bytes);
        assert!(bytes <= MAX_RECENT && bytes > MAX_RECENT - 100, "{bytes}");
        assert_eq!(recent.lines.back().unwrap(), b"line 99999\n");
        recent.keep(vec![b'x'; MAX_RECENT + 1]);
        assert_eq!((recent.lines.len(), recent.bytes), (0, 0), "a line beyond the bound is not kept");
    }
}
