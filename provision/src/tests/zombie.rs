//! Zombies: a worker is paused at a request to the BMC for longer than its lease, another one ends the job, and the first one
//! wakes up. It writes nothing, and it sends nothing.

use std::pin::pin;

use lab_bmc::{Entry, JournalItem};
use rusqlite::Connection;
use tokio::time::timeout;

use super::bench::{Bench, GRACE, LEASE};
use super::*;

/// After this long a step that should go on is stuck.
const STUCK: Duration = Duration::from_secs(30);

/// How often a worker is paused anew that has gone on before anybody could pause it.
const TRIES: usize = 10;

/// What a zombie did after it woke up: requests it sent, and whether what is written has changed.
struct Woken {
    /// The request it was paused at.
    at: u64,
    sent: Vec<String>,
    mutated: bool,
    wrote: bool,
}

/// Everything that is written about a job.
fn written(bench: &Bench) -> Vec<String> {
    let database = Connection::open(bench.database()).unwrap();
    let tables = ["runs", "run_steps", "run_inputs", "signals", "locks", "jobs", "events", "media_grants"];
    let mut rows = Vec::new();
    for table in tables {
        let mut statement = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let found = statement.query_map([], |row| {
            let values = (0..columns).map(|column| row.get_ref(column).map(|value| format!("{value:?}")));
            Ok(format!("{table} {:?}", values.collect::<Result<Vec<_>, _>>()?))
        });
        rows.extend(found.unwrap().map(Result::unwrap));
    }
    rows
}

fn request(entry: &Entry) -> Option<(String, bool)> {
    match &entry.what {
        JournalItem::Request { method, path, operation, .. } => {
            Some((format!("{method} {path}"), operation.is_mutation()))
        }
        JournalItem::Change(_) => None,
    }
}

/// Pauses the first worker as soon as the BMC has got its request number `pause`; `None` when the job needs fewer.
/// `fenced`: whether the paused worker's clock goes on, so that it can know that its lease is over.
async fn wake(pause: u64, fenced: bool) -> Option<Woken> {
    let mut woken = Box::pin(try_to_wake(pause, fenced)).await?;
    for _ in 1..TRIES {
        if woken.at == pause {
            break;
        }
        woken = Box::pin(try_to_wake(pause, fenced)).await?;
    }
    Some(woken)
}

/// One try: on a busy machine the worker may be further when it is paused, and two requests may be on their way at once.
async fn try_to_wake(pause: u64, fenced: bool) -> Option<Woken> {
    let bench = Bench::new(|twin| twin.starts_on = true).await;
    // Work for every step: a host to be switched off, slots to be emptied.
    for slot in ["CD1", "CD2"] {
        bench.occupy(slot).await;
    }
    let ready = bench.twin.snapshot().requests;
    let stopped = Arc::new(ManualClock::new(bench.clock.now()));
    let clock = if fenced { &bench.clock } else { &stopped };
    let first = bench.engine("one", clock, |kind| kind);
    let id = bench.order(&first).await;
    let mut zombie = pin!(async {
        // One worker's life: until it finds nothing to do.
        first.run_until_idle().await.unwrap();
    });
    let paused = tokio::select! {
        biased;
        // Looked at first: the answer that wakes the worker comes after its request was counted.
        twin = bench.twin.wait_for(|twin| twin.requests >= ready + pause) => Some(twin.requests - ready),
        () = &mut zombie => None,
    };
    let at = paused?;
    // From here on nobody looks at it: the worker stands still with a request on its way.
    bench.twin.wait_for(|twin| twin.in_flight == 0).await;
    bench.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    let run = bench.carry_out(&bench.sound("two"), id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{:#?}", bench.events(id).await);
    let (ended, before) = (bench.twin.journal().last().map_or(0, |entry| entry.sequence), written(&bench));

    timeout(STUCK, zombie).await.expect("a zombie comes to its end");
    let sent: Vec<(String, bool)> =
        bench.twin.journal().iter().filter(|entry| entry.sequence > ended).filter_map(request).collect();
    Some(Woken {
        at,
        mutated: sent.iter().any(|(_, mutation)| *mutation),
        sent: sent.into_iter().map(|(request, _)| request).collect(),
        wrote: written(&bench) != before,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_up_after_its_lease_writes_nothing_and_sends_nothing_wherever_it_stood() {
    let mut wrong = Vec::new();
    for pause in 1.. {
        let Some(woken) = wake(pause, true).await else {
            assert!(pause > 10, "a job takes more requests than {pause}");
            break;
        };
        if woken.wrote || !woken.sent.is_empty() {
            wrong.push(format!("paused at request {pause}: wrote {}, sent {:?}", woken.wrote, woken.sent));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The mutant: a fence that always allows, because the clock it goes by stands still.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_always_allows_is_caught() {
    let mut caught = false;
    for pause in 1.. {
        let Some(woken) = wake(pause, false).await else { break };
        assert!(!woken.wrote, "the epoch in the database needs no clock");
        caught |= woken.mutated;
    }
    assert!(caught, "no zombie changed the machine although nothing kept it from it");
}
