//! The controller that is killed: this test program, started again as a controller with a fast clock. It kills itself with
//! SIGKILL at the point that the order names.
//!
//! ```text
//!   order file   "RUN N"     the process is killed at point N + 1, counted from the first read of the order
//!   trace file   one line for every point that was passed under an order
//! ```
//!
//! Invariants: both clocks are fast by the same factor and continue over a restart. The order is read at every point, so it
//! is in force as soon as it is written.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use controller::app;
use model::{Clock, SystemClock, Time, failpoint};
use rustix::process::{Signal, getpid, kill_process};
use secrecy::ExposeSecret;
use settings::{Settings, Sources};

/// How much faster time passes for the controller: the minute for which an insert may be in progress without being visible
/// is four seconds, and a BMC that shows its power three seconds late is 45 s late.
pub(super) const RATE: u32 = 15;

/// The variable with the start time of the fast clock.
pub(super) const BEGAN: &str = "KILL_CLOCK_BEGAN";
/// The variable with the folder of order and trace. Without it the program is not a controller.
pub(super) const FOLDER: &str = "KILL_FOLDER";
const ORDER: &str = "kill-order";
const TRACE: &str = "kill-trace";

/// A clock that runs `RATE` times as fast as the system clock.
struct FastClock {
    began: Time,
}

impl Clock for FastClock {
    fn now(&self) -> Time {
        self.began.plus(SystemClock.now().since(self.began) * RATE)
    }

    fn elapsed(&self) -> Duration {
        SystemClock.elapsed() * RATE
    }
}

/// Builds the command that starts a controller to be killed.
pub(super) fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["kill::controller::controller", "--exact", "--ignored", "--nocapture"]);
    command.env_clear().stdin(Stdio::null());
    command
}

/// Orders that the controller is killed after `after` more points.
pub(super) fn order(folder: &Path, run: &str, after: u64) {
    let draft = folder.join("kill-order.draft");
    std::fs::write(&draft, format!("{run} {after}")).unwrap();
    std::fs::rename(draft, folder.join(ORDER)).unwrap();
}

/// Withdraws the order. Returns the points that were passed under it.
pub(super) fn withdraw(folder: &Path) -> Vec<String> {
    // Without an order there is no order file and no trace.
    let _none = std::fs::remove_file(folder.join(ORDER));
    let trace = std::fs::read_to_string(folder.join(TRACE)).unwrap_or_default();
    let _none = std::fs::remove_file(folder.join(TRACE));
    trace.lines().map(str::to_owned).collect()
}

/// The order in force and its progress.
#[derive(Default)]
struct Order {
    run: String,
    passed: u64,
    trace: Option<File>,
}

impl Order {
    /// Counts a passed point. Returns `true` at the last one.
    fn pass(&mut self, folder: &Path, point: &str) -> bool {
        let Ok(text) = std::fs::read_to_string(folder.join(ORDER)) else { return false };
        let (run, after) = text.split_once(' ').unwrap();
        if run != self.run {
            let trace = OpenOptions::new().create(true).append(true).open(folder.join(TRACE)).unwrap();
            *self = Self { run: run.to_owned(), passed: 0, trace: Some(trace) };
        }
        // The kernel keeps the written line when the process is killed.
        writeln!(self.trace.as_mut().unwrap(), "{point}").unwrap();
        self.passed += 1;
        self.passed > after.parse().unwrap()
    }
}

/// Not a test: the controller that [`command`] starts.
#[test]
#[ignore = "the controller that the kill matrix starts and kills, not a test"]
fn controller() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let order = Mutex::new(Order::default());
    let watched = failpoint::install(Box::new(move |point| {
        // The mutex stays locked, so that no thread passes a point after the last one.
        let mut order = order.lock().unwrap();
        if order.pass(&folder, point) {
            kill_process(getpid(), Signal::KILL).unwrap();
            loop {
                std::thread::park();
            }
        }
    }));
    assert!(watched);
    let environment = |name: &str| std::env::var_os(name);
    let settings = Settings::load(&Sources {
        flags: Vec::new(),
        environment: &environment,
        variables: Vec::new(),
        file: None,
    });
    let clock = FastClock { began: std::env::var(BEGAN).unwrap().parse().unwrap() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let show: app::ShowToken = Box::new(|token, _api| {
            println!("admin token, shown only now: {}", token.expose_secret());
            Ok(())
        });
        let running =
            app::start_showing(settings.unwrap(), Arc::new(clock), show, app::InheritedSockets::none());
        let running = running.await.unwrap();
        loop {
            // The engine sleeps by the system clock, so it is woken for what is due by the fast clock.
            tokio::time::sleep(Duration::from_millis(20)).await;
            running.engine.wake();
        }
    });
}
