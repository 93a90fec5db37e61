//! BMCs that are away in the middle of a change: how long they are waited for.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, FlashFault, Graceful};
use serde_json::json;

use firmware::Component;
use model::{Outcome, Run, Server};
use redfish::ManagerReset;
use upkeep::UpkeepAction;
use upkeep::order::{ResetBmc, SoftCycle};

use crate::firmware::{order, vendor};
use crate::kit::Bench;

/// The run of an action, and how long it took.
async fn timed(bench: &Bench, action: UpkeepAction) -> (Run, Duration, String) {
    let (id, began) = (bench.order(action).await, bench.clock_now());
    let run = bench.run_to_end(&bench.worker("w1"), id).await;
    (run, bench.clock_now().since(began), bench.stored(id).await)
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_a_restarted_bmc_refuses_is_waited_for_as_long_as_a_silent_bmc() {
    let bench = Bench::with(vendor("generic")).await;
    let refused = FaultEffect::Status {
        status: 401,
        message_id: "Base.1.18.ResourceAtUriUnauthorized".to_owned(),
        message: "the BMC starts".to_owned(),
    };
    // The identity check has logged in before.
    bench.sim_bmc.inject(Fault::always(FaultTrigger::Login, refused).after(1));
    let (run, took, stored) =
        timed(&bench, UpkeepAction::Reset(ResetBmc { how: ManagerReset::Graceful })).await;
    let failure = run.failure.unwrap();
    assert_eq!(failure.class.as_str(), "input", "{stored}");
    assert!(took >= minutes(20), "{took:?}: {stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_may_be_silent_for_as_long_as_an_update_may_take() {
    for (quirk, expected) in [(None, 60), (Some(7200), 120), (Some(2700), 45), (Some(600), 30)] {
        let config = vendor("generic");
        let (files, action) = order(&config, &[Component::Bmc]);
        let bench = Bench::with_files(config, files).await;
        if let Some(seconds) = quirk {
            let quirks = json!({ "update_timeout_s": seconds }).as_object().cloned();
            bench.change(|server| Server { quirks, ..server }).await;
        }
        bench.sim_bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::StayAway)));
        let (run, took, stored) = timed(&bench, action).await;
        let failure = run.failure.unwrap();
        assert_eq!(failure.class.as_str(), "bmc_not_back", "{quirk:?}: {stored}");
        let said = format!("not back after {expected} minutes");
        assert!(failure.summary.contains(&said), "{}", failure.summary);
        assert!(took >= minutes(expected), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_restarts_by_itself_and_rejects_a_login_fails_no_run_that_it_has_let_in_before() {
    let refused = || FaultEffect::Status {
        status: 401,
        message_id: "Base.1.18.ResourceAtUriUnauthorized".to_owned(),
        message: "the BMC starts".to_owned(),
    };
    let cycle = || UpkeepAction::Soft(SoftCycle { force: true, ..SoftCycle::default() });
    let mut config = vendor("generic");
    config.power.graceful = Graceful::IgnoredByHost;
    let bench = Bench::with(config).await;
    let (worker, id) = (bench.worker("w1"), bench.order(cycle()).await);
    bench.run_to_wait(&worker, id, "graceful_shutdown").await;
    // The sessions are gone, and the accounts are not loaded yet.
    bench.sim_bmc.reset_bmc();
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Login, refused()));
    bench.run_to_wait(&worker, id, "bmc_restarts").await;
    let stored = bench.stored(id).await;
    assert!(stored.contains("user name or password"), "{stored}");
    let run = bench.run_to_end(&worker, id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{}", bench.stored(id).await);
    // A BMC that has let no run in may have the wrong password on record: that is for the operator.
    let bench = Bench::with(vendor("generic")).await;
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Login, refused()));
    let (run, took, stored) = timed(&bench, cycle()).await;
    assert_eq!(run.failure.unwrap().class.as_str(), "input", "{stored}");
    assert_eq!(took, Duration::ZERO, "{stored}");
}
