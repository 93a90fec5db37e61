//! The file descriptors of the process: the limit is raised at start, and divided before the first connection is accepted.
//!
//! ```text
//!   limit = [ storage: database, locks, images | outgoing: BMCs, webhooks, downloads | clients: sockets, a file per request ]
//!            fixed                               a quarter, or REDFISH_MAX_IN_FLIGHT    the rest
//! ```
//!
//! Invariant: connections of clients never use the descriptors of storage and BMCs, so a running job is not disturbed by them.

use std::fmt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The least limit of descriptors with which the controller is ready.
pub const REQUIRED: u64 = 1024;
/// Descriptors for the database and its readers, locks, listeners, logs, images of the library and housekeeping.
const STORAGE: u64 = 192;
/// Descriptors beside the requests in flight to BMCs: webhooks, downloads, connections kept for the next request.
const OUTGOING: u64 = 32;
/// The maximum of client connections, whatever the limit: each uses some KiB of memory.
const MAX_OPEN: u64 = 16_384;
/// The minimum of client connections with a limit that is too low.
const MIN_OPEN: u64 = 32;
/// The limit that is assumed where the system reports none, as some systems do.
const WITHOUT_LIMIT: u64 = 10_240;

/// The division of the descriptors of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DescriptorBudget {
    /// The limit of descriptors of the process.
    pub limit: u64,
    /// The number of descriptors reserved for storage.
    pub storage: u64,
    /// The number of descriptors reserved for connections to BMCs and receivers of webhooks.
    pub outgoing: u64,
    /// The maximum of open client connections.
    pub open: usize,
    /// The maximum of client requests in progress; each may use a second descriptor.
    pub active: usize,
}

impl DescriptorBudget {
    /// Divides a limit; `in_flight` is `REDFISH_MAX_IN_FLIGHT`.
    pub fn of(limit: u64, in_flight: usize) -> Self {
        let wanted = u64::try_from(in_flight).unwrap_or(u64::MAX).saturating_add(OUTGOING);
        let outgoing = wanted.max(limit / 4).min(limit / 2);
        let clients = limit.saturating_sub(STORAGE).saturating_sub(outgoing);
        // Half as many requests as connections, and one more descriptor for each request.
        let open = (clients / 3 * 2).clamp(MIN_OPEN, MAX_OPEN);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self { limit, storage: STORAGE, outgoing, open: count(open), active: count(open / 2) }
    }

    /// The error of a limit that is too low; `None` when the limit suffices.
    pub fn problem(&self) -> Option<TooFewDescriptors> {
        (self.limit < REQUIRED).then_some(TooFewDescriptors { limit: self.limit })
    }
}

/// The process may open too few files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooFewDescriptors {
    limit: u64,
}

impl fmt::Display for TooFewDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the process may open {} files and sockets, and needs {REQUIRED}: raise the hard limit, for example with \
             LimitNOFILE= of systemd, --ulimit nofile= of a container, or `ulimit -Hn`, and start the controller again",
            self.limit
        )
    }
}

/// Raises the soft limit to the hard limit and returns the limit in force.
pub fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return limit();
    }
    let wanted = [maximum, Some(WITHOUT_LIMIT)];
    for wanted in wanted {
        // A system that refuses its own hard limit accepts the usual maximum.
        let higher = current.is_some_and(|current| wanted.is_none_or(|wanted| wanted > current));
        if higher && setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum }).is_ok() {
            break;
        }
    }
    limit()
}

/// The limit in force.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u32::MAX))
}

/// The limit that a controller has after its start: the hard limit.
pub fn attainable() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::from(u32::MAX)).max(limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_never_use_the_descriptors_of_storage_and_bmcs() {
        for limit in [1024, 1500, 4096, 20_000, 65_536, 1 << 20, u64::MAX] {
            for in_flight in [1, 256, 65_536] {
                let budget = DescriptorBudget::of(limit, in_flight);
                let clients = (budget.open + budget.active) as u64;
                let sum = u128::from(budget.storage) + u128::from(budget.outgoing) + u128::from(clients);
                assert!(sum <= u128::from(limit), "{budget:?}");
                assert!(budget.problem().is_none() && budget.open >= 64, "{budget:?}");
            }
        }
        let common = DescriptorBudget::of(1024, 256);
        assert_eq!((common.outgoing, common.open, common.active), (288, 362, 181));
    }

    #[test]
    fn a_limit_that_is_too_low_says_what_to_do() {
        let budget = DescriptorBudget::of(256, 256);
        let why = budget.problem().unwrap().to_string();
        assert!(why.contains("256") && why.contains("LimitNOFILE"), "{why}");
        assert_eq!(budget.open as u64, MIN_OPEN, "clients are still served");
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_limit() {
        assert_eq!(raise(), attainable());
    }
}
