//! The disks of the machine, once all of them are there.
//!
//! ```text
//! list --drivers load, or a disk came or went--> 5 s from the start --unchanged for 5 s--> choice
//!                                                            no disk matches: look again, for 60 s
//! ```
//!
//! Controllers with many disks show them late and one after the other. A choice among the disks of the first second can
//! meet the wrong one, because it is the only candidate then.
//!
//! Invariant: every wait is bounded.

use std::time::Duration;

use crate::clock::Clock;
use crate::facts::DiskFacts;

const ROUND: Duration = Duration::from_millis(500);
/// For this time nothing may change before a choice.
const QUIET: Duration = Duration::from_secs(5);
/// After this time what is there is taken, although drivers still load.
const LIMIT: Duration = Duration::from_secs(60);
/// For this time a disk that is missing is looked for.
const MISSING: Duration = Duration::from_secs(60);

/// What the machine shows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The disks.
    pub disks: Vec<DiskFacts>,
    /// Whether drivers are being loaded.
    pub is_loading: bool,
}

impl From<Vec<DiskFacts>> for Seen {
    fn from(disks: Vec<DiskFacts>) -> Self {
        Self { disks, is_loading: false }
    }
}

/// Lists the disks.
pub type ListDisks<'run> = dyn Fn() -> Seen + 'run;

/// Returns the disks after no driver was loaded and no disk came or went for five seconds, or after a minute.
pub fn settled(list: &ListDisks<'_>, clock: &dyn Clock) -> Vec<DiskFacts> {
    let begun = clock.elapsed();
    let (mut seen, mut since) = (list(), begun);
    loop {
        let now = clock.elapsed();
        let is_quiet = !seen.is_loading && now.saturating_sub(since) >= QUIET;
        if is_quiet || now.saturating_sub(begun) >= LIMIT {
            return seen.disks;
        }
        clock.sleep(ROUND);
        let next = list();
        if next.is_loading || next.disks != seen.disks {
            since = clock.elapsed();
        }
        seen = next;
    }
}

/// Returns the settled disks. While `lacks` says that a disk is missing, they are looked for again, for a minute.
pub fn awaited(
    list: &ListDisks<'_>,
    clock: &dyn Clock,
    lacks: &dyn Fn(&[DiskFacts]) -> bool,
) -> Vec<DiskFacts> {
    let begun = clock.elapsed();
    loop {
        let disks = settled(list, clock);
        if !lacks(&disks) || clock.elapsed().saturating_sub(begun) >= MISSING {
            return disks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::VirtualClock;

    fn named(name: &str) -> DiskFacts {
        DiskFacts { name: name.to_owned(), bytes: 1 << 30, sector: 512, ..DiskFacts::default() }
    }

    /// A machine whose drivers load for some seconds, and whose disks appear at some seconds.
    fn machine<'run>(
        clock: &'run VirtualClock,
        loads_for: u64,
        disks: &'run [(&'run str, u64)],
    ) -> impl Fn() -> Seen + 'run {
        move || {
            let now = clock.elapsed();
            let there = disks.iter().filter(|(_, at)| now >= Duration::from_secs(*at));
            Seen {
                disks: there.map(|(name, _)| named(name)).collect(),
                is_loading: now < Duration::from_secs(loads_for),
            }
        }
    }

    fn count(loads_for: u64, disks: &[(&str, u64)]) -> (usize, u64) {
        let clock = VirtualClock::default();
        let found = settled(&machine(&clock, loads_for, disks), &clock);
        (found.len(), clock.elapsed().as_secs())
    }

    #[test]
    fn disks_are_taken_five_seconds_after_the_last_driver_and_the_last_disk() {
        assert_eq!(count(0, &[("sda", 0)]), (1, 5));
        assert_eq!(count(20, &[("sda", 0), ("sdb", 19)]), (2, 24));
        assert_eq!(count(2, &[("sda", 0), ("sdb", 6), ("sdc", 10)]), (3, 15));
        // Drivers that never end do not stop the machine.
        assert_eq!(count(9999, &[("sda", 0)]), (1, 60));
    }

    #[test]
    fn a_missing_disk_is_looked_for_and_then_given_up() {
        let clock = VirtualClock::default();
        let lacks = |disks: &[DiskFacts]| !disks.iter().any(|disk| disk.name == "sdb");
        let late = [("sda", 0), ("sdb", 40)];
        assert_eq!(awaited(&machine(&clock, 0, &late), &clock, &lacks).len(), 2);
        assert!(clock.elapsed() < Duration::from_secs(50));
        let clock = VirtualClock::default();
        assert_eq!(awaited(&machine(&clock, 0, &late[..1]), &clock, &lacks).len(), 1);
        assert!(clock.elapsed() >= MISSING && clock.elapsed() < MISSING * 2);
    }
}
