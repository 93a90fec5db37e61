//! The simulation itself: it finds nothing, and it would.

use super::*;

fn happen(seed: u64) -> Report {
    let folder = tempfile::tempdir().unwrap();
    run(&Plan::of(seed, Level::Seeded), folder.path()).unwrap()
}

#[test]
fn twenty_seeds_break_no_rule() {
    for seed in 0..20 {
        let report = happen(seed);
        assert!(report.violations.is_empty(), "shoal selftest --seed {seed}\n{:#?}", report.violations);
    }
}

#[test]
fn the_same_seed_tells_the_same_story_byte_for_byte() {
    for seed in 100..105 {
        let (first, second) = (happen(seed), happen(seed));
        assert!(first.jobs > 0);
        for (a, b) in first.log.lines().zip(second.log.lines()) {
            assert_eq!(a, b, "seed {seed}");
        }
        assert_eq!(first.digest, second.digest, "seed {seed}");
    }
}
