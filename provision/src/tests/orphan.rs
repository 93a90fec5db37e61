//! What an owner that died has written down and perhaps never sent, found long after.

use lab_bmc::{Change, Effect, Fault, ResetType, When};

use super::bench::{Bench, GRACE, LEASE};
use super::*;

/// The login, and the first read as often as the client repeats one.
const FAILURES: u32 = 3;

/// A job whose first owner died over the shutdown it had written down, longer ago than a host is given for one.
async fn orphaned_over_a_shutdown() -> (Bench, RunId) {
    let bench = Bench::new(|_| {}).await;
    bench.twin.inject(Fault::once(When::ResetTo(ResetType::GracefulShutdown), Effect::Hang));
    let first = bench.sound("one");
    let id = bench.order(&first).await;
    let dead = async {
        while !bench.twin.faults().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        run = bench.carry_out(&first, id) => panic!("ended without a shutdown: {run:?}"),
        () = dead => {}
    }
    bench.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    (bench, id)
}

/// The job ends with a host that was asked, not one that was cut off.
async fn ends_with_a_shutdown(bench: &Bench, id: RunId) {
    let run = bench.carry_out(&bench.sound("two"), id).await;
    let story = bench.events(id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{story:#?}");
    let changes = bench.changes();
    let reset = |kind| changes.contains(&Change::Reset(kind));
    assert!(reset(ResetType::GracefulShutdown) && !reset(ResetType::ForceOff), "{story:#?}");
}

/// A regression of the kill matrix: the intent was older than a shutdown may take, and counted as a shutdown in vain.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_may_never_have_left_is_asked_for_again_however_long_ago_that_was() {
    let (bench, id) = orphaned_over_a_shutdown().await;
    ends_with_a_shutdown(&bench, id).await;
}

/// Another one: the successor's first look failed, and at its second nobody knew any more that the owner had died.
#[tokio::test(flavor = "multi_thread")]
async fn nor_is_it_forgotten_over_a_bmc_that_does_not_answer_at_first() {
    let (bench, id) = orphaned_over_a_shutdown().await;
    for request in 0..FAILURES {
        bench.twin.inject(Fault::once(When::Anything, Effect::Drop).after(request));
    }
    ends_with_a_shutdown(&bench, id).await;
    assert!(bench.twin.faults().is_empty(), "{:?}", bench.twin.faults());
}
