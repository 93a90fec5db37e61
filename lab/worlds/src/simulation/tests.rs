//! Tests of the simulation: worlds break no rule, and defects of the program are detected.

use super::*;
use model::mutant::{self, Mutant};

fn run_seed(seed: u64) -> WorldReport {
    let folder = tempfile::tempdir().unwrap();
    run(&WorldPlan::of(seed, FaultLevel::Seeded), folder.path()).unwrap()
}

#[test]
fn twenty_seeds_break_no_rule_and_leave_no_world_behind() {
    let mut conditions = BTreeSet::new();
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let (report, world) = run_world(&WorldPlan::of(seed, FaultLevel::Seeded), folder.path()).unwrap();
        assert!(report.violations.is_empty(), "shoal selftest --seed {seed}\n{:#?}", report.violations);
        assert_eq!(world.strong_count(), 0, "seed {seed}: the memory of finished worlds must be free");
        conditions.extend(report.conditions);
    }
    for wanted in ["flashing", "version", "rescue_session", "settings_values"] {
        assert!(conditions.contains(&format!("Waiting/{wanted}")), "{wanted} is not in {conditions:?}");
    }
}

#[test]
fn a_seed_always_gives_the_same_log_byte_for_byte() {
    for seed in 101..104 {
        let (first, second) = (run_seed(seed), run_seed(seed));
        assert!(first.jobs > 0);
        for (a, b) in first.log.lines().zip(second.log.lines()) {
            assert_eq!(a, b, "seed {seed}");
        }
        assert_eq!(first.digest, second.digest, "seed {seed}");
    }
}

/// Tests of seeds whose worlds once broke a rule.
macro_rules! recorded_seeds {
    ($($name:ident: $seed:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            let report = run_seed($seed);
            assert!(report.violations.is_empty(), "shoal selftest --seed {}\n{:#?}", $seed, report.violations);
        }
    )*};
}

recorded_seeds! {
    seed_100_paused_controllers_resume_in_one_order: 100,
    seed_376_a_cancel_is_not_accepted_after_the_success_of_its_job: 376,
    seed_390_the_boot_of_the_previous_job_is_not_counted_twice: 390,
    seed_416_no_controller_takes_over_from_one_whose_clock_is_behind: 416,
    seed_615_reads_of_a_booting_host_are_seen_by_a_worker_whose_clock_is_ahead: 615,
    seed_1250_a_request_to_a_paused_controller_gets_a_response_after_the_fault_time: 1250,
    seed_2922_a_controller_that_is_paused_at_the_end_of_the_fault_time_continues: 2922,
    seed_6825_a_late_delivery_does_not_wait_for_a_clock_that_was_set_back: 6825,
    seed_7933_no_controller_starts_beside_one_that_has_the_lock_and_has_not_yet_taken_over: 7933,
    seed_12921_reads_that_another_controller_has_served_are_seen_by_one_that_was_paused: 12921,
    seed_25636_a_check_without_a_response_does_not_end_a_job_that_has_waited_long: 25636,
    seed_25760_a_retry_of_one_dispatcher_is_not_lost_by_another: 25760,
    seed_27017_the_last_job_is_the_last_one_created_even_if_the_clock_was_set_back: 27017,
    seed_27396_an_image_that_appears_after_the_cancel_is_ejected: 27396,
    seed_37735_a_host_may_start_a_minute_after_the_power_request: 37735,
    seed_52220_a_slot_that_an_earlier_job_left_filled_is_emptied_by_the_next_job: 52220,
    seed_54680_an_earlier_boot_is_not_counted_for_the_job_that_shuts_down_the_host: 54680,
    seed_58968_a_cancel_takes_effect_even_if_the_last_step_has_just_finished: 58968,
    seed_60081_a_boot_override_without_a_target_has_no_effect: 60081,
    seed_175_the_world_waits_for_a_retry_long_after_its_job: 175,
}

#[test]
fn the_pending_cleanup_of_a_job_is_recorded_although_the_controller_stood_still_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(&WorldPlan::of(1888, FaultLevel::Storm), folder.path()).unwrap();
    assert!(
        report.violations.is_empty(),
        "shoal selftest --seed 1888 --faults storm\n{:#?}",
        report.violations
    );
}

/// Runs worlds with a mutant, from this seed on, until one breaks a rule. Returns the seed and the rule.
fn first_violation(mutant: Mutant, first: u64, seeds: u64) -> Option<(u64, String)> {
    let folder = tempfile::tempdir().unwrap();
    (first..first + seeds).find_map(|seed| {
        let plan = WorldPlan::of(seed, FaultLevel::Seeded);
        let report = mutant::with(mutant, || run(&plan, folder.path()).unwrap());
        report.violations.into_iter().next().map(|rule| (seed, rule))
    })
}

/// Each mutant must be detected within a number of seeds, from one on that detects it today: a simulation that cannot fail proves nothing.
macro_rules! detected_within {
    ($($name:ident: $mutant:ident from $first:literal within $seeds:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            let violation = first_violation(Mutant::$mutant, $first, $seeds);
            assert!(violation.is_some(), "not detected within {} seeds from {}", $seeds, $first);
        }
    )*};
}

/// The kind of most of the jobs of a small world.
#[derive(Clone, Copy)]
enum Work {
    Firmware,
    Settings,
}

/// Runs worlds with every kind of job and a mutant until one breaks the rule with these words.
fn first_violation_of(mutant: Mutant, work: Work, first: u64, worlds: u64, words: &str) -> Option<u64> {
    let (installations, settings) = match work {
        Work::Firmware => (5, 0),
        Work::Settings => (0, 5),
    };
    let folder = tempfile::tempdir().unwrap();
    (first..).filter(|seed| has_all(*seed)).take(usize::try_from(worlds).unwrap()).find(|seed| {
        // Small worlds with much trouble: most of the jobs are those that the rules are about.
        let plan = WorldPlan {
            jobs: 1,
            conditions: 1,
            installations,
            settings,
            webhook: false,
            ..WorldPlan::of(*seed, FaultLevel::Many)
        };
        let report = mutant::with(mutant, || run(&plan.with_servers(2), folder.path()).unwrap());
        report.violations.iter().any(|rule| rule.contains(words))
    })
}

/// Each mutant must break its rule within a number of worlds with this work.
macro_rules! breaks_its_rule_within {
    ($work:ident: $($name:ident: $mutant:ident from $first:literal within $worlds:literal by $words:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            let seed = first_violation_of(Mutant::$mutant, Work::$work, $first, $worlds, $words);
            assert!(seed.is_some(), "not detected within {} worlds from seed {}", $worlds, $first);
        }
    )*};
}

breaks_its_rule_within! {
    Settings:
    a_setting_that_was_not_read_is_detected: TrustsTask from 0 within 30 by "but its setting",
    power_that_is_not_restored_after_settings_is_detected: KeepsPower from 0 within 30 by "before the bios job",
}

breaks_its_rule_within! {
    Firmware:
    an_installation_without_the_lock_of_its_server_is_detected: SharesServer from 0 within 20 by "at once",
    an_image_that_is_sent_again_without_a_look_is_detected: SendsAgain from 29 within 30 by "a second image",
    an_update_that_is_interrupted_is_detected: IgnoresFlash from 0 within 20 by "which writes firmware",
    a_version_that_was_not_read_is_detected: TrustsTask from 0 within 40 by "succeeded, but its",
    power_that_is_not_restored_is_detected: KeepsPower from 0 within 20 by "before the firmware job",
    files_that_are_held_after_the_end_are_detected: KeepsFiles from 0 within 10 by "still held",
    grants_that_outlive_their_job_are_detected: KeepsGrants from 0 within 5 by "has no open grants",
    a_rescue_that_ignores_its_recipe_is_detected: IgnoresAfter from 0 within 30 by "leaves its host off",
}

detected_within! {
    a_worker_that_ignores_its_epoch_is_detected: IgnoresEpoch from 5 within 60,
    a_restart_after_a_crash_is_detected: RestartsAfterCrash from 6 within 60,
    a_lock_that_is_never_released_is_detected: KeepsLock from 0 within 3,
    a_lost_report_is_detected: LosesReport from 0 within 5,
    an_event_without_a_delivery_retry_is_detected: ForgetsRetry from 4 within 30,
    a_run_without_a_due_time_is_detected: NeverDue from 0 within 3,
    a_power_cycle_that_leaves_its_host_off_is_detected: ForgetsPowerOn from 6 within 60,
}
