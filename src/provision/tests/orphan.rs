//! What an owner that died has written down and perhaps never sent, found long after.

use redfish::sim::{Change, Effect, Fault, Happening, ResetType, When};

use super::bench::{Bench, GRACE, LEASE};
use super::*;

/// A regression of the kill matrix: the intent was older than a shutdown may take, and counted as a shutdown in vain.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_may_never_have_left_is_asked_for_again_however_long_ago_that_was() {
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

    let run = bench.carry_out(&bench.sound("two"), id).await;
    let story = bench.events(id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{story:#?}");
    let journal = bench.twin.journal();
    let reset = |kind| journal.iter().any(|entry| entry.what == Happening::Change(Change::Reset(kind)));
    assert!(reset(ResetType::GracefulShutdown) && !reset(ResetType::ForceOff), "{story:#?}");
}
