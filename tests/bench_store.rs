//! How many durable commits a second the store makes, beside what the disk does bare in the same run (DESIGN section 14).
//!
//! ```text
//!  bare       append 4 KiB, fdatasync, again                 what one sync costs here
//!  1 writer   one event per commit, each waiting for its own   close to bare: nothing is shared
//!  64         the same from 64 callers at once                 many share a sync: at least 12 times one writer
//! ```
//! Nothing timed is asserted: the last line says PASS or FAIL for the one who reads it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use shoal::model::{Clock, NewEvent, SystemClock};
use shoal::store::{EventFilter, Store};

const LASTS: Duration = Duration::from_secs(3);
const NEEDED: f64 = 12.0;

/// Synced appends a second on a file in `folder`.
fn bare(folder: &Path) -> f64 {
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join("bare")).unwrap();
    let block = [7_u8; 4096];
    let start = Instant::now();
    let mut done = 0_u32;
    while start.elapsed() < LASTS {
        file.write_all(&block).unwrap();
        file.sync_data().unwrap();
        done += 1;
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

/// Acknowledged commits a second from so many callers at once, on a database of its own.
async fn commits(folder: &Path, writers: u32) -> f64 {
    let store = Store::open(&folder.join(format!("bench-{writers}.db")), SystemClock.now()).unwrap();
    let start = Instant::now();
    let callers: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut done = 0_u32;
                while start.elapsed() < LASTS {
                    let event =
                        NewEvent::info("bench.tick", format!("writer {writer} writes its event {done}"));
                    store.append(None, None, vec![event], SystemClock.now()).await.unwrap();
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await.unwrap();
    }
    let rate = f64::from(done) / start.elapsed().as_secs_f64();
    let last = store.events(EventFilter { after: i64::from(done) - 1, limit: 2, run: None }).await.unwrap();
    assert_eq!(last.len(), 1, "every acknowledged event is there, and no other");
    rate
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "benchmark, run by .ci/run with --release"]
async fn commits_per_second_at_1_8_and_64_writers() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bare = bare(folder.path());
    println!("store-commits bare      {bare:>9.0}/s  1.00x of a 4 KiB append + fdatasync");
    let mut rates = Vec::new();
    for writers in [1, 8, 64] {
        let rate = commits(folder.path(), writers).await;
        println!("store-commits {writers:>2} writers {rate:>8.0}/s {:>5.2}x of bare", rate / bare);
        rates.push(rate);
    }
    let ratio = rates[2] / rates[0];
    let verdict = if ratio >= NEEDED { "PASS" } else { "FAIL" };
    println!("store-commits 64 writers against 1: {ratio:.1}x (at least {NEEDED:.0}x): {verdict}");
}
