//! Progress of what takes longer than two seconds, in bytes or in things: done, total, rate of bytes, remaining time.
//!
//! ```text
//!   pushing disk.raw: 412.0 MiB of 1.2 GiB (33 %), 48.1 MiB/s, 17s left
//!   probing: 120 of 254 (47 %), 12s left
//! ```
//!
//! Invariants: the bytes are those that were read, written or sent, and the things those that have ended, never an estimate; the rate is that of
//! the last ten seconds (thirty for things, and for what is known every ten seconds only), so that a transfer that stands still shows it. A
//! terminal shows one line that is rewritten, a log a line every ten seconds.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::error::CliError;
use super::output::remaining;

/// Nothing is shown before this time.
const DELAY: Duration = Duration::from_secs(2);
/// The interval in which a line is rewritten.
const REWRITE: Duration = Duration::from_millis(250);
/// The interval in which a log receives a line.
const LOG: Duration = Duration::from_secs(10);
/// The time over which a rate is measured.
const WINDOW: Duration = Duration::from_secs(10);

/// The time over which the rate of things is measured, and of something whose bytes are known every ten seconds only: three intervals.
const LONG_WINDOW: Duration = Duration::from_secs(30);

/// What a progress counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Things,
}

/// The bytes or things at points in time, for a rate.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    samples: VecDeque<(Duration, u64)>,
    window: Duration,
    unit: Unit,
}

impl Default for Rate {
    fn default() -> Self {
        Self { samples: VecDeque::new(), window: WINDOW, unit: Unit::Bytes }
    }
}

impl Rate {
    /// The rate of something whose bytes are known every ten seconds only.
    pub(crate) fn of_records() -> Self {
        Self { window: LONG_WINDOW, ..Self::default() }
    }

    /// The rate of things: many of them may end at the same time, and then none for a while.
    fn of_things() -> Self {
        Self { window: LONG_WINDOW, unit: Unit::Things, ..Self::default() }
    }

    /// Records the bytes that are done at a time since any fixed point.
    pub(crate) fn record(&mut self, at: Duration, done: u64) {
        // Time does not run backwards.
        let at = self.samples.back().map_or(at, |(last, _)| at.max(*last));
        if self.samples.back() == Some(&(at, done)) {
            return;
        }
        self.samples.push_back((at, done));
        while self.samples.len() > 2
            && self.samples.get(1).is_some_and(|(second, _)| at.saturating_sub(*second) >= self.window)
        {
            self.samples.pop_front();
        }
        // Bounded also for a caller that records without a pause.
        if self.samples.len() > 1024 {
            self.samples.remove(1);
        }
    }

    /// Bytes per second, if two times are known.
    pub(crate) fn per_second(&self) -> Option<f64> {
        let ((first, from), (last, to)) = (self.samples.front()?, self.samples.back()?);
        let seconds = last.saturating_sub(*first).as_secs_f64();
        (seconds > 0.0).then(|| to.saturating_sub(*from) as f64 / seconds)
    }

    /// The newest number of bytes.
    fn done(&self) -> u64 {
        self.samples.back().map_or(0, |(_, done)| *done)
    }

    /// Done and total as text.
    pub(crate) fn part(&self, total: Option<u64>) -> String {
        let number = match self.unit {
            Unit::Bytes => bytes,
            Unit::Things => |number: u64| number.to_string(),
        };
        let done = self.done();
        let mut text = number(done);
        if let Some(total) = total {
            text.push_str(&format!(" of {}", number(total)));
            if total > 0 && done <= total {
                text.push_str(&format!(" ({} %)", u128::from(done) * 100 / u128::from(total)));
            }
        }
        text
    }

    /// Done, total, rate of bytes and remaining time as text.
    pub(crate) fn text(&self, total: Option<u64>) -> String {
        let done = self.done();
        let mut text = self.part(total);
        let Some(rate) = self.per_second() else { return text };
        let least = match self.unit {
            Unit::Bytes => {
                text.push_str(&format!(", {}/s", bytes(rate as u64)));
                1.0
            }
            Unit::Things => f64::MIN_POSITIVE,
        };
        match total.and_then(|total| total.checked_sub(done)) {
            Some(left) if left > 0 && rate >= least => {
                let left = Duration::from_secs_f64((left as f64 / rate).min(1e9));
                text.push_str(&format!(", {} left", remaining(left)));
            }
            _ => {}
        }
        text
    }
}

/// A number of bytes as operators read it.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Progress of one operation on standard error.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: Option<u64>,
    began: Instant,
    shown_at: Option<Instant>,
    rate: Rate,
    /// The line is rewritten.
    live: bool,
}

impl Progress {
    /// Progress of something whose size may be known, such as `pushing firmware.bin`.
    pub fn new(what: impl Into<String>, total: Option<u64>) -> Self {
        let live = io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        Self { what: what.into(), total, began: Instant::now(), shown_at: None, rate: Rate::default(), live }
    }

    /// Progress of a number of things, such as the addresses that are probed.
    pub(crate) fn of_things(what: impl Into<String>) -> Self {
        Self { rate: Rate::of_things(), ..Self::new(what, None) }
    }

    /// Runs futures, `at_once` at the same time, and shows how many have ended. Returns their results in the order of the futures.
    ///
    /// # Errors
    /// The first error in that order, without waiting for the others.
    pub(crate) async fn each<T>(
        mut self,
        futures: impl ExactSizeIterator<Item = impl Future<Output = Result<T, CliError>>>,
        at_once: usize,
        err: &mut dyn Write,
    ) -> Result<Vec<T>, CliError> {
        self.total = Some(futures.len() as u64);
        let ended = Cell::new(0_u64);
        let counted = futures.map(|future| async {
            let result = future.await;
            ended.set(ended.get() + 1);
            result
        });
        let mut results = pin!(stream::iter(counted).buffered(at_once));
        let mut all = Vec::new();
        let mut again = interval(REWRITE);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let result = loop {
            tokio::select! {
                biased;
                result = results.next() => match result {
                    Some(Ok(result)) => all.push(result),
                    Some(Err(error)) => break Err(error),
                    None => break Ok(all),
                },
                _ = again.tick() => {}
            }
            self.report(ended.get(), err);
        };
        self.end(err);
        result
    }

    /// Progress whose size became known.
    pub fn of(&mut self, total: Option<u64>) -> &mut Self {
        self.total = total;
        self
    }

    /// Shows the bytes or things that are done, if it is time to.
    pub fn report(&mut self, done: u64, err: &mut dyn Write) {
        let now = Instant::now();
        let pause = if self.live { REWRITE } else { LOG };
        let due = self.shown_at.map_or(self.began + DELAY, |shown_at| shown_at + pause);
        if now < due {
            // The first seconds are part of the rate.
            if self.rate.samples.is_empty() {
                self.rate.record(Duration::ZERO, 0);
            }
            return;
        }
        self.shown_at = Some(now);
        self.rate.record(now - self.began, done);
        let text = format!("{}: {}", self.what, self.rate.text(self.total));
        // A closed standard error is no failure of the command.
        let _closed = if self.live { write!(err, "\r\u{1b}[K{text}") } else { writeln!(err, "{text}") };
        let _closed = err.flush();
    }

    /// Removes the line of a terminal.
    pub fn end(&mut self, err: &mut dyn Write) {
        if self.live && self.shown_at.is_some() {
            let _closed = write!(err, "\r\u{1b}[K");
            let _closed = err.flush();
        }
    }
}

/// The direction of the bytes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The process reads the bytes: an import, a verification.
    Read,
    /// The process writes the bytes: a copy.
    Write,
}

impl Direction {
    /// The bytes that this process has read or written since its start, as the kernel counts them (proc(5), `/proc/pid/io`).
    fn of_process(self) -> Option<u64> {
        let counters = std::fs::read_to_string("/proc/self/io").ok()?;
        let name = match self {
            Self::Read => "rchar: ",
            Self::Write => "wchar: ",
        };
        counters.lines().find_map(|line| line.strip_prefix(name))?.parse().ok()
    }
}

/// Progress of work that this process does elsewhere, by what it reads or writes meanwhile.
#[derive(Debug)]
pub struct ProcessProgress {
    progress: Progress,
    direction: Direction,
    from: Option<u64>,
}

impl ProcessProgress {
    /// The pause between two reports.
    pub const PAUSE: Duration = REWRITE;

    /// Progress from now on.
    pub fn new(what: impl Into<String>, direction: Direction, total: Option<u64>) -> Self {
        Self { progress: Progress::new(what, total), direction, from: direction.of_process() }
    }

    /// Shows the bytes since the beginning. Without a count of the kernel nothing is shown.
    pub fn report(&mut self, err: &mut dyn Write) {
        if let (Some(from), Some(now)) = (self.from, self.direction.of_process()) {
            self.progress.report(now.saturating_sub(from), err);
        }
    }

    /// Removes the line of a terminal.
    pub fn end(&mut self, err: &mut dyn Write) {
        self.progress.end(err);
    }

    /// Waits for work of this process and shows its progress.
    pub async fn while_waiting<T>(mut self, err: &mut dyn Write, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let done = loop {
            tokio::select! {
                biased;
                done = &mut work => break done,
                () = tokio::time::sleep(REWRITE) => self.report(err),
            }
        };
        self.end(err);
        done
    }

    /// Runs work on a thread and shows its progress.
    pub fn during<T: Send>(mut self, err: &mut dyn Write, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            while !work.is_finished() {
                std::thread::park_timeout(Duration::from_millis(20));
                self.report(err);
            }
            self.end(err);
            match work.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut rate = Rate::default();
        assert_eq!(rate.text(Some(100 << 20)), "0 B of 100.0 MiB (0 %)");
        for second in 0..=10 {
            rate.record(seconds(second), second << 20);
        }
        assert_eq!(rate.text(Some(100 << 20)), "10.0 MiB of 100.0 MiB (10 %), 1.0 MiB/s, 1m30s left");
        assert_eq!(rate.text(Some(16 << 20)), "10.0 MiB of 16.0 MiB (62 %), 1.0 MiB/s, 6s left");
        assert_eq!(rate.text(None), "10.0 MiB, 1.0 MiB/s");
        // A transfer that stands still says so, and promises no end.
        for second in 11..=40 {
            rate.record(seconds(second), 10 << 20);
        }
        assert_eq!(rate.text(Some(100 << 20)), "10.0 MiB of 100.0 MiB (10 %), 0 B/s");
    }

    #[test]
    fn bytes_that_are_known_every_ten_seconds_have_a_steady_rate() {
        let mut rate = Rate::of_records();
        for second in (0..=120).step_by(10) {
            rate.record(seconds(second), second << 20);
            // The bytes are read more often than they change.
            rate.record(seconds(second), second << 20);
            assert!(second == 0 || rate.per_second() == Some(f64::from(1 << 20)), "{second}");
        }
        assert_eq!(rate.samples.len(), 4, "thirty seconds");
    }

    #[test]
    fn more_bytes_than_the_image_has_promise_no_end() {
        let mut rate = Rate::default();
        rate.record(seconds(0), 0);
        rate.record(seconds(1), 300);
        assert_eq!(rate.text(Some(200)), "300 B of 200 B, 300 B/s");
    }

    #[test]
    fn the_samples_are_bounded() {
        let mut rate = Rate::default();
        for at in 0..100_000 {
            rate.record(Duration::from_micros(at), at);
        }
        assert!(rate.samples.len() <= 1024);
    }

    #[test]
    fn nothing_is_shown_of_what_is_quick() {
        let mut progress = Progress::new("reading", Some(10));
        let mut err = Vec::new();
        progress.report(5, &mut err);
        progress.end(&mut err);
        assert!(err.is_empty());
        progress.began = Instant::now() - seconds(4);
        progress.live = false;
        progress.report(5, &mut err);
        progress.report(6, &mut err);
        let text = String::from_utf8(err).unwrap();
        assert!(
            text.starts_with("reading: 5 B of 10 B (50 %), 1 B/s, ") && text.lines().count() == 1,
            "{text}"
        );
    }

    #[test]
    fn things_have_a_number_and_no_speed() {
        let mut rate = Rate::of_things();
        assert_eq!(rate.text(Some(254)), "0 of 254 (0 %)");
        rate.record(seconds(0), 0);
        rate.record(seconds(20), 8);
        assert_eq!(rate.text(Some(16)), "8 of 16 (50 %), 20s left");
        rate.record(seconds(60), 8);
        assert_eq!(rate.text(Some(16)), "8 of 16 (50 %)", "nothing has ended for a while");
    }

    /// Ends after the seconds that its number says.
    async fn ends_after(number: u64) -> Result<u64, CliError> {
        tokio::time::sleep(seconds(number)).await;
        Ok(number)
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_at_the_same_time_is_counted_as_it_ends_also_when_the_first_is_slow() {
        let mut err = Vec::new();
        let mut progress = Progress::of_things("probing");
        progress.live = false;
        // The first one is the last to end, and holds back no count.
        let numbers = [35_u64, 1, 5, 6].into_iter().map(ends_after);
        assert_eq!(progress.each(numbers, 4, &mut err).await.unwrap(), [35, 1, 5, 6]);
        let text = String::from_utf8(err).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "after two seconds, and then every ten: {text}");
        assert!(lines[0].starts_with("probing: 1 of 4 (25 %)"), "{text}");
        assert!(lines[1..].iter().all(|line| line.starts_with("probing: 3 of 4 (75 %)")), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_run_at_the_same_time_than_is_said_and_an_error_ends_all() {
        let (running, most, begun) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(0_u64));
        let one = |number: u64| {
            let (running, most, begun) = (&running, &most, &begun);
            async move {
                begun.set(begun.get() + 1);
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                ends_after(1).await?;
                running.set(running.get() - 1);
                if number == 20 { Err(CliError::failed("refused")) } else { Ok(number) }
            }
        };
        let progress = Progress::of_things("asking");
        let result = progress.each((0..100_usize).map(|number| one(number as u64)), 8, &mut Vec::new()).await;
        assert!(result.is_err());
        assert_eq!(most.get(), 8);
        assert!(begun.get() < 40, "{} were begun", begun.get());
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_this_process_shows_its_progress_until_it_ends() {
        let mut err = Vec::new();
        let work = async {
            tokio::time::sleep(seconds(15)).await;
            7
        };
        let mut progress = ProcessProgress::new("reading", Direction::Read, None);
        // As on a log, also where the test runs in a terminal.
        progress.progress.live = false;
        assert_eq!(progress.while_waiting(&mut err, work).await, 7);
        let shown = String::from_utf8(err).unwrap();
        assert_eq!(
            shown.lines().filter(|line| line.starts_with("reading: ")).count(),
            2,
            "after 2 s and 12 s: {shown}"
        );
    }

    #[test]
    fn the_kernel_counts_what_a_process_writes() {
        let mut file = tempfile::tempfile().unwrap();
        let mut err = Vec::new();
        let before = Direction::Write.of_process().unwrap();
        let progress = ProcessProgress::new("writing", Direction::Write, None);
        progress.during(&mut err, || file.write_all(&[7; 100_000]).unwrap());
        assert!(Direction::Write.of_process().unwrap() - before >= 100_000);
        assert!(err.is_empty(), "it was quick");
    }

    #[test]
    fn bytes_have_the_unit_that_shows_them() {
        let texts = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ];
        for (number, text) in texts {
            assert_eq!(bytes(number), text);
        }
    }
}
