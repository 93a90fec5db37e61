//! Measures the durable commits per second of the store on this disk, for `shoal selftest --bench`.
//!
//! ```text
//!   1 caller     one event per commit, each waits for its sync    close to the sync rate of the disk: no sync is shared
//!   many         all callers commit at the same time              many commits share a sync
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::task::JoinSet;

use model::{Clock, NewEvent, SystemClock};
use store::{EventFilter, Store};

const MEASURE_TIME: Duration = Duration::from_millis(1500);

/// Returns the acknowledged commits per second of `callers` concurrent callers, on a new database in `folder`.
///
/// # Errors
/// Returns an error if the database cannot be written or does not hold exactly the acknowledged events.
pub async fn commits(folder: &Path, callers: u32) -> anyhow::Result<f64> {
    let store = Store::open(&folder.join(format!("commits-{callers}.db")), SystemClock.now())?;
    let start = Instant::now();
    let mut running = JoinSet::new();
    for caller in 0..callers {
        let store = store.clone();
        running.spawn(async move {
            let mut done = 0_u32;
            while start.elapsed() < MEASURE_TIME {
                let event = NewEvent::info("bench.tick", format!("caller {caller} writes its event {done}"));
                store.append(None, None, vec![event], SystemClock.now()).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(one) = running.join_next().await {
        done += one.context("a caller panicked")??;
    }
    let rate = f64::from(done) / start.elapsed().as_secs_f64();
    let last = store.events(EventFilter { after: i64::from(done) - 1, limit: 2, run: None }).await?;
    ensure!(
        last.len() == 1,
        "{done} events were acknowledged, but the log holds {} events after number {}",
        last.len(),
        i64::from(done) - 1
    );
    Ok(rate)
}
