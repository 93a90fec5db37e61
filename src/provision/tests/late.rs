//! What a BMC shows only after a while, and an operator who does not wait for it.

use super::bench::Bench;
use super::*;
use crate::engine::Verb;

/// For so long the BMC shows a slot as empty that has taken an image; real time, longer than a read back takes.
const ATTACH: Duration = Duration::from_secs(3);

/// World 27396: the slot still looked empty when cleanup came to it, and the image stayed.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_shows_only_after_the_cancel_is_ejected_all_the_same() {
    let bench = Bench::new(|twin| twin.media.attach_time = ATTACH).await;
    let engine = bench.sound("one");
    let id = bench.order(&engine).await;
    let before = tokio::time::Instant::now();
    engine.settle_all().await.unwrap();
    assert_eq!(bench.snapshot(id).await.run.wait.unwrap().reason, "mount", "{:#?}", bench.events(id).await);
    engine.verb(id, Verb::Cancel, "somebody", "").await.unwrap();
    engine.settle_all().await.unwrap();
    let run = bench.snapshot(id).await.run;
    let wait = run.wait.unwrap();
    assert_eq!((wait.step.as_str(), wait.reason.as_str()), ("cleanup.eject", "mount"));
    // The twin tells when it begins to show it.
    bench.twin.wait_for(|_| before.elapsed() >= ATTACH).await;
    let run = bench.carry_out(&engine, id).await;
    assert_eq!(run.outcome, Some(Outcome::Cancelled), "{:#?}", bench.events(id).await);
    assert!(bench.twin.snapshot().slots.iter().all(|slot| slot.image.is_none()));
}
