//! The simulation itself: it finds nothing, and it would.

use super::*;
use engine::model::mutant::{self, Mutant};

fn run_seed(seed: u64) -> WorldReport {
    let folder = tempfile::tempdir().unwrap();
    run(&WorldPlan::of(seed, FaultLevel::Seeded), folder.path()).unwrap()
}

#[test]
fn twenty_seeds_break_no_rule() {
    for seed in 0..20 {
        let report = run_seed(seed);
        assert!(report.violations.is_empty(), "shoal selftest --seed {seed}\n{:#?}", report.violations);
    }
}

#[test]
fn nothing_is_left_of_a_world_that_is_over() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..10 {
        let (_, world) = run_world(&WorldPlan::of(seed, FaultLevel::Seeded), folder.path()).unwrap();
        assert_eq!(world.strong_count(), 0, "seed {seed}: a hundred thousand worlds would need their memory");
    }
}

#[test]
fn the_same_seed_tells_the_same_story_byte_for_byte() {
    for seed in 101..104 {
        let (first, second) = (run_seed(seed), run_seed(seed));
        assert!(first.jobs > 0);
        for (a, b) in first.log.lines().zip(second.log.lines()) {
            assert_eq!(a, b, "seed {seed}");
        }
        assert_eq!(first.digest, second.digest, "seed {seed}");
    }
}

/// Worlds that once broke a rule.
macro_rules! once_broken {
    ($($name:ident: $seed:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            let report = run_seed($seed);
            assert!(report.violations.is_empty(), "shoal selftest --seed {}\n{:#?}", $seed, report.violations);
            assert_eq!(report.digest, run_seed($seed).digest, "another story the second time");
        }
    )*};
}

once_broken! {
    seed_100_controllers_that_stood_still_wake_up_in_the_same_order: 100,
    seed_390_the_boot_of_the_job_before_is_not_counted_twice: 390,
    seed_416_nobody_takes_over_beside_a_clock_that_is_behind: 416,
    seed_1250_who_asked_a_controller_that_stood_still_has_an_answer_when_all_is_calm: 1250,
    seed_2922_a_controller_that_stands_still_when_all_is_calm_goes_on: 2922,
    seed_6825_what_is_late_does_not_wait_for_a_clock_that_was_set_back: 6825,
    seed_7933_nobody_starts_beside_who_has_the_lock_and_has_not_yet_taken_over: 7933,
    seed_25636_a_look_that_does_not_come_back_ends_no_job_that_has_waited_long: 25636,
    seed_25760_what_one_courier_is_late_with_another_does_not_forget: 25760,
    seed_27017_the_last_job_is_the_one_made_last_whatever_the_clock_was_set_to: 27017,
    seed_27396_an_image_that_shows_after_the_cancel_is_ejected: 27396,
    seed_37735_a_host_that_was_told_to_start_a_minute_ago_may_still_come_up: 37735,
    seed_52220_a_slot_that_an_earlier_job_left_filled_is_emptied_by_the_next_one: 52220,
    seed_54680_the_shutdown_of_a_job_does_not_make_the_boot_before_it_its_own: 54680,
    seed_58968_a_cancel_is_carried_out_also_when_the_last_step_was_just_done: 58968,
    seed_60081_a_boot_override_without_a_target_leads_nowhere: 60081,
    seed_175_a_retry_long_after_its_job_is_waited_for: 175,
}

/// Plays worlds of a defective program until one of them breaks a rule; answers the rule.
fn caught(mutant: Mutant, within: u64) -> Option<(u64, String)> {
    let folder = tempfile::tempdir().unwrap();
    (0..within).find_map(|seed| {
        let plan = WorldPlan::of(seed, FaultLevel::Seeded);
        let report = mutant::with(mutant, || run(&plan, folder.path()).unwrap());
        report.violations.into_iter().next().map(|rule| (seed, rule))
    })
}

/// A simulation that cannot fail proves nothing.
macro_rules! caught_within {
    ($($name:ident: $mutant:ident within $seeds:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            let caught = caught(Mutant::$mutant, $seeds);
            assert!(caught.is_some(), "not noticed within {} seeds", $seeds);
        }
    )*};
}

caught_within! {
    a_worker_that_ignores_its_epoch_is_noticed: IgnoresEpoch within 60,
    a_restart_after_a_crash_is_noticed: RestartsAfterCrash within 60,
    a_lock_that_is_kept_is_noticed: KeepsLock within 3,
    a_report_that_is_lost_is_noticed: LosesReport within 5,
    an_event_that_is_not_sent_again_is_noticed: ForgetsRetry within 30,
    a_run_that_nobody_looks_at_again_is_noticed: NeverDue within 3,
}
