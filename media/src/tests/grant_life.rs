//! From the first request of a grant to the first one after its end.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[tokio::test]
async fn the_first_request_asks_the_ledger_and_no_later_one() {
    let world = World::new().await;
    for _ in 0..5 {
        assert_eq!(world.get(TASK_TOKEN, Artifact::Task, Some("bytes=0-2047")).await.status(), 206);
    }
    assert_eq!(world.ledger.finds(), 1);
}

#[tokio::test]
async fn an_ended_grant_is_404_at_once() {
    let world = World::new().await;
    for (token, artifact) in [(TASK_TOKEN, Artifact::Task), (BOOT_TOKEN, Artifact::Boot)] {
        assert_eq!(world.get(token, artifact, None).await.status(), 200);
        world.ledger.end(token);
    }
    world.grants.end(run_id());
    for (token, artifact) in [(TASK_TOKEN, Artifact::Task), (BOOT_TOKEN, Artifact::Boot)] {
        assert_eq!(world.get(token, artifact, None).await.status(), 404);
        assert!(matches!(world.grants.open(token).await, Err(GrantError::Ended)));
    }
}

#[tokio::test]
async fn forgetting_one_grant_leaves_the_other() {
    let world = World::new().await;
    for token in [TASK_TOKEN, BOOT_TOKEN] {
        world.grants.open(token).await.unwrap();
    }
    world.grants.forget(&hash(TASK_TOKEN));
    world.ledger.set_down(true);
    assert!(matches!(world.grants.open(TASK_TOKEN).await, Err(GrantError::Unavailable(_))));
    world.grants.open(BOOT_TOKEN).await.unwrap();
}

/// A ledger that ends the grant after it has answered that it has not ended.
struct EndsMeanwhile {
    inner: Arc<FakeLedger>,
    grants: Mutex<Option<Grants>>,
}

#[async_trait]
impl GrantStore for EndsMeanwhile {
    async fn find(&self, token_hash: &str) -> Result<Option<GrantRecord>, GrantStoreUnavailable> {
        let found = self.inner.find(token_hash).await;
        if let Some(grants) = self.grants.lock().unwrap().take() {
            self.inner.end(TASK_TOKEN);
            grants.end(run_id());
        }
        found
    }

    async fn record_read(&self, token_hash: &str, reads: ReadSummary) -> Result<(), GrantStoreUnavailable> {
        self.inner.record_read(token_hash, reads).await
    }
}

#[tokio::test]
async fn a_grant_that_ends_while_it_is_loaded_is_not_cached() {
    let dir = tempfile::tempdir().unwrap();
    let inner = FakeLedger::new();
    inner.add(task_grant(TASK_TOKEN, &freeze(&task_input()).unwrap()));
    let ledger = Arc::new(EndsMeanwhile { inner, grants: Mutex::default() });
    let grants = Grants::new(ledger.clone(), library(dir.path()), Arc::new(Timestamp::now));
    *ledger.grants.lock().unwrap() = Some(grants.clone());
    assert!(matches!(grants.open(TASK_TOKEN).await, Err(GrantError::Ended)));
    assert!(matches!(grants.open(TASK_TOKEN).await, Err(GrantError::Ended)));
}

#[tokio::test]
async fn a_reader_of_an_ended_grant_is_cut_off() {
    let world = World::new().await;
    let grant = world.grants.open(BOOT_TOKEN).await.unwrap();
    let request = ::http::Request::get("/").body(()).unwrap().into_parts().0;
    let response = respond(&grant.body, &request, grant.observer);
    let mut body = response.into_body();
    let first = futures_util::future::poll_fn(|context| {
        http_body::Body::poll_frame(std::pin::Pin::new(&mut body), context)
    });
    assert!(first.await.unwrap().is_ok());
    world.ledger.end(BOOT_TOKEN);
    world.grants.end(run_id());
    let next = futures_util::future::poll_fn(|context| {
        http_body::Body::poll_frame(std::pin::Pin::new(&mut body), context)
    });
    assert!(next.await.unwrap().is_err());
}

#[tokio::test]
async fn a_changed_image_is_refused_for_good() {
    let world = World::new().await;
    let mut grant = task_grant(TASK_TOKEN, &freeze(&task_input()).unwrap());
    grant.sha256 = ImageDigest::new([7; 32]);
    world.ledger.add(grant);
    assert!(matches!(
        world.grants.open(TASK_TOKEN).await,
        Err(GrantError::Changed { expected, .. }) if expected == ImageDigest::new([7; 32])
    ));
    assert_eq!(world.get(TASK_TOKEN, Artifact::Task, None).await.status(), 410);
}

#[tokio::test]
async fn an_image_planned_a_moment_ago_is_served_without_being_planned_again_and_only_under_its_grant() {
    let world = World::new().await;
    let (task, image) = record_inputs_with_body(&task_input()).unwrap();
    let (token, other) = ("fresh00000000000000000000", "other00000000000000000000");
    // Nothing can be thawed out of these grants: what they serve was there already.
    let unreadable = |token| GrantRecord {
        source: GrantSource::Task { frozen: b"not a frozen task".to_vec() },
        ..task_grant(token, &task)
    };
    world.grants.keep_recent(&task, image);
    assert!(matches!(world.grants.open(token).await, Err(GrantError::Unknown)));
    world.ledger.add(GrantRecord { sha256: ImageDigest::new([7; 32]), ..unreadable(other) });
    assert!(matches!(world.grants.open(other).await, Err(GrantError::Task(_))));
    world.ledger.add(unreadable(token));
    let opened = world.grants.open(token).await.unwrap();
    assert!(bytes_of(&opened.body) == world.task);
    // It was kept for the first reading; whoever asks after the grant was dropped from the cache gets no other copy.
    world.grants.forget(&hash(token));
    assert!(matches!(world.grants.open(token).await, Err(GrantError::Task(_))));
}

#[tokio::test]
async fn a_silent_ledger_is_503_and_recovers() {
    let world = World::new().await;
    world.ledger.set_down(true);
    assert_eq!(world.get(TASK_TOKEN, Artifact::Task, None).await.status(), 503);
    world.ledger.set_down(false);
    assert_eq!(world.get(TASK_TOKEN, Artifact::Task, None).await.status(), 200);
}

#[tokio::test]
async fn what_is_no_token_does_not_reach_the_ledger() {
    let world = World::new().await;
    for token in ["", "short", "UPPER0000000000000000000", "hyphen-00000000000000000000"] {
        assert!(matches!(world.grants.open(token).await, Err(GrantError::Unknown)));
    }
    assert_eq!(world.ledger.finds(), 0);
}

#[tokio::test]
async fn the_cache_keeps_the_recently_used_within_its_bounds() {
    let world = World::with_limits(CacheLimits { grants: 2, bytes: usize::MAX }).await;
    let third = "third000000000000000000000";
    world.ledger.add(task_grant(third, &freeze(&task_input()).unwrap()));
    for token in [TASK_TOKEN, BOOT_TOKEN, TASK_TOKEN, third] {
        world.grants.open(token).await.unwrap();
    }
    assert_eq!(world.ledger.finds(), 3);
    world.ledger.set_down(true);
    world.grants.open(TASK_TOKEN).await.unwrap();
    world.grants.open(third).await.unwrap();
    assert!(world.grants.open(BOOT_TOKEN).await.is_err());
}

#[tokio::test]
async fn a_single_grant_larger_than_the_bound_is_still_kept() {
    let world = World::with_limits(CacheLimits { grants: 8, bytes: 1 }).await;
    world.grants.open(TASK_TOKEN).await.unwrap();
    world.grants.open(TASK_TOKEN).await.unwrap();
    assert_eq!(world.ledger.finds(), 1);
}

#[tokio::test]
async fn no_token_reaches_an_error_or_debug_text() {
    let world = World::new().await;
    let grant = world.grants.open(TASK_TOKEN).await.unwrap();
    let record = task_grant(TASK_TOKEN, &freeze(&task_input()).unwrap());
    let texts = format!(
        "{grant:?} {record:?} {:?} {:?} {:?}",
        world.grants,
        task_input(),
        freeze(&task_input()).unwrap()
    );
    assert!(!texts.contains(TASK_TOKEN) && !texts.contains("canary"), "{texts}");
}

#[tokio::test]
async fn a_request_cut_off_by_the_client_counts_only_what_was_handed_over() {
    let world = World::new().await;
    let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let path = media_path(&MediaToken::parse(TASK_TOKEN).unwrap(), Artifact::Task, Suffix::Iso);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-99\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(world.grants.evidence(&hash(TASK_TOKEN)).await.unwrap().bytes, 100);
}
