//! The times at which reads are recorded. Tests that depend on time use virtual time.

use super::*;

const FIRST: &str = "2027-01-15T08:00:00Z";

fn at(text: &str) -> Option<Timestamp> {
    Some(text.parse().unwrap())
}

/// An empty library, a task grant, and a clock that the test sets.
async fn quiet_world() -> (Arc<FakeGrantStore>, MediaGrants, Arc<Mutex<Timestamp>>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = FakeGrantStore::new();
    store.add(task_grant(TASK_TOKEN, &record_inputs(&task_input()).unwrap()));
    let now = Arc::new(Mutex::new(FIRST.parse::<Timestamp>().unwrap()));
    let clock = now.clone();
    let grants =
        MediaGrants::new(store.clone(), library(dir.path()), Arc::new(move || *clock.lock().unwrap()));
    (store, grants, now, dir)
}

#[tokio::test(start_paused = true)]
async fn the_first_read_is_recorded_immediately_and_later_reads_together() {
    let (store, grants, now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let started = tokio::time::Instant::now();
    grant.observer.read(0, 100);
    let recorded = store.recorded(1).await;
    assert_eq!(started.elapsed().as_secs(), 0);
    let first =
        ReadSummary { first_read_at: at(FIRST), last_read_at: at(FIRST), bytes: 100, boot_read: false };
    assert_eq!(recorded, [(hash(TASK_TOKEN), first)]);

    for second in 1..=5 {
        *now.lock().unwrap() = format!("2027-01-15T08:00:0{second}Z").parse().unwrap();
        grant.observer.read(100, 10);
    }
    assert_eq!(grants.reads_of(&hash(TASK_TOKEN)).await.unwrap().bytes, 150);
    let recorded = store.recorded(2).await;
    assert_eq!(started.elapsed(), FLUSH_EVERY);
    assert_eq!(recorded.len(), 2);
    assert_eq!(recorded[1].1.bytes, 50);
    let reads = grants.reads_of(&hash(TASK_TOKEN)).await.unwrap();
    let last = at("2027-01-15T08:00:05Z");
    assert_eq!(
        reads,
        ReadSummary { first_read_at: at(FIRST), last_read_at: last, bytes: 150, boot_read: false }
    );
}

#[tokio::test(start_paused = true)]
async fn reads_that_cannot_be_recorded_stay_pending_and_are_recorded_later() {
    let (store, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    store.set_down(true);
    grant.observer.read(0, 7);
    grants.flush().await;
    store.set_down(false);
    assert_eq!(grants.reads_of(&hash(TASK_TOKEN)).await.unwrap().bytes, 7);
    let recorded = store.recorded(1).await;
    assert_eq!(recorded[0].1.bytes, 7);
}

#[tokio::test(start_paused = true)]
async fn the_reads_of_an_ended_grant_are_recorded_immediately() {
    let (store, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let started = tokio::time::Instant::now();
    grant.observer.read(0, 1);
    store.recorded(1).await;
    grant.observer.read(1, 2);
    store.end(TASK_TOKEN);
    grants.end(run_id());
    assert_eq!(store.recorded(2).await[1].1.bytes, 2);
    assert!(started.elapsed() < FLUSH_EVERY);
}

#[tokio::test(start_paused = true)]
async fn a_flush_records_all_pending_reads() {
    let (store, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    grant.observer.read(0, 1);
    store.recorded(1).await;
    grant.observer.read(1, 2);
    grants.flush().await;
    assert_eq!(store.recorded(2).await.len(), 2);
    assert_eq!(grants.reads_of(&hash(TASK_TOKEN)).await.unwrap().bytes, 3);
}

#[tokio::test]
async fn a_read_of_the_el_torito_image_is_distinguished_from_other_reads() {
    let world = World::new().await;
    let reads = || async { world.grants.reads_of(&hash(BOOT_TOKEN)).await.unwrap() };
    assert_eq!(reads().await, ReadSummary::default());
    world.get(BOOT_TOKEN, Artifact::Boot, Some("bytes=32768-34815")).await.bytes().await.unwrap();
    let mounted = reads().await;
    assert!(mounted.first_read_at.is_some() && !mounted.boot_read);
    let image = iso9660::Image::open(world.boot.clone()).unwrap();
    let boot = image.boot_entries().unwrap()[0].extent;
    let range = format!("bytes={}-{}", boot.offset, boot.offset + 511);
    world.get(BOOT_TOKEN, Artifact::Boot, Some(&range)).await.bytes().await.unwrap();
    assert!(reads().await.boot_read);
    let recorded = world.store.recorded(2).await;
    assert!(recorded.iter().any(|(token_hash, reads)| *token_hash == hash(BOOT_TOKEN) && reads.boot_read));
    assert!(!world.grants.reads_of(&hash(TASK_TOKEN)).await.unwrap().boot_read);
}

#[tokio::test]
async fn a_head_request_is_no_read() {
    let world = World::new().await;
    world.client.head(world.url(TASK_TOKEN, Artifact::Task)).send().await.unwrap();
    assert_eq!(world.grants.reads_of(&hash(TASK_TOKEN)).await.unwrap(), ReadSummary::default());
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
