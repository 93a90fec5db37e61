//! Grants from their first request to the first request after their end.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use secrets::{JobTokens, TokenSeeds};

#[tokio::test]
async fn only_the_first_request_reads_the_store() {
    let world = World::new().await;
    for _ in 0..5 {
        assert_eq!(world.get(TASK_TOKEN, Artifact::Task, Some("bytes=0-2047")).await.status(), 206);
    }
    assert_eq!(world.store.finds(), 1);
}

#[tokio::test]
async fn an_ended_grant_is_404_immediately() {
    let world = World::new().await;
    for (token, artifact) in [(TASK_TOKEN, Artifact::Task), (BOOT_TOKEN, Artifact::Boot)] {
        assert_eq!(world.get(token, artifact, None).await.status(), 200);
        world.store.end(token);
    }
    world.grants.end(run());
    for (token, artifact) in [(TASK_TOKEN, Artifact::Task), (BOOT_TOKEN, Artifact::Boot)] {
        assert_eq!(world.get(token, artifact, None).await.status(), 404);
        assert!(matches!(world.grants.open(token).await, Err(GrantError::Ended)));
    }
}

#[tokio::test]
async fn forget_drops_one_grant_and_keeps_the_other() {
    let world = World::new().await;
    for token in [TASK_TOKEN, BOOT_TOKEN] {
        world.grants.open(token).await.unwrap();
    }
    world.grants.forget(&hash(TASK_TOKEN));
    world.store.set_down(true);
    assert!(matches!(world.grants.open(TASK_TOKEN).await, Err(GrantError::Unavailable(_))));
    world.grants.open(BOOT_TOKEN).await.unwrap();
}

/// A store that ends the grant right after it returned the grant as open.
struct EndsMeanwhile {
    inner: Arc<FakeGrantStore>,
    grants: Mutex<Option<MediaGrants>>,
}

#[async_trait]
impl GrantStore for EndsMeanwhile {
    async fn find(&self, token_hash: &str) -> Result<Option<StoredGrant>, GrantStoreUnavailable> {
        let found = self.inner.find(token_hash).await;
        if let Some(grants) = self.grants.lock().unwrap().take() {
            self.inner.end(TASK_TOKEN);
            grants.end(run());
        }
        found
    }

    async fn record_reads(&self, token_hash: &str, reads: GrantReads) -> Result<(), GrantStoreUnavailable> {
        self.inner.record_reads(token_hash, reads).await
    }
}

#[tokio::test]
async fn a_grant_that_ends_while_it_is_loaded_is_not_cached() {
    let dir = tempfile::tempdir().unwrap();
    let inner = FakeGrantStore::new();
    inner.add(task_grant(TASK_TOKEN, &record_inputs(&task_input()).unwrap()));
    let store = Arc::new(EndsMeanwhile { inner, grants: Mutex::default() });
    let grants = MediaGrants::new(store.clone(), library(dir.path()), &key(), clock());
    *store.grants.lock().unwrap() = Some(grants.clone());
    assert!(matches!(grants.open(TASK_TOKEN).await, Err(GrantError::Ended)));
    assert!(matches!(grants.open(TASK_TOKEN).await, Err(GrantError::Ended)));
}

#[tokio::test]
async fn the_connection_of_a_reader_is_broken_when_the_grant_ends() {
    let world = World::new().await;
    let grant = world.grants.open(BOOT_TOKEN).await.unwrap();
    let request = ::http::Request::get("/").body(()).unwrap().into_parts().0;
    let response = respond(&grant.body, &request, grant.clone());
    let mut body = response.into_body();
    let first = futures_util::future::poll_fn(|context| {
        http_body::Body::poll_frame(std::pin::Pin::new(&mut body), context)
    });
    assert!(first.await.unwrap().is_ok());
    world.store.end(BOOT_TOKEN);
    world.grants.end(run());
    let next = futures_util::future::poll_fn(|context| {
        http_body::Body::poll_frame(std::pin::Pin::new(&mut body), context)
    });
    assert!(next.await.unwrap().is_err());
}

#[tokio::test]
async fn an_issued_grant_is_served_and_its_inputs_are_opened_only_for_their_job() {
    let world = World::new().await;
    let inputs = record_inputs(&task_input()).unwrap();
    let digest = inputs.digest().to_hex();
    let image = ImageUse { artifact: Artifact::Task, digest: &digest, slot_plan: "separate", attempt: 1 };
    let bytes = inputs.to_bytes().unwrap();
    let tokens = JobTokens::new(&TokenSeeds::new(&key()).seed("a run"));
    let token = |run| MediaToken::derive(&tokens, run, &image);
    let issued = |run| {
        let now = time("2027-01-15T08:00:00Z");
        world.grants.issue(&token(run), run, &image, inputs.len(), Some(&bytes), now).unwrap()
    };
    let stored = |grant| StoredGrant { grant, server: None, ended_at: None, reads: GrantReads::default() };
    world.store.add(stored(issued(run())));
    let opened = world.grants.open(token(run()).reveal()).await.unwrap();
    assert!(bytes_of(&opened.body) == world.task);
    assert_eq!((opened.run, opened.artifact), (run(), Artifact::Task));

    let other = RunId(uuid::Uuid::from_u128(9));
    let swapped = Grant { inputs: issued(run()).inputs, ..issued(other) };
    world.store.add(stored(swapped));
    let refused = world.grants.open(token(other).reveal()).await.unwrap_err();
    assert!(matches!(refused, GrantError::Unavailable(_)), "{refused}");
}

#[tokio::test]
async fn an_image_with_another_digest_is_refused_with_410() {
    let world = World::new().await;
    let mut stored = task_grant(TASK_TOKEN, &record_inputs(&task_input()).unwrap());
    stored.grant.sha256 = ImageDigest::new([7; 32]).to_hex();
    world.store.add(stored);
    assert!(matches!(
        world.grants.open(TASK_TOKEN).await,
        Err(GrantError::Changed { expected, .. }) if expected == ImageDigest::new([7; 32])
    ));
    assert_eq!(world.get(TASK_TOKEN, Artifact::Task, None).await.status(), 410);
}

#[tokio::test]
async fn a_recently_planned_image_is_served_once_without_a_rebuild_and_only_under_its_grant() {
    let world = World::new().await;
    let (task, image) = record_inputs_with_body(&task_input()).unwrap();
    let (token, other) = ("fresh00000000000000000000", "other00000000000000000000");
    // These grants cannot be rebuilt: the image must come from the recent images.
    let unreadable = |token| {
        let mut stored = task_grant(token, &task);
        stored.grant.inputs = sealed(b"not the inputs of a task");
        stored
    };
    world.grants.keep_recent(&task, image);
    assert!(matches!(world.grants.open(token).await, Err(GrantError::Unknown)));
    let mut changed = unreadable(other);
    changed.grant.sha256 = ImageDigest::new([7; 32]).to_hex();
    world.store.add(changed);
    assert!(matches!(world.grants.open(other).await, Err(GrantError::Task(_))));
    world.store.add(unreadable(token));
    let opened = world.grants.open(token).await.unwrap();
    assert!(bytes_of(&opened.body) == world.task);
    // The image was kept for the first request only: after the grant left the cache, it would have to be rebuilt.
    world.grants.forget(&hash(token));
    assert!(matches!(world.grants.open(token).await, Err(GrantError::Task(_))));
}

#[tokio::test]
async fn a_store_that_does_not_respond_is_503_and_recovers() {
    let world = World::new().await;
    world.store.set_down(true);
    assert_eq!(world.get(TASK_TOKEN, Artifact::Task, None).await.status(), 503);
    world.store.set_down(false);
    assert_eq!(world.get(TASK_TOKEN, Artifact::Task, None).await.status(), 200);
}

#[tokio::test]
async fn a_malformed_token_does_not_reach_the_store() {
    let world = World::new().await;
    for token in ["", "short", "UPPER0000000000000000000", "hyphen-00000000000000000000"] {
        assert!(matches!(world.grants.open(token).await, Err(GrantError::Unknown)));
    }
    assert_eq!(world.store.finds(), 0);
}

#[tokio::test]
async fn the_cache_keeps_the_recently_used_grants_within_its_limits() {
    let world = World::with_limits(CacheLimits { grants: 2, bytes: usize::MAX }).await;
    let third = "third000000000000000000000";
    world.store.add(task_grant(third, &record_inputs(&task_input()).unwrap()));
    for token in [TASK_TOKEN, BOOT_TOKEN, TASK_TOKEN, third] {
        world.grants.open(token).await.unwrap();
    }
    assert_eq!(world.store.finds(), 3);
    world.store.set_down(true);
    world.grants.open(TASK_TOKEN).await.unwrap();
    world.grants.open(third).await.unwrap();
    assert!(world.grants.open(BOOT_TOKEN).await.is_err());
}

#[tokio::test]
async fn a_single_grant_larger_than_the_limit_is_still_kept() {
    let world = World::with_limits(CacheLimits { grants: 8, bytes: 1 }).await;
    world.grants.open(TASK_TOKEN).await.unwrap();
    world.grants.open(TASK_TOKEN).await.unwrap();
    assert_eq!(world.store.finds(), 1);
}

#[tokio::test]
async fn no_token_reaches_an_error_or_debug_text() {
    let world = World::new().await;
    let grant = world.grants.open(TASK_TOKEN).await.unwrap();
    let record = task_grant(TASK_TOKEN, &record_inputs(&task_input()).unwrap());
    let texts = format!(
        "{grant:?} {record:?} {:?} {:?} {:?}",
        world.grants,
        task_input(),
        record_inputs(&task_input()).unwrap()
    );
    assert!(!texts.contains(TASK_TOKEN) && !texts.contains("canary"), "{texts}");
}

#[tokio::test]
async fn a_range_request_counts_only_the_bytes_that_were_sent() {
    let world = World::new().await;
    let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let path = media_path(&MediaToken::parse(TASK_TOKEN).unwrap(), Artifact::Task, Suffix::Iso);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-99\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    assert_eq!(world.grants.reads_of(&hash(TASK_TOKEN)).await.unwrap().bytes, 100);
}
