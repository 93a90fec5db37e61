//! Updates that a run leaves to the BMC, and what later runs do: none of them cuts an update that still runs.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, FlashFault, Power};
use serde_json::{Value, json};

use firmware::Component;
use model::{Outcome, Run, Server, UnfinishedRuns};
use redfish::ManagerReset;
use upkeep::order::{HardCycle, ResetBmc};
use upkeep::{ConditionKind, UpkeepAction};

use crate::firmware::{order, vendor};
use crate::kit::{Bench, SERIAL};

/// A bench whose BMC carries out an update that stays at 99 %, and that a run has left to it.
async fn left_running() -> Bench {
    let config = vendor("generic");
    let (files, action) = order(&config, &[Component::Bios]);
    let bench = Bench::with_files(config, files).await;
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::Hang)));
    let (run, stored) = ended(&bench, action).await;
    assert_eq!(class(&run), "update_stuck", "{stored}");
    bench
}

async fn ended(bench: &Bench, action: UpkeepAction) -> (Run, String) {
    let id = bench.order(action).await;
    let run = bench.run_to_end(&bench.worker("w1"), id).await;
    (run, bench.stored(id).await)
}

fn class(run: &Run) -> &str {
    run.failure.as_ref().map_or("", |failure| failure.class.as_str())
}

/// The update in the record of the server.
async fn recorded(bench: &Bench) -> Value {
    let server = bench.store.server(&SERIAL.parse().unwrap()).await.unwrap().unwrap();
    server.observed.map_or(Value::Null, |observed| observed["update"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cycle_waits_for_an_update_that_was_left_running_and_follows_its_end() {
    let bench = left_running().await;
    assert_eq!(recorded(&bench).await["what"], "bios 99.1");
    let before = bench.clock_now();
    let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
    assert_eq!(class(&run), "update_running", "{stored}");
    let summary = run.failure.unwrap().summary;
    for said in ["bios 99.1", "99 %", "60 min", "nothing was changed"] {
        assert!(summary.contains(said), "{said} is not in {summary}");
    }
    assert!(bench.clock_now().since(before) >= Duration::from_secs(3600), "it was waited for");
    let end = bench.sim_bmc.snapshot();
    assert_eq!((end.power, end.power_ons, bench.sim_bmc.is_flashing()), (Power::On, 0, true), "{stored}");

    bench.sim_bmc.continue_update();
    let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{stored}");
    assert!(stored.contains("redfish.update-ended"), "{stored}");
    assert_eq!((bench.sim_bmc.power_ons(), recorded(&bench).await), (1, Value::Null), "{stored}");
}

/// Regression: the release of a server of restored data ended the run without a trace of what the BMC does.
#[tokio::test(flavor = "multi_thread")]
async fn an_installation_that_a_release_ends_leaves_its_update_to_the_next_run() {
    let config = vendor("generic");
    let (files, action) = order(&config, &[Component::Bios]);
    let bench = Bench::with_files(config, files).await;
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::Hang)));
    let id = bench.order(action).await;
    bench.run_to_wait(&bench.worker("w1"), id, "flashing").await;
    bench.restore_and_release(UnfinishedRuns::End).await;
    assert!(bench.has_ended(id).await, "{}", bench.stored(id).await);
    assert_eq!(recorded(&bench).await["what"], "bios 99.1");
    let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
    assert_eq!(class(&run), "update_running", "{stored}");
    assert_eq!((bench.sim_bmc.power_ons(), bench.sim_bmc.is_flashing()), (0, true), "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_forced_restart_of_the_bmc_goes_over_an_update_that_hangs() {
    let reset = |how| UpkeepAction::Reset(ResetBmc { how });
    let bench = left_running().await;
    let (run, stored) = ended(&bench, reset(ManagerReset::Graceful)).await;
    assert_eq!((class(&run), bench.sim_bmc.manager_resets()), ("update_running", 0), "{stored}");
    let (_, stored) = ended(&bench, reset(ManagerReset::Forced)).await;
    assert_eq!(bench.sim_bmc.manager_resets(), 1, "{stored}");
    assert!(stored.contains("redfish.update-overridden") && stored.contains("bios 99.1"), "{stored}");
    assert_eq!(recorded(&bench).await, Value::Null, "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_left_to_a_bmc_that_moved_to_another_address_is_still_waited_for() {
    let bench = left_running().await;
    // Another text of the address at which the BMC is reached.
    bench.change(|server| Server { bmc_address: format!("{}/redfish", server.bmc_address), ..server }).await;
    let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
    assert_eq!(class(&run), "update_running", "{stored}");
    assert_eq!((bench.sim_bmc.power_ons(), bench.sim_bmc.is_flashing()), (0, true), "{stored}");
    assert_eq!(recorded(&bench).await["what"], "bios 99.1", "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_restart_that_the_bmc_refuses_keeps_the_record_of_the_update() {
    let bench = left_running().await;
    let refused = FaultEffect::Status {
        status: 400,
        message_id: "Base.1.18.ActionNotSupported".to_owned(),
        message: "not now".to_owned(),
    };
    let trigger =
        FaultTrigger::Request { method: "POST".to_owned(), path_ends_with: "Manager.Reset".to_owned() };
    bench.sim_bmc.inject(Fault::always(trigger, refused));
    let forced = UpkeepAction::Reset(ResetBmc { how: ManagerReset::Forced });
    let (run, stored) = ended(&bench, forced).await;
    assert_eq!((run.outcome, bench.sim_bmc.manager_resets()), (Some(Outcome::Failed), 0), "{stored}");
    assert!(stored.contains("redfish.update-overridden"), "{stored}");
    assert_eq!(recorded(&bench).await["what"], "bios 99.1", "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_is_silent_over_a_left_update_is_waited_for_and_the_failure_names_the_update() {
    let refused = |status| FaultEffect::Status {
        status,
        message_id: "Base.1.18.ResourceAtUriUnauthorized".to_owned(),
        message: "the BMC flashes".to_owned(),
    };
    for status in [None, Some(401), Some(503)] {
        let bench = left_running().await;
        match status {
            None => bench.sim_bmc.set_reachable(false),
            Some(status) => bench.sim_bmc.inject(Fault::always(FaultTrigger::Anything, refused(status))),
        }
        let before = bench.clock_now();
        let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
        assert_eq!(class(&run), "update_running", "{status:?}: {stored}");
        let failure = run.failure.unwrap();
        for said in ["bios 99.1", "it cannot be read", "60 min", "nothing was changed"] {
            assert!(failure.summary.contains(said), "{said} is not in {}", failure.summary);
        }
        assert!(!failure.next_action.contains("ipmitool"), "{}", failure.next_action);
        assert!(bench.clock_now().since(before) >= Duration::from_secs(3600), "it was waited for");
        assert_eq!(recorded(&bench).await["what"], "bios 99.1", "{stored}");
        // The same BMC after its update.
        bench.sim_bmc.clear_faults();
        bench.sim_bmc.set_reachable(true);
        bench.sim_bmc.continue_update();
        let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{status:?}: {stored}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_is_silent_a_day_after_a_left_update_is_unreachable_and_the_record_stays() {
    let bench = left_running().await;
    bench.sim_bmc.set_reachable(false);
    bench.clock.advance(Duration::from_secs(25 * 3600));
    let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
    assert_eq!(class(&run), "bmc_unreachable", "{stored}");
    assert!(!stored.contains("update_runs"), "{stored}");
    assert_eq!(recorded(&bench).await["what"], "bios 99.1", "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_recorded_although_settle_cannot_connect() {
    let config = vendor("generic");
    let (files, action) = order(&config, &[Component::Bios]);
    let bench = Bench::with_files(config, files).await;
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::Hang)));
    let (worker, id) = (bench.worker("w1"), bench.order(action).await);
    bench.run_to_wait(&worker, id, "flashing").await;
    bench
        .change(|server| Server { bmc_password: "env:NO_SUCH_VARIABLE_OF_SHOAL".to_owned(), ..server })
        .await;
    let run = bench.run_to_end(&worker, id).await;
    let stored = bench.stored(id).await;
    assert_eq!(class(&run), "input", "{stored}");
    assert_eq!(recorded(&bench).await["what"], "bios 99.1", "{stored}");
    assert!(bench.sim_bmc.is_flashing(), "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_vanished_is_read_three_times_before_power_is_changed() {
    let bench = left_running().await;
    // The restart of the BMC by hand ends its task.
    bench.sim_bmc.reset_bmc();
    let before = bench.calls.all().len();
    let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{stored}");
    let calls = bench.calls.all();
    let looks = calls[before..].iter().filter(|call| call.step == "power.identify").count();
    assert_eq!(looks, 3, "{stored}");
    assert_eq!(recorded(&bench).await, Value::Null, "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_image_that_waits_for_a_restart_stops_what_may_cut_it_and_a_power_cycle_puts_it_into_use() {
    let config = vendor("generic");
    let (files, action) = order(&config, &[Component::Bios]);
    let UpkeepAction::Firmware(mut install) = action else { panic!("another action") };
    install.restart_from = Some("2026-11-20T20:00:00Z".parse().unwrap());
    let bench = Bench::with_files(config, files).await;
    let (worker, id) = (bench.worker("w1"), bench.order(UpkeepAction::Firmware(install)).await);
    bench.run_to_wait(&worker, id, "restart_window").await;
    bench.cancel(id).await;
    bench.run_to_end(&worker, id).await;
    let record = recorded(&bench).await;
    assert_eq!((&record["what"], &record["staged"]), (&json!("bios 99.1"), &json!(true)), "{record}");

    let settings = || {
        UpkeepAction::of(ConditionKind::BiosApply, json!({ "attributes": { "BootMode": "Legacy" } })).unwrap()
    };
    let (run, stored) = ended(&bench, settings()).await;
    assert_eq!(class(&run), "update_running", "{stored}");
    let failure = run.failure.unwrap();
    for said in ["bios 99.1", "next start of the host", "nothing was changed"] {
        assert!(failure.summary.contains(said), "{said} is not in {}", failure.summary);
    }
    assert!(failure.next_action.contains("shoal server power-cycle"), "{failure:?}");
    assert_eq!((bench.sim_bmc.bios_writes(), bench.sim_bmc.power_ons()), (0, 0), "{stored}");

    let (run, stored) = ended(&bench, UpkeepAction::Hard(HardCycle::default())).await;
    assert_eq!((run.outcome, bench.sim_bmc.power_ons()), (Some(Outcome::Succeeded), 1), "{stored}");
    let (run, stored) = ended(&bench, settings()).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{stored}");
    assert!(stored.contains("redfish.update-ended"), "{stored}");
    assert_eq!(recorded(&bench).await, Value::Null, "{stored}");
}
