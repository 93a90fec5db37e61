//! How many durable commits a second the store makes on this disk, for `shoal selftest --bench`.
//!
//! ```text
//!   1 caller     one event a commit, each waits for its own       close to what the disk syncs bare: nothing is shared
//!   many         the same from all of them at once                many share a sync
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::task::JoinSet;

use engine::model::{Clock, NewEvent, SystemClock};
use engine::store::{EventFilter, Store};

const LASTS: Duration = Duration::from_millis(1500);

/// Acknowledged commits a second from so many callers at once, on a database of its own in `folder`.
///
/// # Errors
/// When the database cannot be written, or does not hold exactly what was acknowledged.
pub async fn commits(folder: &Path, callers: u32) -> anyhow::Result<f64> {
    let store = Store::open(&folder.join(format!("commits-{callers}.db")), SystemClock.now())?;
    let start = Instant::now();
    let mut at_work = JoinSet::new();
    for caller in 0..callers {
        let store = store.clone();
        at_work.spawn(async move {
            let mut done = 0_u32;
            while start.elapsed() < LASTS {
                let event = NewEvent::info("bench.tick", format!("caller {caller} writes its event {done}"));
                store.append(None, None, vec![event], SystemClock.now()).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(one) = at_work.join_next().await {
        done += one.context("a caller panicked")??;
    }
    let rate = f64::from(done) / start.elapsed().as_secs_f64();
    let last = store.events(EventFilter { after: i64::from(done) - 1, limit: 2, run: None }).await?;
    ensure!(
        last.len() == 1,
        "{done} events were acknowledged, the log holds {} beyond the last but one",
        last.len()
    );
    Ok(rate)
}
