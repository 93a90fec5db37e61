//! Waits until the machine shows all its disks.
//!
//! ```text
//!   read --every second--> the same for 10 s, and at least one: that is all
//!                          changed: 10 s again                        ... at most 60 s
//! ```
//!
//! Drivers are loaded while the task is searched for, and the disks of a SAS or RAID controller appear up to a minute later. A choice
//! among the first disks would be another one than among all: no disk where there is one, or the only candidate of now where there
//! are two.
//!
//! Invariant: the wait ends, whatever the disks do.

use std::time::Duration;

use crate::clock::Clock;
use crate::facts::DiskFacts;
use crate::log::Log;
use crate::task::unit;

/// How long no disk may appear or change.
const QUIET: Duration = Duration::from_secs(10);
/// How long a machine without a disk, or with disks that change all the time, is waited for.
const LIMIT: Duration = Duration::from_secs(60);
const ROUND: Duration = Duration::from_secs(1);

/// Returns the disks when they have not changed for ten seconds, or after a minute.
pub fn settled(read: &dyn Fn() -> Vec<DiskFacts>, clock: &dyn Clock, log: &Log) -> Vec<DiskFacts> {
    let begun = clock.elapsed();
    let (mut disks, mut since) = (read(), begun);
    loop {
        let now = clock.elapsed();
        let is_quiet = !disks.is_empty() && now.saturating_sub(since) >= QUIET;
        if is_quiet || now.saturating_sub(begun) >= LIMIT {
            let waited = now.saturating_sub(begun).as_secs();
            log.line(
                unit::SELECT_DISK,
                format!("the machine shows {} disks, {waited} s after the first look", disks.len()),
            );
            return disks;
        }
        clock.sleep(ROUND);
        let found = read();
        if found != disks {
            (disks, since) = (found, clock.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::VirtualClock;

    fn disk(name: &str) -> DiskFacts {
        DiskFacts { name: name.to_owned(), bytes: 1 << 30, sector: 512, ..DiskFacts::default() }
    }

    /// The disks of a machine of which each appears after some seconds.
    fn after(disks: &[(&str, u64)]) -> (usize, u64) {
        let clock = VirtualClock::default();
        let read = || {
            let now = clock.elapsed().as_secs();
            disks.iter().filter(|(_, at)| *at <= now).map(|(name, _)| disk(name)).collect()
        };
        let found = settled(&read, &clock, &Log::new(Vec::new()));
        (found.len(), clock.elapsed().as_secs())
    }

    #[test]
    fn a_disk_that_appears_late_is_among_the_disks() {
        assert_eq!(after(&[("sda", 0)]), (1, 10));
        assert_eq!(after(&[("sda", 0), ("sdb", 9)]), (2, 19));
        assert_eq!(after(&[("sda", 45)]), (1, 55));
    }

    #[test]
    fn the_wait_ends_without_a_disk_and_with_disks_that_never_rest() {
        assert_eq!(after(&[]), (0, 60));
        let clock = VirtualClock::default();
        let read = || vec![disk(&format!("sd{}", clock.elapsed().as_secs()))];
        assert_eq!(settled(&read, &clock, &Log::new(Vec::new())).len(), 1);
        assert_eq!(clock.elapsed(), LIMIT);
    }
}
