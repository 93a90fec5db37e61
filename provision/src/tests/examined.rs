//! An examination whose owner dies in the middle of it.

use super::bench::Bench;
use super::*;
use crate::{examination, findings};

/// Longer than an examination may take.
const TOO_LONG: Duration = Duration::from_secs(660);

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_that_broke_off_leaves_its_image_in_no_slot_and_says_that_it_failed() {
    let bench = Bench::new(|_| {}).await;
    let images = || bench.twin.snapshot().slots.iter().filter(|slot| slot.image.is_some()).count();
    let first = bench.sound("one");
    let id = RunId::new();
    let run = examination(&"XF-1".parse().unwrap(), false, id, "somebody", bench.clock.now());
    assert!(matches!(first.create(Creation { run }).await.unwrap(), Created::New(_)));
    let inserted = async {
        while images() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        run = bench.carry_out(&first, id) => panic!("ended before its owner died: {run:?}"),
        () = inserted => {}
    }
    assert!(findings(&bench.snapshot(id).await).is_none(), "it has not ended");

    bench.clock.advance(TOO_LONG);
    let run = bench.carry_out(&bench.sound("two"), id).await;
    assert_eq!(run.outcome, Some(Outcome::Failed), "{:#?}", bench.events(id).await);
    assert_eq!(images(), 0);
    let found = findings(&bench.snapshot(id).await).unwrap();
    let last = found.checks.last().unwrap();
    assert!(last.name == "connect" && !last.next_action.is_empty(), "{last:?}");
    let grants = bench.store.grants(id).await.unwrap();
    assert!(grants.len() == 1 && grants[0].ended_at.is_some(), "the image can be read by nobody any more");
}
