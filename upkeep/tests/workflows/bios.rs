//! Settings of the BIOS on BMCs of several vendors, by workers that die.

use lab_bmc::{Fault, FaultEffect, FaultTrigger, Power, SimBmcConfig};
use serde_json::{Value, json};

use bmc::test_support::PASSWORD;
use model::{Outcome, Run, Time};
use upkeep::{ConditionKind, UpkeepAction};

use crate::kit::{Bench, SERIAL};

/// A BMC of a vendor whose delays are short.
fn vendor(name: &str) -> SimBmcConfig {
    SimBmcConfig::vendor(name, SERIAL, "root", PASSWORD).unwrap().in_time(0.0)
}

fn wanted(parameters: Value) -> UpkeepAction {
    UpkeepAction::of(ConditionKind::BiosApply, parameters).unwrap()
}

async fn applied(bench: &Bench, parameters: Value) -> (Run, String) {
    let id = bench.order(wanted(parameters)).await;
    let run = bench.run_to_end(&bench.worker("w1"), id).await;
    (run, bench.stored(id).await)
}

/// Vendors that differ in the settings object, the registry, the response or the ETag, and a value of each.
const VENDORS: [(&str, &str, &str); 6] = [
    ("generic", "BootMode", "Legacy"),
    ("dell-idrac9-6", "LogicalProc", "Disabled"),
    ("hpe-ilo6", "WorkloadProfile", "Custom"),
    ("lenovo-xcc", "Processors_HyperThreading", "Disable"),
    ("smc-x12", "Hyper-Threading[ALL]#006D", "Disable"),
    ("ami-megarac", "SMT", "SMTDisable"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_each_vendor_is_written_once_and_in_force_after_one_restart() {
    for (name, attribute, value) in VENDORS {
        let bench = Bench::with(vendor(name)).await;
        let parameters = json!({ "attributes": { attribute: value } });
        let (run, stored) = applied(&bench, parameters.clone()).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{name}: {stored}");
        assert_eq!(bench.sim_bmc.bios_attributes()[attribute], value, "{name}: {stored}");
        let end = bench.sim_bmc.snapshot();
        let ended = (end.bios_writes, end.power_ons, end.power, end.open_sessions);
        assert_eq!(ended, (1, 1, Power::On, 0), "{name}: {stored}");
        let (again, stored) = applied(&bench, parameters).await;
        assert_eq!(again.outcome, Some(Outcome::Succeeded), "{name}: {stored}");
        let end = bench.sim_bmc.snapshot();
        assert_eq!((end.bios_writes, end.power_ons), (1, 1), "{name}: in force already\n{stored}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_setting_sends_nothing_and_a_kept_value_is_named() {
    let bench = Bench::with(vendor("generic")).await;
    let bad = json!({ "attributes": { "BootMode": "Legacy", "Trubo": true, "SetupLock": "hunter2" } });
    let (run, stored) = applied(&bench, bad).await;
    let failure = run.failure.unwrap();
    assert!(failure.summary.contains("the nearest name is Turbo"), "{failure:?}");
    assert_eq!(
        (failure.class.as_str(), bench.sim_bmc.mutations().len()),
        ("settings_refused", 0),
        "{stored}"
    );

    let mut keeps = vendor("generic");
    keeps.bios.keeps = vec!["BootMode".to_owned()];
    let bench = Bench::with(keeps).await;
    let (run, stored) = applied(&bench, json!({ "attributes": { "BootMode": "Legacy" } })).await;
    let failure = run.failure.unwrap();
    assert!(failure.summary.contains("BootMode is Uefi, not Legacy"), "{failure:?}");
    assert_eq!((failure.class.as_str(), bench.sim_bmc.bios_writes()), ("settings_unchanged", 1), "{stored}");
}

/// Stops the first worker for good as soon as the BMC has received request number `last`, and lets another one end the run.
/// Returns the writes that the BMC accepted; `None` when the run needs fewer requests.
async fn died_after(last: u64, config: SimBmcConfig, parameters: &Value) -> Option<u64> {
    let bench = Bench::with(config).await;
    let id = bench.order(wanted(parameters.clone())).await;
    let run = bench.run_with_a_death(last, id).await?;
    let stored = bench.stored(id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "died after request {last}: {stored}");
    let end = bench.sim_bmc.snapshot();
    assert_eq!((end.power, end.power_ons), (Power::On, 1), "died after request {last}: {stored}");
    Some(end.bios_writes)
}

#[tokio::test]
async fn a_worker_that_dies_at_any_request_leaves_settings_that_are_written_once() {
    let parameters = json!({ "attributes": { "BootMode": "Legacy" }, "boot_order": ["Boot0003"] });
    for last in 1.. {
        let Some(writes) = Box::pin(died_after(last, vendor("generic"), &parameters)).await else {
            assert!(last > 10, "the run needs more than {last} requests");
            break;
        };
        assert_eq!(writes, 2, "died after request {last}: the attributes once, the boot order once");
    }
}

/// The mutant: a BMC that hides what waits for a restart. The successor cannot find a write without a response and repeats it,
/// which the count of the BMC shows.
#[tokio::test]
async fn a_bmc_that_hides_what_waits_is_written_twice_and_caught() {
    let parameters = json!({ "attributes": { "Hyper-Threading[ALL]#006D": "Disable" } });
    let mut caught = false;
    for last in 1.. {
        let Some(writes) = Box::pin(died_after(last, vendor("smc-x12"), &parameters)).await else { break };
        caught |= writes > 1;
    }
    assert!(caught, "no death led to a second write");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_switched_on_while_the_run_works_is_restarted_in_its_window_only_and_stays_on() {
    for starts_during in [false, true] {
        let bench = Bench::with(vendor("generic")).await;
        bench.sim_bmc.switch_host_off();
        let patch =
            FaultTrigger::Request { method: "PATCH".to_owned(), path_ends_with: "/Settings".to_owned() };
        bench.sim_bmc.inject(Fault::always(patch, FaultEffect::RateLimit { retry_after_seconds: None }));
        let from: Time = "2026-11-20T20:00:00Z".parse().unwrap();
        let order = json!({ "attributes": { "BootMode": "Legacy" }, "restart_from": from });
        let (worker, id) = (bench.worker("w1"), bench.order(wanted(order)).await);
        bench.run_to_wait(&worker, id, "bmc_busy").await;
        bench.sim_bmc.clear_faults();
        let stored = bench.stored(id).await;
        assert_eq!((bench.sim_bmc.bios_writes(), bench.sim_bmc.power_ons()), (0, 0), "{stored}");
        if starts_during {
            // An operator starts the server meanwhile.
            bench.sim_bmc.switch_host_on();
            bench.run_to_wait(&worker, id, "restart_window").await;
        }
        let run = bench.run_to_end(&worker, id).await;
        let stored = bench.stored(id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{stored}");
        assert_eq!(
            bench.clock_now() >= from,
            starts_during,
            "a host that is off waits for no window: {stored}"
        );
        let power = if starts_during { Power::On } else { Power::Off };
        assert_eq!(bench.sim_bmc.snapshot().power, power, "{stored}");
    }
}
