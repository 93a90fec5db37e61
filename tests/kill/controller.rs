//! The controller that is killed: this test program started once more, which starts the real thing on a faster clock and
//! ends it with SIGKILL at the point it was ordered to.
//!
//! ```text
//!   order file   "RUN N"     at the point N + 1 (from when the order is first seen) this process is no more
//!   story file   one line for every point that was passed under an order
//! ```
//!
//! Invariants: both clocks are fast by the same factor and go on over a restart; an order is read at every point, so
//! that there is no moment between giving and having it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use controller::app;
use controller::config::{Settings, Sources};
use engine::model::{Clock, SystemClock, Time, failpoint};
use rustix::process::{Signal, getpid, kill_process};
use secrecy::ExposeSecret;

/// How much faster time passes for the controller: the minute for which an insert may be under way without a trace is four
/// seconds, a BMC that shows its power three seconds late is 45 s late.
pub(super) const RATE: u32 = 15;

/// When the fast clock began.
pub(super) const BEGAN: &str = "KILL_CLOCK_BEGAN";
/// The folder of order and story; without it this is no controller.
pub(super) const FOLDER: &str = "KILL_FOLDER";
const ORDER: &str = "kill-order";
const STORY: &str = "kill-story";

/// A clock that is fast.
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

/// The command that starts a controller to be killed.
pub(super) fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["kill::controller::controller", "--exact", "--ignored", "--nocapture"]);
    command.env_clear().stdin(Stdio::null());
    command
}

/// Orders the death of the controller at its `after`-th point from now on.
pub(super) fn order(folder: &Path, run: &str, after: u64) {
    let draft = folder.join("kill-order.draft");
    std::fs::write(&draft, format!("{run} {after}")).unwrap();
    std::fs::rename(draft, folder.join(ORDER)).unwrap();
}

/// Takes the order back; answers the points that were passed under it.
pub(super) fn withdraw(folder: &Path) -> Vec<String> {
    // Without an order there is nothing to take back, and no story.
    let _none = std::fs::remove_file(folder.join(ORDER));
    let story = std::fs::read_to_string(folder.join(STORY)).unwrap_or_default();
    let _none = std::fs::remove_file(folder.join(STORY));
    story.lines().map(str::to_owned).collect()
}

/// What is known of the order in force.
#[derive(Default)]
struct Order {
    run: String,
    passed: u64,
    story: Option<File>,
}

impl Order {
    /// A point is passed; `true` when it is the last one.
    fn pass(&mut self, folder: &Path, point: &str) -> bool {
        let Ok(text) = std::fs::read_to_string(folder.join(ORDER)) else { return false };
        let (run, after) = text.split_once(' ').unwrap();
        if run != self.run {
            let story = OpenOptions::new().create(true).append(true).open(folder.join(STORY)).unwrap();
            *self = Self { run: run.to_owned(), passed: 0, story: Some(story) };
        }
        // The system keeps what was written, whatever becomes of the writer.
        writeln!(self.story.as_mut().unwrap(), "{point}").unwrap();
        self.passed += 1;
        self.passed > after.parse().unwrap()
    }
}

/// Not a test: what [`command`] starts.
#[test]
#[ignore = "the controller that the kill matrix starts and kills, no test by itself"]
fn controller() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let order = Mutex::new(Order::default());
    let watched = failpoint::install(Box::new(move |point| {
        // Held to the end: nobody passes a point after the last one.
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
    let settings = Settings::load(&Sources { flags: Vec::new(), environment: &environment, file: None });
    let clock = FastClock { began: std::env::var(BEGAN).unwrap().parse().unwrap() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let running = app::start(settings.unwrap(), Arc::new(clock)).await.unwrap();
        if let Some(token) = &running.first_token {
            println!("admin token, shown only now: {}", token.expose_secret());
        }
        loop {
            // The engine sleeps by the real clock; what is due by the fast one it has to be told.
            tokio::time::sleep(Duration::from_millis(20)).await;
            running.engine.wake();
        }
    });
}
