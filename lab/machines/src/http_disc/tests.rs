use std::sync::Arc;

use super::*;
use crate::{http::media_client, test_kit::FakeController};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

fn quick() -> DiscOptions {
    let backoff = Backoff { attempts: 3, first: Duration::from_millis(1), longest: Duration::from_millis(2) };
    DiscOptions { cache_blocks: 2, backoff, ..DiscOptions::default() }
}

async fn open(url: &str, cancel: &CancellationToken) -> Result<Arc<HttpDisc>, DiscError> {
    HttpDisc::open(media_client().unwrap(), url, quick(), cancel.clone()).await.map(Arc::new)
}

async fn read(disc: &Arc<HttpDisc>, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let disc = Arc::clone(disc);
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0u8; length];
        disc.read_exact_at(offset, &mut buffer).map(|()| buffer)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn reads_at_any_offset_deliver_the_bytes_of_the_image() {
    let fake = FakeController::start().await;
    let bytes = pattern(300_001);
    let disc = open(&fake.put_media("a.iso", bytes.clone()), &CancellationToken::new()).await.unwrap();
    assert_eq!(disc.len(), 300_001);
    for (offset, length) in [(0, 1), (65_535, 2), (0, 300_001), (299_999, 2), (131_072, 65_536), (300_001, 0)]
    {
        assert_eq!(read(&disc, offset as u64, length).await.unwrap(), &bytes[offset..offset + length]);
    }
    let past = read(&disc, 300_000, 2).await.unwrap_err();
    assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn the_cache_returns_recent_blocks_and_drops_the_least_recently_used() {
    let fake = FakeController::start().await;
    let disc = open(&fake.put_media("a.iso", pattern(400_000)), &CancellationToken::new()).await.unwrap();
    assert_eq!(disc.counters(), DiscCounters { requests: 1, bytes: 0 });
    for offset in [10, 70_000, 20, 70_100, 30] {
        read(&disc, offset, 100).await.unwrap();
    }
    assert_eq!(disc.counters(), DiscCounters { requests: 3, bytes: 2 * BLOCK_BYTES });
    read(&disc, 140_000, 100).await.unwrap(); // drops block 1, the least recently used of two
    read(&disc, 40, 100).await.unwrap();
    assert_eq!(disc.counters().requests, 4);
    read(&disc, 70_000, 100).await.unwrap();
    assert_eq!(disc.counters().requests, 5);
}

#[tokio::test]
async fn the_length_comes_from_a_range_request_if_the_server_refuses_head() {
    let fake = FakeController::start().await;
    *fake.shared.media_mode.lock().unwrap() = "head-405".into();
    let disc = open(&fake.put_media("a.iso", pattern(70_000)), &CancellationToken::new()).await.unwrap();
    assert_eq!(disc.len(), 70_000);
    assert_eq!(read(&disc, 0, 70_000).await.unwrap(), pattern(70_000));
}

#[tokio::test]
async fn a_missing_image_a_server_without_ranges_and_a_changed_image_are_refused() {
    let fake = FakeController::start().await;
    let cancel = CancellationToken::new();
    let missing = open(&format!("{}/t1/none.iso", fake.base), &cancel).await.unwrap_err();
    assert!(missing.to_string().contains("404"), "{missing}");
    let disc = open(&fake.put_media("a.iso", pattern(70_000)), &cancel).await.unwrap();
    for (mode, rule) in
        [("no-range", "responded with 200"), ("etag-changes", "changed while it was inserted")]
    {
        *fake.shared.media_mode.lock().unwrap() = mode.into();
        let refused = read(&disc, 0, 10).await.unwrap_err().to_string();
        assert!(refused.contains(rule), "{refused}");
    }
}

#[tokio::test]
async fn a_block_is_requested_again_after_503_a_limited_number_of_times() {
    let fake = FakeController::start().await;
    let disc = open(&fake.put_media("a.iso", pattern(200_000)), &CancellationToken::new()).await.unwrap();
    fake.shared.media_faults.lock().unwrap().extend([503, 500]);
    assert_eq!(read(&disc, 0, 10).await.unwrap(), pattern(10));
    fake.shared.media_faults.lock().unwrap().extend([503, 503, 503, 503]);
    assert!(read(&disc, 100_000, 10).await.unwrap_err().to_string().contains("503"));
    assert_eq!(fake.shared.media_faults.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn power_off_ends_a_read_without_a_response() {
    let fake = FakeController::start().await;
    let cancel = CancellationToken::new();
    let disc = open(&fake.put_media("a.iso", pattern(200_000)), &cancel).await.unwrap();
    *fake.shared.stall.lock().unwrap() = Some("/t1/".into());
    let mut stalled = fake.stalled.clone();
    let (reading, ()) = tokio::join!(read(&disc, 0, 10), async {
        stalled.wait_for(|count| *count > 0).await.unwrap();
        cancel.cancel();
    });
    assert!(reading.unwrap_err().to_string().contains("the power went off"));
}

#[tokio::test]
async fn a_media_url_is_never_shown_beyond_its_file_name() {
    let cancel = CancellationToken::new();
    let refused = open("http://127.0.0.1:1/tsecretgrant/boot.iso", &cancel).await.unwrap_err();
    let shown = format!("{refused} {refused:?} {}", std::error::Error::source(&refused).unwrap());
    assert!(shown.contains("boot.iso") && !shown.contains("secretgrant"), "{shown}");
}
