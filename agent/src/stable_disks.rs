//! Waits until the machine shows all its disks.
//!
//! ```text
//!   read --every second--> the same for 10 s, and at least one: that is all
//!                          changed: 10 s again                        ... at most 60 s
//!   a driver is loaded meanwhile:  10 s again after its load           ... at most 180 s
//!   no disk matches a choice of the recipe: the same again             ... for 60 s
//! ```
//!
//! Drivers are loaded while the task is searched for, and the disks of a SAS or RAID controller appear up to a minute later. If
//! the agent chose before all disks are visible, it could find none, or take a disk for the only candidate. The kernel returns
//! from the load of a driver when the driver has looked for its devices, so a disk may appear while a load is under way.
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
/// [`LIMIT`] while drivers are loaded: some look for their devices for a minute, one after the other.
const LIMIT_OF_DRIVERS: Duration = Duration::from_secs(180);
const ROUND: Duration = Duration::from_secs(1);

/// The loads of drivers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverLoads {
    /// How many have begun.
    pub begun: u64,
    /// How many have ended.
    pub ended: u64,
}

/// The disks and driver loads of a machine, as it shows them now.
pub struct Shown<'run> {
    /// Reads the disks.
    pub disks: &'run dyn Fn() -> Vec<DiskFacts>,
    /// Reads the loads of drivers.
    pub drivers: &'run dyn Fn() -> DriverLoads,
}

impl Shown<'_> {
    fn read(&self) -> (Vec<DiskFacts>, DriverLoads) {
        ((self.disks)(), (self.drivers)())
    }
}

/// Returns the stable disks. While `lacks` says that a disk of the recipe is missing, they are read again for a minute.
pub fn awaited(
    shown: &Shown<'_>,
    lacks: &dyn Fn(&[DiskFacts]) -> bool,
    clock: &dyn Clock,
    log: &Log,
) -> Vec<DiskFacts> {
    let begun = clock.elapsed();
    loop {
        let disks = stable(shown, clock, log);
        if !lacks(&disks) || clock.elapsed().saturating_sub(begun) >= LIMIT {
            return disks;
        }
        log.line(unit::SELECT_DISK, "no disk matches a choice of the recipe yet; the disks are read again");
    }
}

/// Returns the disks when they have not changed for ten seconds, or after a minute.
pub fn stable(shown: &Shown<'_>, clock: &dyn Clock, log: &Log) -> Vec<DiskFacts> {
    let begun = clock.elapsed();
    let ((mut disks, mut loads), mut since) = (shown.read(), begun);
    let first = loads.ended;
    loop {
        let now = clock.elapsed();
        let is_loading = loads.begun > loads.ended;
        let is_quiet = !disks.is_empty() && !is_loading && now.saturating_sub(since) >= QUIET;
        let limit = if is_loading || loads.begun > first { LIMIT_OF_DRIVERS } else { LIMIT };
        if is_quiet || now.saturating_sub(begun) >= limit {
            let waited = now.saturating_sub(begun).as_secs();
            log.line(
                unit::SELECT_DISK,
                format!("the machine shows {} disks, {waited} s after the first look", disks.len()),
            );
            return disks;
        }
        clock.sleep(ROUND);
        let found = shown.read();
        if (&found.0, found.1) != (&disks, loads) {
            ((disks, loads), since) = (found, clock.elapsed());
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

    fn no_drivers() -> DriverLoads {
        DriverLoads::default()
    }

    fn stable(read: &dyn Fn() -> Vec<DiskFacts>, clock: &dyn Clock) -> Vec<DiskFacts> {
        super::stable(&Shown { disks: read, drivers: &no_drivers }, clock, &Log::new(Vec::new()))
    }

    /// The number of disks that are found when each appears after some seconds, and the seconds that the search took.
    fn after(disks: &[(&str, u64)]) -> (usize, u64) {
        let clock = VirtualClock::default();
        let read = || {
            let now = clock.elapsed().as_secs();
            disks.iter().filter(|(_, at)| *at <= now).map(|(name, _)| disk(name)).collect()
        };
        let found = stable(&read, &clock);
        (found.len(), clock.elapsed().as_secs())
    }

    /// The disks of a machine of which each appears after some seconds, with drivers whose loads begin and end at these seconds.
    fn with_drivers(disks: &[(&str, u64)], loads: &[(u64, u64)]) -> (usize, u64) {
        let clock = VirtualClock::default();
        let seconds = || clock.elapsed().as_secs();
        let read = || disks.iter().filter(|(_, at)| *at <= seconds()).map(|(name, _)| disk(name)).collect();
        let count =
            |of: fn(&(u64, u64)) -> u64| loads.iter().filter(|load| of(load) <= seconds()).count() as u64;
        let drivers = || DriverLoads { begun: count(|load| load.0), ended: count(|load| load.1) };
        let shown = Shown { disks: &read, drivers: &drivers };
        (super::stable(&shown, &clock, &Log::new(Vec::new())).len(), seconds())
    }

    #[test]
    fn the_disks_of_a_driver_that_is_still_loaded_are_waited_for() {
        // A disk on NVMe, and a RAID controller whose driver needs 40 s: without the second disk the choice would be another one.
        assert_eq!(with_drivers(&[("nvme0n1", 0), ("sda", 42)], &[(0, 40)]), (2, 52));
        assert_eq!(with_drivers(&[("nvme0n1", 0), ("sda", 95)], &[(0, 50), (51, 90)]), (2, 105));
        // A load that had ended before changes nothing, and one that never ends is given up.
        assert_eq!(with_drivers(&[("sda", 0)], &[(0, 0)]), (1, 10));
        assert_eq!(with_drivers(&[("sda", 0)], &[(0, 9999)]), (1, 180));
    }

    #[test]
    fn a_disk_that_appears_late_is_among_the_disks() {
        assert_eq!(after(&[("sda", 0)]), (1, 10));
        assert_eq!(after(&[("sda", 0), ("sdb", 9)]), (2, 19));
        assert_eq!(after(&[("sda", 45)]), (1, 55));
    }

    #[test]
    fn a_missing_disk_is_looked_for_and_then_given_up() {
        let seen = |late: u64| {
            let clock = VirtualClock::default();
            let read = || {
                let now = clock.elapsed().as_secs();
                [("sda", 0), ("sdb", late)]
                    .into_iter()
                    .filter(|(_, at)| *at <= now)
                    .map(|(name, _)| disk(name))
                    .collect()
            };
            let lacks = |disks: &[DiskFacts]| !disks.iter().any(|disk| disk.name == "sdb");
            let shown = Shown { disks: &read, drivers: &no_drivers };
            let found = awaited(&shown, &lacks, &clock, &Log::new(Vec::new()));
            (found.len(), clock.elapsed())
        };
        let (found, at) = seen(40);
        assert!(found == 2 && at < LIMIT, "{found} {at:?}");
        let (found, at) = seen(9999);
        assert!(found == 1 && at >= LIMIT && at < LIMIT * 2, "{found} {at:?}");
    }

    #[test]
    fn the_wait_ends_without_a_disk_and_with_disks_that_never_rest() {
        assert_eq!(after(&[]), (0, 60));
        let clock = VirtualClock::default();
        let read = || vec![disk(&format!("sd{}", clock.elapsed().as_secs()))];
        assert_eq!(stable(&read, &clock).len(), 1);
        assert_eq!(clock.elapsed(), LIMIT);
    }
}
