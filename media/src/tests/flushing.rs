//! The times at which reads are recorded. Tests that depend on time use virtual time.

use super::*;

const FIRST: &str = "2027-01-15T08:00:00Z";

fn at(text: &str) -> Option<Time> {
    Some(time(text))
}

/// An empty library, a task grant, and a clock that the test moves.
async fn quiet_world() -> (Arc<FakeGrantStore>, MediaGrants, Arc<ManualClock>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = FakeGrantStore::new();
    store.add(task_grant(TASK_TOKEN, &record_inputs(&task_input()).unwrap()));
    let clock = clock();
    let grants = MediaGrants::new(store.clone(), library(dir.path()), &key(), clock.clone());
    (store, grants, clock, dir)
}

#[tokio::test(start_paused = true)]
async fn the_first_read_is_recorded_immediately_and_later_reads_together() {
    let (store, grants, clock, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let started = tokio::time::Instant::now();
    grant.read(0, 100);
    let recorded = store.recorded(1).await;
    assert_eq!(started.elapsed().as_secs(), 0);
    let first =
        GrantReads { first_read_at: at(FIRST), last_read_at: at(FIRST), boot_read_at: None, bytes: 100 };
    assert_eq!(recorded, [(hash(TASK_TOKEN), first)]);

    for _second in 1..=5 {
        clock.advance(std::time::Duration::from_secs(1));
        grant.read(100, 10);
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
        GrantReads { first_read_at: at(FIRST), last_read_at: last, boot_read_at: None, bytes: 150 }
    );
}

#[tokio::test(start_paused = true)]
async fn reads_that_cannot_be_recorded_stay_pending_and_are_recorded_later() {
    let (store, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    store.set_down(true);
    grant.read(0, 7);
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
    grant.read(0, 1);
    store.recorded(1).await;
    grant.read(1, 2);
    store.end(TASK_TOKEN);
    grants.end(run());
    assert_eq!(store.recorded(2).await[1].1.bytes, 2);
    assert!(started.elapsed() < FLUSH_EVERY);
}

#[tokio::test(start_paused = true)]
async fn a_flush_records_all_pending_reads() {
    let (store, grants, _now, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    grant.read(0, 1);
    store.recorded(1).await;
    grant.read(1, 2);
    grants.flush().await;
    assert_eq!(store.recorded(2).await.len(), 2);
    assert_eq!(grants.reads_of(&hash(TASK_TOKEN)).await.unwrap().bytes, 3);
}

#[tokio::test]
async fn a_read_of_the_el_torito_image_is_distinguished_from_other_reads() {
    let world = World::new().await;
    let reads = || async { world.grants.reads_of(&hash(BOOT_TOKEN)).await.unwrap() };
    assert_eq!(reads().await, GrantReads::default());
    world.get(BOOT_TOKEN, Artifact::Boot, Some("bytes=32768-34815")).await.bytes().await.unwrap();
    let mounted = reads().await;
    assert!(mounted.first_read_at.is_some() && mounted.boot_read_at.is_none());
    let image = iso9660::Image::open(world.boot.clone()).unwrap();
    let boot = image.boot_entries().unwrap()[0].extent;
    let range = format!("bytes={}-{}", boot.offset, boot.offset + 511);
    world.get(BOOT_TOKEN, Artifact::Boot, Some(&range)).await.bytes().await.unwrap();
    assert!(reads().await.boot_read_at.is_some());
    let recorded = world.store.recorded(2).await;
    assert!(
        recorded
            .iter()
            .any(|(token_hash, reads)| *token_hash == hash(BOOT_TOKEN) && reads.boot_read_at.is_some())
    );
    assert!(world.grants.reads_of(&hash(TASK_TOKEN)).await.unwrap().boot_read_at.is_none());
}

#[tokio::test(start_paused = true)]
async fn each_read_is_counted_once_and_reads_that_were_counted_for_a_mark_are_recorded() {
    let (store, grants, clock, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let token_hash = hash(TASK_TOKEN);
    let all = || std::iter::once(&*token_hash);
    grant.read(0, 100);
    store.recorded(1).await;
    grant.read(100, 100);
    assert_eq!(grants.bytes_read(all()).await.unwrap(), 200);
    assert_eq!(grants.recorded_bytes(all()).await.unwrap(), 200);
    let recorded: u64 = store.recorded(2).await.iter().map(|(_, reads)| reads.bytes).sum();
    assert_eq!(recorded, 200, "a controller that is killed now loses none of them");
    grants.flush().await;
    assert_eq!(grants.bytes_read(all()).await.unwrap(), 200, "a record of reads is no read");
    clock.set(time("2027-01-15T07:00:00Z"));
    grant.read(200, 1);
    assert_eq!(grants.bytes_read(all()).await.unwrap(), 201, "although the clock was set back");
    grants.forget(&token_hash);
    assert_eq!(grants.bytes_read(all()).await.unwrap(), 201, "although the grant left the cache");
    let again = grants.open(TASK_TOKEN).await.unwrap();
    again.read(201, 1);
    assert_eq!(grants.bytes_read(all()).await.unwrap(), 202, "read again by another reader");
    grants.flush().await;
    assert_eq!(grants.bytes_read(all()).await.unwrap(), 202);
}

#[tokio::test(start_paused = true)]
async fn reads_that_another_controller_has_served_are_counted_too() {
    let (store, grants, _clock, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let token_hash = hash(TASK_TOKEN);
    let all = || std::iter::once(&*token_hash);
    grant.read(0, 100);
    let mark = grants.recorded_bytes(all()).await.unwrap();
    // This controller stands still; its successor serves the host that boots.
    let of_successor = GrantReads { bytes: 300, ..GrantReads::default() };
    store.record_reads(&token_hash, of_successor).await.unwrap();
    assert_eq!((mark, grants.bytes_read(all()).await.unwrap()), (100, 400));
    grant.read(100, 5);
    assert_eq!(grants.bytes_read(all()).await.unwrap(), 405);
    assert_eq!(grants.recorded_bytes(all()).await.unwrap(), 405, "the next mark has them");
}

#[tokio::test(start_paused = true)]
async fn bytes_for_a_mark_are_refused_while_the_store_does_not_record() {
    let (store, grants, _clock, _dir) = quiet_world().await;
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let token_hash = hash(TASK_TOKEN);
    store.set_down(true);
    grant.read(0, 7);
    assert!(grants.recorded_bytes(std::iter::once(&*token_hash)).await.is_err());
    store.set_down(false);
    assert_eq!(grants.recorded_bytes(std::iter::once(&*token_hash)).await.unwrap(), 7);
}

#[tokio::test]
async fn a_head_request_is_no_read() {
    let world = World::new().await;
    world.client.head(world.url(TASK_TOKEN, Artifact::Task)).send().await.unwrap();
    assert_eq!(world.grants.reads_of(&hash(TASK_TOKEN)).await.unwrap(), GrantReads::default());
}

#[tokio::test]
async fn reads_are_missing_only_after_a_kill_and_only_of_a_host_that_was_just_powered_on() {
    let (_store, grants, _clock, _dir) = quiet_world().await;
    assert!(
        !grants.misses_reads_after(time("2027-01-15T07:59:50Z")),
        "the former controller stopped in order"
    );
    grants.former_was_killed(time("2027-01-15T07:59:50Z"));
    for (powered_on_at, missing) in [
        ("2027-01-15T07:00:00Z", false),
        ("2027-01-15T07:50:00Z", true),
        ("2027-01-15T07:59:50Z", true),
        ("2027-01-15T08:01:00Z", false),
    ] {
        assert_eq!(grants.misses_reads_after(time(powered_on_at)), missing, "{powered_on_at}");
    }
}
