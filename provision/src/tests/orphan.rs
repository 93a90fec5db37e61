//! Intents of a worker that died, perhaps before it sent the request, found long after.

use lab_bmc::{Fault, FaultEffect, FaultTrigger, ResetType, StateChange};

use super::bench::{Bench, GRACE, LEASE};
use super::*;

/// The number of requests that fail: the login, and the first read with its repetitions.
const FAILURES: u32 = 3;

/// Creates a job whose first worker died after the intent of a graceful shutdown, longer ago than the shutdown grace.
async fn worker_died_during_shutdown() -> (Bench, RunId) {
    let bench = Bench::new(|_| {}).await;
    bench.sim_bmc.inject(Fault::once(FaultTrigger::ResetTo(ResetType::GracefulShutdown), FaultEffect::Hang));
    let first = bench.plain_engine("one");
    let id = bench.order(&first).await;
    let dead = async {
        while !bench.sim_bmc.faults().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        run = bench.run_to_end(&first, id) => panic!("ended without a shutdown: {run:?}"),
        () = dead => {}
    }
    bench.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    (bench, id)
}

/// Runs the job to its end and checks that the host was shut down gracefully and not forced off.
async fn ends_with_a_shutdown(bench: &Bench, id: RunId) {
    let run = bench.run_to_end(&bench.plain_engine("two"), id).await;
    let story = bench.events(id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{story:#?}");
    let changes = bench.changes();
    let reset = |kind| changes.contains(&StateChange::Reset(kind));
    assert!(reset(ResetType::GracefulShutdown) && !reset(ResetType::ForceOff), "{story:#?}");
}

/// Regression from the kill matrix: the old intent counted as a shutdown without effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_may_never_have_been_sent_is_sent_again_however_old_the_intent_is() {
    let (bench, id) = worker_died_during_shutdown().await;
    ends_with_a_shutdown(&bench, id).await;
}

/// Regression: the second worker's first attempt failed, and its second attempt no longer knew that the first worker died.
#[tokio::test(flavor = "multi_thread")]
async fn the_shutdown_is_sent_again_even_if_the_bmc_does_not_respond_at_first() {
    let (bench, id) = worker_died_during_shutdown().await;
    for request in 0..FAILURES {
        bench.sim_bmc.inject(Fault::once(FaultTrigger::Anything, FaultEffect::Drop).after(request));
    }
    ends_with_a_shutdown(&bench, id).await;
    assert!(bench.sim_bmc.faults().is_empty(), "{:?}", bench.sim_bmc.faults());
}

/// Regression: a host in its self-test was forced off at the first refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_the_bmc_refuses_for_now_is_requested_again_until_the_grace_is_over() {
    let conflict = (409, "Base.1.8.ActionParameterValueConflict");
    let busy = (503, "Base.1.8.ServiceTemporarilyUnavailable");
    for ((status, id), refusals, is_forced) in
        [(conflict, Some(2), false), (conflict, None, true), (busy, Some(2), false), (busy, None, true)]
    {
        let bench = Bench::new(|_| {}).await;
        let refusal = FaultEffect::Status {
            status,
            message_id: id.to_owned(),
            message: "The host is in its self-test.".to_owned(),
        };
        let fault = Fault::always(FaultTrigger::ResetTo(ResetType::GracefulShutdown), refusal);
        bench.sim_bmc.inject(refusals.map_or(fault.clone(), |times| fault.times(times)));
        let engine = bench.plain_engine("one");
        let id = bench.order(&engine).await;
        let run = bench.run_to_end(&engine, id).await;
        let story = bench.events(id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{story:#?}");
        let changes = bench.changes();
        let reset = |kind| changes.contains(&StateChange::Reset(kind));
        let seen = (reset(ResetType::GracefulShutdown), reset(ResetType::ForceOff));
        assert_eq!(seen, (!is_forced, is_forced), "{id} {refusals:?}: {story:#?}");
    }
}
