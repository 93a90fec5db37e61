//! The first process: starts the worker, waits for children, carries out its ending.
//!
//! ```text
//! worker ends with  OFF -> power off   anything else -> a fault: another worker, with the reason, after 5 s, 10 s … 60 s
//! ```

use std::{
    fs, io,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use rustix::process::{WaitOptions, WaitStatus};
use rustix::system::RebootCommand;

use super::{UNIT, WORKER, consoles, mounts, power};
use crate::log::Log;

/// The worker's exit code for: power the machine off.
pub const OFF: u8 = 40;
/// Where a worker that panics leaves its reason.
pub const FAULT: &str = "/run/shoal-fault";

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Characters of a reason.
const MAX_REASON: usize = 200;

/// The next action after the end of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The machine is powered off.
    Off,
    /// Another worker reports this fault.
    Again(String),
}

/// Decides what follows the end of a worker: its exit code or signal, and the reason that it left.
#[must_use]
pub fn next(code: Option<i32>, signal: Option<i32>, left: &str) -> Next {
    if code == Some(i32::from(OFF)) {
        return Next::Off;
    }
    let left: String = left
        .chars()
        .filter(|letter| !letter.is_control())
        .take(MAX_REASON)
        .collect::<String>()
        .trim()
        .to_owned();
    Next::Again(match (signal, code) {
        _ if !left.is_empty() => format!("the agent ended by a fault: {left}"),
        (Some(9), _) => "the agent was killed; the machine may have too little memory".to_owned(),
        (Some(signal), _) => format!("the agent was ended by signal {signal}"),
        (None, code) => format!("the agent ended with code {}", code.unwrap_or(-1)),
    })
}

/// Runs as the first process of the machine. It never returns: the kernel stops when it does.
pub fn supervise() -> ! {
    let failures = mounts::mount_first(&mounts::mount_now);
    let (sys, dev) = (Path::new("/sys"), Path::new("/dev"));
    let log = Log::new(consoles::open(sys, dev));
    log.line(UNIT, format!("shoal-agent {} is the first process", env!("CARGO_PKG_VERSION")));
    failures.into_iter().for_each(|failure| log.line(UNIT, failure));
    let button = log.clone();
    std::thread::spawn(move || {
        power::wait(Path::new("/sys"), Path::new("/dev"));
        button.line(UNIT, "the power button was pressed");
        turn_off(&button);
    });
    let (mut fault, mut pause) = (None, FIRST_PAUSE);
    loop {
        let _ = fs::remove_file(FAULT);
        let ended = start(fault.as_deref()).and_then(|child| wait_for(&child));
        let left = mounts::small_file(Path::new(FAULT));
        let following = match ended {
            Ok(status) => next(status.exit_status(), status.terminating_signal(), &left),
            Err(source) => Next::Again(format!("the agent cannot be started: {source}")),
        };
        match following {
            Next::Off => turn_off(&log),
            Next::Again(reason) => {
                log.line(UNIT, &reason);
                // The first reason is what the operator needs.
                fault.get_or_insert(reason);
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn start(fault: Option<&str>) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORKER).args(fault).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/");
    command.spawn()
}

/// Waits for the worker, and for every process whose parent ended.
fn wait_for(child: &Child) -> io::Result<WaitStatus> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((ended, status)))
                if u32::try_from(ended.as_raw_nonzero().get()).ok() == Some(child.id()) =>
            {
                return Ok(status);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(source) => return Err(source.into()),
        }
    }
}

/// Ends the machine. What fails is logged; the machine stays on.
fn turn_off(log: &Log) {
    log.line(UNIT, "the machine powers off");
    rustix::fs::sync();
    if let Err(source) = rustix::system::reboot(RebootCommand::PowerOff) {
        log.line(UNIT, format!("the kernel refuses it: {source}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_ends_without_an_ending_is_a_fault_with_its_reason() {
        assert_eq!(next(Some(40), None, ""), Next::Off);
        let again = |text: &str| Next::Again(text.to_owned());
        assert_eq!(
            next(Some(101), None, "panicked at x.rs:1:\nboom\n"),
            again("the agent ended by a fault: panicked at x.rs:1:boom")
        );
        assert_eq!(
            next(None, Some(9), ""),
            again("the agent was killed; the machine may have too little memory")
        );
        assert_eq!(next(None, Some(11), ""), again("the agent was ended by signal 11"));
        assert_eq!(next(Some(0), None, ""), again("the agent ended with code 0"));
        let Next::Again(long) = next(Some(101), None, &"x".repeat(9999)) else { panic!() };
        assert!(long.len() <= 256);
    }
}
