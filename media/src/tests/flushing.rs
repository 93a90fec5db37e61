//! When reads reach the ledger. On virtual time where time matters.

use super::*;

const FIRST: &str = "2027-01-15T08:00:00Z";

fn at(text: &str) -> Option<Timestamp> {
    Some(text.parse().unwrap())
}

/// A library with nothing in it, a task grant, and a clock that the test moves.
async fn quiet_world() -> (Arc<FakeLedger>, Grants, Arc<Mutex<Timestamp>>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let ledger = FakeLedger::new();
    ledger.add(task_grant(TASK_TOKEN, &freeze(&task_input()).unwrap()));
    let now = Arc::new(Mutex::new(FIRST.parse::<Timestamp>().unwrap()));
    let clock = now.clone();
    let grants = Grants::new(ledger.clone(), library(dir.path()), Arc::new(move || *clock.lock().unwrap()));
    (ledger, grants, now, dir)
}

#[tokio::test(start_paused = true)]
async fn the_first_read_is_recorded_at_once_and_later_ones_together() {
    let (ledger, grants, now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let started = tokio::time::Instant::now();
    grant.observer.read(0, 100);
    let recorded = ledger.recorded(1).await;
    assert_eq!(started.elapsed().as_secs(), 0);
    let first =
        ReadSummary { first_read_at: at(FIRST), last_read_at: at(FIRST), bytes: 100, boot_read: false };
    assert_eq!(recorded, [(hash(TASK_TOKEN), first)]);

    for second in 1..=5 {
        *now.lock().unwrap() = format!("2027-01-15T08:00:0{second}Z").parse().unwrap();
        grant.observer.read(100, 10);
    }
    assert_eq!(grants.evidence(&hash(TASK_TOKEN)).await.unwrap().bytes, 150);
    let recorded = ledger.recorded(2).await;
    assert_eq!(started.elapsed(), FLUSH_EVERY);
    assert_eq!(recorded.len(), 2);
    assert_eq!(recorded[1].1.bytes, 50);
    let evidence = grants.evidence(&hash(TASK_TOKEN)).await.unwrap();
    let last = at("2027-01-15T08:00:05Z");
    assert_eq!(
        evidence,
        ReadSummary { first_read_at: at(FIRST), last_read_at: last, bytes: 150, boot_read: false }
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_is_kept_and_tried_again() {
    let (ledger, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    ledger.set_down(true);
    grant.observer.read(0, 7);
    grants.flush().await;
    ledger.set_down(false);
    assert_eq!(grants.evidence(&hash(TASK_TOKEN)).await.unwrap().bytes, 7);
    let recorded = ledger.recorded(1).await;
    assert_eq!(recorded[0].1.bytes, 7);
}

#[tokio::test(start_paused = true)]
async fn an_ended_grant_is_recorded_without_waiting() {
    let (ledger, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let started = tokio::time::Instant::now();
    grant.observer.read(0, 1);
    ledger.recorded(1).await;
    grant.observer.read(1, 2);
    ledger.end(TASK_TOKEN);
    grants.end(run_id());
    assert_eq!(ledger.recorded(2).await[1].1.bytes, 2);
    assert!(started.elapsed() < FLUSH_EVERY);
}

#[tokio::test(start_paused = true)]
async fn a_stop_records_everything() {
    let (ledger, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    grant.observer.read(0, 1);
    ledger.recorded(1).await;
    grant.observer.read(1, 2);
    grants.flush().await;
    assert_eq!(ledger.recorded(2).await.len(), 2);
    assert_eq!(grants.evidence(&hash(TASK_TOKEN)).await.unwrap().bytes, 3);
}

#[tokio::test]
async fn a_read_of_the_boot_image_is_told_from_other_reads() {
    let world = World::new().await;
    let evidence = || async { world.grants.evidence(&hash(BOOT_TOKEN)).await.unwrap() };
    assert_eq!(evidence().await, ReadSummary::default());
    world.get(BOOT_TOKEN, Artifact::Boot, Some("bytes=32768-34815")).await.bytes().await.unwrap();
    let mounted = evidence().await;
    assert!(mounted.first_read_at.is_some() && !mounted.boot_read);
    let image = iso9660::Image::open(world.boot.clone()).unwrap();
    let boot = image.boot_entries().unwrap()[0].extent;
    let range = format!("bytes={}-{}", boot.offset, boot.offset + 511);
    world.get(BOOT_TOKEN, Artifact::Boot, Some(&range)).await.bytes().await.unwrap();
    assert!(evidence().await.boot_read);
    let recorded = world.ledger.recorded(2).await;
    assert!(recorded.iter().any(|(token_hash, reads)| *token_hash == hash(BOOT_TOKEN) && reads.boot_read));
    assert!(!world.grants.evidence(&hash(TASK_TOKEN)).await.unwrap().boot_read);
}

#[tokio::test]
async fn a_head_request_is_no_read() {
    let world = World::new().await;
    world.client.head(world.url(TASK_TOKEN, Artifact::Task)).send().await.unwrap();
    assert_eq!(world.grants.evidence(&hash(TASK_TOKEN)).await.unwrap(), ReadSummary::default());
}

#[test]
fn merging_keeps_the_earliest_and_the_latest() {
    let (early, late) = (at(FIRST), at("2027-01-15T09:00:00Z"));
    let a = ReadSummary { first_read_at: early, last_read_at: early, bytes: 1, boot_read: true };
    let b = ReadSummary { first_read_at: late, last_read_at: late, bytes: 2, boot_read: false };
    let both = ReadSummary { first_read_at: early, last_read_at: late, bytes: 3, boot_read: true };
    assert_eq!((a.merge(b), b.merge(a)), (both, both));
    assert_eq!(a.merge(ReadSummary::default()), a);
}
