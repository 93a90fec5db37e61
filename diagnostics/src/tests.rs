//! Diagnostics whose worker dies during the media check.

use super::bench::Bench;
use super::*;
use crate::{diagnostics_of, diagnostics_order};

/// Longer than the time limit of diagnostics.
const TOO_LONG: Duration = Duration::from_secs(660);

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_diagnostics_eject_the_test_image_and_report_a_failure() {
    let bench = Bench::new(|_| {}).await;
    let images = || bench.sim_bmc.snapshot().slots.iter().filter(|slot| slot.image.is_some()).count();
    let first = bench.plain_engine("one");
    let id = RunId::new();
    let run = diagnostics_order(&"XF-1".parse().unwrap(), false, id, "operator", bench.clock.now());
    assert!(matches!(first.create(Creation { run }).await.unwrap(), Created::New(_)));
    let inserted = async {
        while images() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        run = bench.run_to_end(&first, id) => panic!("ended before its worker died: {run:?}"),
        () = inserted => {}
    }
    assert!(diagnostics_of(&bench.snapshot(id).await).is_none(), "it has not ended");

    bench.clock.advance(TOO_LONG);
    let run = bench.run_to_end(&bench.plain_engine("two"), id).await;
    assert_eq!(run.outcome, Some(Outcome::Failed), "{:#?}", bench.events(id).await);
    assert_eq!(images(), 0);
    let found = diagnostics_of(&bench.snapshot(id).await).unwrap();
    let last = found.checks.last().unwrap();
    assert!(last.name == "connect" && !last.next_action.is_empty(), "{last:?}");
    let grants = bench.store.grants(id).await.unwrap();
    assert!(grants.len() == 1 && grants[0].ended_at.is_some(), "the grant of the image has ended");
}
