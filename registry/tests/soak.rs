//! Many clients push, pull, mount, move and delete during continuous garbage collection; each knows exactly what it
//! must see.
//!
//! ```text
//!  client 0..8:  HEAD, skip or mount or upload ─> put manifest ─> pull and compare ─> move, delete, push again
//!  collector:    collect(grace 3 s, untagged) ─> collect ─> …
//!  scrubber:     read all content again
//! ```
//!
//! The grace period is short, so that unprotected content is really removed. A client slower than it may receive 404
//! for a blob; any other unexpected result is an error. The mutant, a collector without a grace period, must be
//! detected.

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use registry::{AllowAll, GcOptions, Registry};
use reqwest::{Method, StatusCode};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::{IMAGE, Server, config, header, image, noise, sha256};

const CLIENTS: u64 = 8;
const GRACE: Duration = Duration::from_secs(3);
const SCRUB_RATE: NonZeroU64 = NonZeroU64::new(32 << 20).unwrap();
const SHARED_LAYERS: u64 = 5;
const IMAGES_PER_CLIENT: usize = 6;

/// An image a client relies on.
struct Kept {
    tag: String,
    document: Vec<u8>,
    blobs: Vec<Vec<u8>>,
}

struct Client<'a> {
    server: &'a Server,
    number: u64,
    turn: u64,
    kept: Vec<Kept>,
    chance: u64,
}

type Outcome = Result<(), String>;

impl Client<'_> {
    /// A random number below `limit`, the same in every run.
    fn draw(&mut self, limit: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % limit
    }

    fn repository(&self, tag: &str) -> String {
        // One repository is shared by all clients.
        if tag.ends_with('s') { "soak/shared".to_owned() } else { format!("soak/{}", self.number) }
    }

    async fn step(&mut self) -> Outcome {
        self.turn += 1;
        match self.draw(8) {
            0 | 1 => self.push_something_new().await,
            2 if self.kept.len() > 1 => self.move_a_tag().await,
            3 if self.kept.len() > 1 => self.delete_a_tag().await,
            4 if self.kept.len() > 1 => self.delete_and_push_again().await,
            _ => self.pull_something().await,
        }
    }

    fn make(&mut self, tag: String) -> Kept {
        let seed = self.number << 32 | self.turn;
        let shared = noise(self.draw(SHARED_LAYERS), 20_000);
        let own = noise(seed | 1 << 60, 1000 + self.draw(60_000) as usize);
        let config = format!("{{\"seed\":{seed}}}").into_bytes();
        let document = image(&config, &[&shared, &own]);
        Kept { tag, document, blobs: vec![config, shared, own] }
    }

    async fn push_something_new(&mut self) -> Outcome {
        if self.kept.len() == IMAGES_PER_CLIENT {
            return self.delete_a_tag().await;
        }
        let place = if self.draw(3) == 0 { "s" } else { "o" };
        let made = self.make(format!("c{}-t{}-{place}", self.number, self.turn));
        self.push(made).await
    }

    async fn move_a_tag(&mut self) -> Outcome {
        let chosen = self.draw(self.kept.len() as u64) as usize;
        let old = self.kept.swap_remove(chosen);
        let made = self.make(old.tag);
        self.push(made).await
    }

    async fn delete_a_tag(&mut self) -> Outcome {
        let chosen = self.draw(self.kept.len() as u64) as usize;
        let gone = self.kept.swap_remove(chosen);
        let path = format!("/v2/{}/manifests/{}", self.repository(&gone.tag), gone.tag);
        self.expect(Method::DELETE, &path, StatusCode::ACCEPTED).await?;
        self.expect(Method::HEAD, &path, StatusCode::NOT_FOUND).await
    }

    /// Makes other clients of a shared repository lose the content.
    async fn delete_and_push_again(&mut self) -> Outcome {
        let chosen = self.draw(self.kept.len() as u64) as usize;
        let again = self.kept.swap_remove(chosen);
        let path = format!("/v2/{}/manifests/{}", self.repository(&again.tag), sha256(&again.document));
        self.expect(Method::DELETE, &path, StatusCode::ACCEPTED).await?;
        self.push(again).await
    }

    async fn expect(&self, method: Method, path: &str, expected: StatusCode) -> Outcome {
        let response = self.server.send(method.clone(), path).await;
        let status = response.status();
        if status == expected { Ok(()) } else { Err(format!("{method} {path}: {status}, not {expected}")) }
    }

    async fn push(&mut self, made: Kept) -> Outcome {
        let began = Instant::now();
        let repository = self.repository(&made.tag);
        for blob in &made.blobs {
            self.push_blob(&repository, blob).await?;
        }
        let response = self.server.put_manifest(&repository, &made.tag, IMAGE, &made.document).await;
        let (status, took) = (response.status(), began.elapsed());
        if status == StatusCode::CREATED {
            self.kept.push(made);
            return self.pull(self.kept.len() - 1).await;
        }
        let text = response.text().await.unwrap();
        if status == StatusCode::BAD_REQUEST && took > GRACE {
            // Slower than the grace period: the registry says so, and the client starts over later. A moved tag is
            // unchanged, and the content it named before is no longer known here.
            return Ok(());
        }
        Err(format!("PUT {repository}:{} after {took:?}: {status} {text}", made.tag))
    }

    async fn push_blob(&mut self, repository: &str, blob: &[u8]) -> Outcome {
        let digest = sha256(blob);
        if self.server.head(&format!("/v2/{repository}/blobs/{digest}")).await.status() == StatusCode::OK {
            return Ok(());
        }
        let mount = format!("/v2/{repository}/blobs/uploads/?mount={digest}&from=soak/shared");
        let response = self.server.send(Method::POST, &mount).await;
        let status = match response.status() {
            StatusCode::ACCEPTED => {
                let location = header(&response, "location").to_owned();
                if self.draw(2) == 0 {
                    let patch = self.server.request(Method::PATCH, &location).body(blob.to_vec());
                    assert_eq!(patch.send().await.unwrap().status(), StatusCode::ACCEPTED);
                    self.server.send(Method::PUT, &format!("{location}?digest={digest}")).await.status()
                } else {
                    let put = self.server.request(Method::PUT, &format!("{location}?digest={digest}"));
                    put.body(blob.to_vec()).send().await.unwrap().status()
                }
            }
            other => other,
        };
        if status == StatusCode::CREATED { Ok(()) } else { Err(format!("push of {digest}: {status}")) }
    }

    async fn pull_something(&mut self) -> Outcome {
        if self.kept.is_empty() {
            return Ok(());
        }
        let chosen = self.draw(self.kept.len() as u64) as usize;
        self.pull(chosen).await
    }

    async fn pull(&self, chosen: usize) -> Outcome {
        let kept = &self.kept[chosen];
        let repository = self.repository(&kept.tag);
        let blobs = kept.blobs.iter().map(|blob| (format!("blobs/{}", sha256(blob)), blob));
        for (path, content) in [(format!("manifests/{}", kept.tag), &kept.document)].into_iter().chain(blobs)
        {
            let response = self.server.get(&format!("/v2/{repository}/{path}")).await;
            let status = response.status();
            if status != StatusCode::OK || response.bytes().await.unwrap() != content.as_slice() {
                return Err(format!("GET {repository}/{path} of {}: {status}", kept.tag));
            }
        }
        Ok(())
    }
}

struct Soaked {
    errors: Vec<String>,
    steps: u64,
    collections: u64,
    blobs_collected: u64,
    passes: u64,
    blobs_read: u64,
}

/// Runs everything for `length`, or until the first error. The collector's clock is ahead by `ahead`.
async fn soak(length: Duration, ahead: Duration) -> Soaked {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path());
    config.touch_interval = Duration::ZERO;
    let server = Arc::new(Server::open(config, Arc::new(AllowAll)).await);
    let stop = Arc::new(AtomicBool::new(false));
    let missed = Arc::new(Notify::new());
    let steps = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (server, stop, steps) = (Arc::clone(&server), Arc::clone(&stop), Arc::clone(&steps));
            let missed = Arc::clone(&missed);
            tokio::spawn(async move {
                let chance = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut client = Client { server: &server, number, turn: 0, kept: Vec::new(), chance };
                while !stop.load(Ordering::Relaxed) {
                    steps.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = client.step().await {
                        missed.notify_one();
                        return Some(error);
                    }
                }
                None
            })
        })
        .collect();
    let collector = tokio::spawn(collect(server.registry.clone(), Arc::clone(&stop), ahead));
    let scrubber = tokio::spawn(scrub(server.registry.clone(), Arc::clone(&stop)));
    // The first client with an error ends the soak.
    let _over = tokio::time::timeout(length, missed.notified()).await;
    stop.store(true, Ordering::Relaxed);
    let mut errors = Vec::new();
    for client in clients {
        errors.extend(client.await.unwrap());
    }
    let (collections, blobs_collected) = collector.await.unwrap();
    let (passes, blobs_read) = scrubber.await.unwrap();
    Soaked { errors, steps: steps.load(Ordering::Relaxed), collections, blobs_collected, passes, blobs_read }
}

/// Scrubs continuously; no content may be found corrupted, whatever is pushed or deleted meanwhile.
async fn scrub(registry: Registry, stop: Arc<AtomicBool>) -> (u64, u64) {
    let (mut passes, mut blobs) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let found = registry.scrub(SCRUB_RATE).await.unwrap();
        assert!(found.corrupted.is_empty(), "{found:?}");
        (passes, blobs) = (passes + 1, blobs + found.blobs);
    }
    (passes, blobs)
}

async fn collect(registry: Registry, stop: Arc<AtomicBool>, ahead: Duration) -> (u64, u64) {
    let (mut runs, mut blobs) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        (runs, blobs) = (runs + 1, blobs + collection(&registry, ahead).await);
    }
    (runs, blobs)
}

/// Collects once with the clock ahead by `ahead`; returns the number of removed blobs.
async fn collection(registry: &Registry, ahead: Duration) -> u64 {
    let mut options = GcOptions::at(SystemTime::now() + ahead);
    (options.grace, options.push_duration, options.untagged) = (GRACE, GRACE, true);
    let report = registry.collect(options).await.unwrap();
    assert!(report.corrupted.is_empty());
    report.blobs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, run by .ci/run"]
async fn no_client_ever_misses_content_it_may_rely_on() {
    let seconds = std::env::var("REGISTRY_SOAK_SECONDS").map_or(60, |text| text.parse().unwrap());
    let soaked = soak(Duration::from_secs(seconds), Duration::ZERO).await;
    println!(
        "{seconds} s: {} steps, {} collections removed {} blobs, {} scrubs read {}; {} errors",
        soaked.steps,
        soaked.collections,
        soaked.blobs_collected,
        soaked.passes,
        soaked.blobs_read,
        soaked.errors.len()
    );
    assert!(soaked.errors.is_empty(), "{:#?}", soaked.errors);
    assert!(soaked.blobs_collected > 0 && soaked.collections > 10 && soaked.passes > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, run by .ci/run"]
async fn a_collector_without_a_grace_period_is_detected() {
    let soaked = soak(Duration::from_secs(60), Duration::from_secs(3600)).await;
    assert!(!soaked.errors.is_empty(), "{} collections had no effect on any client", soaked.collections);
}

/// Counts the starts and ends of a repeated action: odd while one is under way.
type Rounds = Arc<AtomicU64>;

/// Repeats an action until it is stopped.
fn again<F>(stop: &Arc<AtomicBool>, act: impl Fn() -> F + Send + 'static) -> (Rounds, JoinHandle<()>)
where
    F: Future<Output = ()> + Send,
{
    let (stop, rounds) = (Arc::clone(stop), Rounds::default());
    let counted = Arc::clone(&rounds);
    let task = tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            counted.fetch_add(1, Ordering::SeqCst);
            act().await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (rounds, task)
}

/// Sends this many HEAD requests, one after another; returns the 50th and the 99th percentile, and how many of them
/// began and ended within one round of each action.
async fn heads<const N: usize>(
    server: &Server,
    paths: &[String],
    beside: [&Rounds; N],
) -> (Duration, Duration, [u64; N]) {
    let (mut took, mut within) = (Vec::new(), [0; N]);
    for turn in 0..3000 {
        let before = beside.map(|rounds| rounds.load(Ordering::SeqCst));
        let began = Instant::now();
        let response = server.head(&paths[turn * 7919 % paths.len()]).await;
        took.push(began.elapsed());
        assert_eq!(response.status(), StatusCode::OK);
        for (at, rounds) in beside.into_iter().enumerate() {
            within[at] += u64::from(before[at] % 2 == 1 && rounds.load(Ordering::SeqCst) == before[at]);
        }
    }
    took.sort();
    (took[took.len() / 2], took[took.len() * 99 / 100], within)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, run by .ci/run"]
async fn reads_are_not_delayed_by_collections_and_scrubs() {
    let server = Server::start().await;
    let mut paths = Vec::new();
    for number in 0..500 {
        server.push_image("a", &format!("t{number}"), &number.to_string()).await;
        paths.push(format!("/v2/a/blobs/{}", sha256(format!("layer of {number}").as_bytes())));
    }
    heads(&server, &paths, []).await;
    let idle = heads(&server, &paths, []).await;
    let stop = Arc::new(AtomicBool::new(false));
    let registry = server.registry.clone();
    let (collections, collector) = again(&stop, move || {
        let registry = registry.clone();
        async move {
            let _blobs = collection(&registry, Duration::ZERO).await;
        }
    });
    let registry = server.registry.clone();
    let (scrubs, scrubber) = again(&stop, move || {
        let registry = registry.clone();
        async move { assert!(registry.scrub(NonZeroU64::MAX).await.unwrap().corrupted.is_empty()) }
    });
    // A lock delays every round; other load on the machine does not.
    let mut held_up = true;
    for _ in 0..3 {
        let begun = [&collections, &scrubs].map(|rounds| rounds.load(Ordering::SeqCst) / 2);
        let busy = heads(&server, &paths, [&collections, &scrubs]).await;
        println!("HEAD p50, p99: idle {idle:?}, during collections and scrubs {busy:?}");
        // A request that waits for a round to end is served after it, once per round; many are served within one round.
        for ((rounds, begun), within) in [&collections, &scrubs].into_iter().zip(begun).zip(busy.2) {
            let rounds = rounds.load(Ordering::SeqCst) / 2 - begun + 1;
            assert!(within > rounds * 4, "{within} were served within {rounds} rounds");
        }
        // Both use one of the few processors; no request waits for a lock.
        held_up = busy.1 >= idle.1 * 8 + Duration::from_millis(20);
        if !held_up {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    collector.await.unwrap();
    scrubber.await.unwrap();
    assert!(collections.load(Ordering::SeqCst) >= 2 && scrubs.load(Ordering::SeqCst) >= 2);
    assert!(!held_up, "three times in a row");
}
