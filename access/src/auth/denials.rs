//! Denied attempts in the log: the first ones of a minute as lines, all others as one number.
//!
//! ```text
//!   one minute:   192.0.2.1 denied    192.0.2.1 x 400    192.0.2.2 denied   ...   the rest of 5,000 addresses
//!   log:          a line              -                  a line                   -
//!   at its end:   one line: 5,398 more denials, the most (400) from 192.0.2.1
//! ```
//!
//! Invariants: per minute at most [`LINES`] lines and one sum are written for each kind of denial, whatever arrives; at most
//! [`ADDRESSES`] addresses are counted one by one; no denial is missing from the sums.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The time that one sum covers.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of lines of a kind within [`WINDOW`].
const LINES: usize = 16;
/// The maximum number of addresses that are counted one by one.
const ADDRESSES: usize = 256;

/// The kind of a denied attempt.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Denial {
    /// A credential of the API or the registry.
    Credential,
    /// The secret of an installation report.
    ReportSecret,
    /// The client certificate of an installation report.
    ReportCertificate,
    /// A signed URL of a task image.
    MediaUrl,
    /// A connection or a request beyond a limit.
    Load,
}

impl Denial {
    const ALL: [Self; 5] =
        [Self::Credential, Self::ReportSecret, Self::ReportCertificate, Self::MediaUrl, Self::Load];

    fn noun(self) -> &'static str {
        match self {
            Self::Credential => "credentials",
            Self::ReportSecret => "report secrets",
            Self::ReportCertificate => "report certificates",
            Self::MediaUrl => "signed media URLs",
            Self::Load => "connections and requests beyond a limit",
        }
    }
}

/// The denials of a window that have no line of their own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DenialSum {
    /// The number of the denials.
    pub(crate) count: u64,
    /// The number of addresses that were counted one by one; there may be more.
    pub(crate) addresses: usize,
    /// The address with most denials, and their number.
    pub(crate) most: Option<(IpAddr, u64)>,
}

/// The denials of one kind since the begin of its window.
#[derive(Debug, Default)]
struct Window {
    /// The end of the window, in milliseconds since 1970.
    ends: Option<i64>,
    lines: usize,
    summed: u64,
    addresses: HashMap<IpAddr, u64>,
}

impl Window {
    /// Ends the window if it is over, and returns its sum.
    fn end(&mut self, now: i64) -> Option<DenialSum> {
        // A clock that was set back must not keep a window open.
        let length = i64::try_from(WINDOW.as_millis()).unwrap_or(i64::MAX);
        if !self.ends.is_some_and(|ends| now >= ends || now.saturating_add(length) < ends) {
            return None;
        }
        let Self { summed, addresses, .. } = std::mem::take(self);
        let most =
            addresses.iter().max_by_key(|(_, count)| **count).map(|(address, count)| (*address, *count));
        (summed > 0).then_some(DenialSum { count: summed, addresses: addresses.len(), most })
    }

    /// Counts a denial; true if it has a line of its own.
    fn count(&mut self, peer: IpAddr, now: i64) -> bool {
        let length = i64::try_from(WINDOW.as_millis()).unwrap_or(i64::MAX);
        self.ends.get_or_insert(now.saturating_add(length));
        let room = self.addresses.len() < ADDRESSES;
        let first = match self.addresses.get_mut(&peer) {
            Some(count) => {
                *count += 1;
                false
            }
            None => {
                if room {
                    self.addresses.insert(peer, 1);
                }
                true
            }
        };
        let line = first && self.lines < LINES;
        if line {
            self.lines += 1;
        } else {
            self.summed += 1;
        }
        line
    }
}

/// The denials of this process.
#[derive(Debug, Default)]
pub struct Denials(Mutex<HashMap<Denial, Window>>);

impl Denials {
    /// Counts a denial. Returns whether it has a line of its own, and the sum of the former window if that is over.
    fn record(&self, what: Denial, peer: IpAddr, now: Timestamp) -> (bool, Option<DenialSum>) {
        let now = now.as_millisecond();
        let mut windows = self.0.lock();
        let window = windows.entry(what).or_default();
        let sum = window.end(now);
        (window.count(peer.to_canonical(), now), sum)
    }

    /// Returns the sum of a window that is over.
    fn due(&self, what: Denial, now: Timestamp) -> Option<DenialSum> {
        self.0.lock().get_mut(&what)?.end(now.as_millisecond())
    }

    /// Logs a denied attempt, or counts it for the sum of its minute.
    pub fn denied(&self, what: Denial, peer: IpAddr, reason: &dyn Display, now: Timestamp) {
        let (line, sum) = self.record(what, peer, now);
        log_sum(what, sum);
        if line {
            match what {
                Denial::Credential => tracing::info!(%peer, %reason, "a credential was refused"),
                Denial::ReportSecret => tracing::info!(%peer, %reason, "a report secret was refused"),
                Denial::ReportCertificate => {
                    tracing::info!(%peer, %reason, "a report certificate was refused")
                }
                Denial::MediaUrl => tracing::info!(%peer, %reason, "a signed media URL was refused"),
                Denial::Load => tracing::warn!(%peer, %reason, "a connection or request was refused"),
            }
        }
    }

    /// Logs the sum of each window at its end, until `stop`, and then those of the open windows.
    pub async fn run(&self, now: impl Fn() -> Timestamp + Send, stop: CancellationToken) {
        while tokio::time::timeout(WINDOW, stop.cancelled()).await.is_err() {
            Denial::ALL.into_iter().for_each(|what| log_sum(what, self.due(what, now())));
        }
        let end = now().saturating_add(WINDOW).unwrap_or(Timestamp::MAX);
        Denial::ALL.into_iter().for_each(|what| log_sum(what, self.due(what, end)));
    }
}

fn log_sum(what: Denial, sum: Option<DenialSum>) {
    let Some(DenialSum { count, addresses, most }) = sum else { return };
    let (peer, most) = most.map_or_else(Default::default, |(peer, count)| (peer.to_string(), count));
    tracing::warn!(
        count,
        addresses,
        peer,
        most,
        "more {} were refused within {} s; peer is the address with most of them",
        what.noun(),
        WINDOW.as_secs()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn peer(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0xc633_6400 + number).into()
    }

    #[test]
    fn denials_from_many_addresses_are_a_few_lines_and_one_sum() {
        let denials = Denials::default();
        let lines =
            (0..5000).filter(|number| denials.record(Denial::Credential, peer(*number), at(1)).0).count();
        assert_eq!(lines, LINES);
        assert!(denials.0.lock()[&Denial::Credential].addresses.len() <= ADDRESSES);
        assert_eq!(denials.due(Denial::Credential, at(60)), None, "the minute is not over");
        let sum = denials.due(Denial::Credential, at(61)).unwrap();
        assert_eq!((sum.count, sum.addresses), (5000 - LINES as u64, ADDRESSES));
        assert_eq!(denials.due(Denial::Credential, at(200)), None, "a sum is reported once");
    }

    #[test]
    fn an_address_has_one_line_per_minute_and_the_sum_names_it() {
        let denials = Denials::default();
        let lines = (0..400).filter(|_| denials.record(Denial::ReportSecret, peer(1), at(0)).0).count();
        assert_eq!(lines, 1);
        assert!(denials.record(Denial::ReportSecret, peer(2), at(1)).0);
        let (line, sum) = denials.record(Denial::ReportSecret, peer(1), at(70));
        assert!(line, "the next minute has lines again");
        assert_eq!(sum, Some(DenialSum { count: 399, addresses: 2, most: Some((peer(1), 400)) }));
    }

    #[test]
    fn a_clock_set_back_ends_the_window() {
        let denials = Denials::default();
        for _ in 0..2 {
            denials.record(Denial::Load, peer(1), at(100_000));
        }
        assert!(denials.record(Denial::Load, peer(1), at(0)).1.is_some());
    }
}
