//! Messages to the service manager (systemd), by the protocol of sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names.
//!
//! ```text
//!   STATUS=opening the data ──> READY=1 ──> WATCHDOG=1 with the rounds of the dispatcher ──> STOPPING=1
//!                                 ^  |
//!                                 |  `── SIGHUP: RELOADING=1, MONOTONIC_USEC
//!                                 `───── the reload is over
//! ```
//!
//! Invariants: the watchdog is fed only by a round of the dispatcher in which the database could be used, never by a timer, so
//! that a controller whose loop or database hangs is started again; a message never waits for its receiver; without the variable
//! nothing is sent.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// The dispatcher makes a round at least every 15 s; a shorter watchdog would end a controller that is well.
const SHORTEST_WATCHDOG: Duration = Duration::from_secs(45);
/// The maximum length of a status in bytes.
const MAX_STATUS: usize = 512;

/// The service manager of this process, if there is one.
pub struct ServiceManager {
    channel: Option<Channel>,
    /// The time within which the watchdog must be fed.
    watchdog: Option<Duration>,
    last: Mutex<Last>,
}

struct Channel {
    socket: UnixDatagram,
    to: SocketAddr,
}

/// The status and the feed that were sent last, so that nothing is repeated without need.
#[derive(Default)]
struct Last {
    status: String,
    fed: Option<Instant>,
}

impl ServiceManager {
    /// The service manager that the environment of this process names.
    pub fn of_process() -> Self {
        Self::of(&|name| std::env::var_os(name), std::process::id())
    }

    fn of(environment: &dyn Fn(&str) -> Option<OsString>, pid: u32) -> Self {
        let number = |name: &str| environment(name)?.to_str()?.parse::<u64>().ok();
        let channel = environment("NOTIFY_SOCKET").and_then(|name| Channel::open(&name));
        // The variables are inherited; WATCHDOG_PID says whose they are.
        let ours = number("WATCHDOG_PID").is_none_or(|of| of == u64::from(pid));
        let watchdog =
            number("WATCHDOG_USEC").filter(|micros| *micros > 0 && ours).map(Duration::from_micros);
        if let Some(watchdog) = watchdog.filter(|watchdog| *watchdog < SHORTEST_WATCHDOG) {
            tracing::warn!(
                seconds = watchdog.as_secs_f64(),
                "WatchdogSec= is shorter than the rounds of the dispatcher allow; give at least {} s",
                SHORTEST_WATCHDOG.as_secs()
            );
        }
        Self { channel, watchdog, last: Mutex::default() }
    }

    /// The controller serves.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", self.shown(status)));
    }

    /// The controller does this now. A text that was sent last is not sent again.
    pub fn status(&self, status: &str) {
        if self.last.lock().status != one_line(status) {
            self.send(&format!("STATUS={}", self.shown(status)));
        }
    }

    /// The settings are read again; [`Self::ready`] ends it.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        let status = self.shown("reading the settings again");
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS={status}"));
    }

    /// The controller stops.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", self.shown(status)));
    }

    /// The loop that must live has made a round. Sent at most four times per watchdog time.
    pub fn alive(&self) {
        let Some(watchdog) = self.watchdog else { return };
        let mut last = self.last.lock();
        if last.fed.is_none_or(|fed| fed.elapsed() >= watchdog / 4) {
            last.fed = Some(Instant::now());
            drop(last);
            self.send("WATCHDOG=1");
        }
    }

    fn shown(&self, status: &str) -> String {
        let status = one_line(status);
        self.last.lock().status.clone_from(&status);
        status
    }

    fn send(&self, message: &str) {
        let Some(channel) = &self.channel else { return };
        if let Err(error) = channel.socket.send_to_addr(message.as_bytes(), &channel.to) {
            tracing::debug!(%error, "a message to the service manager was not sent");
        }
    }
}

impl Channel {
    fn open(name: &OsString) -> Option<Self> {
        let to = address(name)?;
        let socket = UnixDatagram::unbound().ok()?;
        // A service manager that does not read must not stop the controller.
        socket.set_nonblocking(true).ok()?;
        Some(Self { socket, to })
    }
}

/// The address of a path, or of a name in the abstract namespace, which begins with `@`.
fn address(name: &OsString) -> Option<SocketAddr> {
    let text = name.to_str()?;
    #[cfg(target_os = "linux")]
    if let Some(abstract_name) = text.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(abstract_name).ok();
    }
    text.starts_with('/').then(|| SocketAddr::from_pathname(text).ok())?
}

/// A text without line breaks, which would begin another assignment.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect();
    let mut end = line.len().min(MAX_STATUS);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line
}

impl fmt::Debug for ServiceManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, watchdog) = (self.channel.is_some(), self.watchdog);
        f.debug_struct("ServiceManager").field("named", &named).field("watchdog", &watchdog).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver, and the service manager that a process with these variables has.
    fn manager(more: &[(&str, &str)]) -> (tempfile::TempDir, UnixDatagram, ServiceManager) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let manager = ServiceManager::of(
            &|name| match name {
                "NOTIFY_SOCKET" => Some(path.clone().into_os_string()),
                name => more.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)),
            },
            7,
        );
        (folder, receiver, manager)
    }

    fn received(receiver: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 1024];
        let mut messages = Vec::new();
        while let Ok(length) = receiver.recv(&mut buffer) {
            messages.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        messages
    }

    #[test]
    fn a_status_cannot_smuggle_another_assignment_and_is_sent_once() {
        let (_folder, receiver, manager) = manager(&[]);
        manager.status("a\nREADY=1");
        manager.status("a\nREADY=1");
        manager.ready("serving");
        manager.status("serving");
        assert_eq!(received(&receiver), ["STATUS=a READY=1", "READY=1\nSTATUS=serving"]);
        manager.status(&"ä".repeat(MAX_STATUS));
        assert!(received(&receiver)[0].len() <= MAX_STATUS + "STATUS=".len());
    }

    #[test]
    fn a_reload_names_its_time_and_ends_with_ready() {
        let (_folder, receiver, manager) = manager(&[]);
        manager.reloading();
        manager.ready("serving");
        manager.stopping("SIGTERM");
        let messages = received(&receiver);
        let time = messages[0].split("MONOTONIC_USEC=").nth(1).unwrap().split('\n').next().unwrap();
        assert!(messages[0].starts_with("RELOADING=1\n") && time.parse::<u64>().unwrap() > 0);
        assert_eq!(messages[1..], ["READY=1\nSTATUS=serving", "STOPPING=1\nSTATUS=SIGTERM"]);
    }

    #[test]
    fn the_watchdog_is_fed_by_rounds_only_and_not_by_every_one() {
        let (_folder, receiver, manager) = manager(&[("WATCHDOG_USEC", "90000000"), ("WATCHDOG_PID", "7")]);
        manager.alive();
        manager.alive();
        assert_eq!(received(&receiver), ["WATCHDOG=1"]);
    }

    #[test]
    fn the_watchdog_of_another_process_is_not_fed() {
        for more in [&[("WATCHDOG_USEC", "90000000"), ("WATCHDOG_PID", "8")][..], &[]] {
            let (_folder, receiver, manager) = manager(more);
            manager.alive();
            assert!(received(&receiver).is_empty());
        }
    }

    #[test]
    fn a_receiver_that_does_not_read_or_is_gone_stops_nothing() {
        let (folder, receiver, manager) = manager(&[]);
        for number in 0..10_000 {
            manager.status(&number.to_string());
        }
        drop((receiver, folder));
        manager.ready("serving");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_name_is_an_address_and_a_relative_path_is_none() {
        assert!(address(&"@shoal".into()).unwrap().as_pathname().is_none());
        assert!(address(&"/run/x".into()).unwrap().as_pathname().is_some());
        assert!(address(&"run/x".into()).is_none());
    }
}
