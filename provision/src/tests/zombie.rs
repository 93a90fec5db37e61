//! Zombies: a worker is paused at a request to the BMC for longer than its lease, another worker ends the job, and the first
//! worker continues. It writes nothing and sends nothing.

use std::pin::pin;

use lab_bmc::{JournalEntry, JournalItem};
use rusqlite::Connection;
use tokio::time::timeout;

use super::bench::{Bench, GRACE, LEASE};
use super::*;

/// A zombie that has not ended after this time is stuck.
const STUCK: Duration = Duration::from_secs(30);

/// Maximum number of attempts to pause the worker at the wanted request.
const TRIES: usize = 10;

/// The actions of a zombie after it continued: the requests it sent, and whether the database changed.
struct ZombieResult {
    /// The number of the request at which the zombie was paused.
    at: u64,
    sent: Vec<String>,
    mutated: bool,
    wrote: bool,
}

/// Returns all rows of the job tables as text.
fn written(bench: &Bench) -> Vec<String> {
    let database = Connection::open(bench.database()).unwrap();
    let tables = [
        "runs",
        "run_steps",
        "run_inputs",
        "signals",
        "locks",
        "jobs",
        "events",
        "media_grants",
        "media_inputs",
    ];
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

fn request(entry: &JournalEntry) -> Option<(String, bool)> {
    match &entry.what {
        JournalItem::Request { method, path, operation, .. } => {
            Some((format!("{method} {path}"), operation.is_mutation()))
        }
        JournalItem::Change(_) => None,
    }
}

/// Pauses the first worker as soon as the BMC has received request number `pause`; `None` when the job needs fewer requests.
/// `fenced`: whether the paused worker's clock advances, so that it can see that its lease has ended.
async fn wake_zombie(pause: u64, fenced: bool) -> Option<ZombieResult> {
    let mut result = Box::pin(try_wake_zombie(pause, fenced)).await?;
    for _ in 1..TRIES {
        if result.at == pause {
            break;
        }
        result = Box::pin(try_wake_zombie(pause, fenced)).await?;
    }
    Some(result)
}

/// One attempt: on a busy machine the worker may be further when it is paused, and two requests may be in flight.
async fn try_wake_zombie(pause: u64, fenced: bool) -> Option<ZombieResult> {
    let bench = Bench::new(|sim_bmc| sim_bmc.starts_on = true).await;
    // Work for every step: a host that is on, slots that hold media.
    for slot in ["CD1", "CD2"] {
        bench.occupy(slot).await;
    }
    let ready = bench.sim_bmc.snapshot().requests;
    let stopped = Arc::new(ManualClock::new(bench.clock.now()));
    let clock = if fenced { &bench.clock } else { &stopped };
    let first = bench.engine("one", clock, |workflow| workflow);
    let id = bench.order(&first).await;
    let mut zombie = pin!(async {
        // The whole life of one worker: until nothing is due.
        first.run_until_idle().await.unwrap();
    });
    let paused = tokio::select! {
        biased;
        // Polled first: the response that wakes the worker comes after its request was counted.
        sim_bmc = bench.sim_bmc.wait_for(|sim_bmc| sim_bmc.requests >= ready + pause) => Some(sim_bmc.requests - ready),
        () = &mut zombie => None,
    };
    let at = paused?;
    // The worker's future is not polled from here on: it is paused with a request in flight.
    bench.sim_bmc.wait_for(|sim_bmc| sim_bmc.in_flight == 0).await;
    bench.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    let run = bench.run_to_end(&bench.plain_engine("two"), id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{:#?}", bench.events(id).await);
    let (ended, before) = (bench.sim_bmc.journal().last().map_or(0, |entry| entry.sequence), written(&bench));

    timeout(STUCK, zombie).await.expect("the zombie ends");
    let sent: Vec<(String, bool)> =
        bench.sim_bmc.journal().iter().filter(|entry| entry.sequence > ended).filter_map(request).collect();
    Some(ZombieResult {
        at,
        mutated: sent.iter().any(|(_, mutation)| *mutation),
        sent: sent.into_iter().map(|(request, _)| request).collect(),
        wrote: written(&bench) != before,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_paused_past_its_lease_at_any_request_writes_nothing_and_sends_nothing() {
    let mut wrong = Vec::new();
    for pause in 1.. {
        let Some(result) = wake_zombie(pause, true).await else {
            assert!(pause > 10, "a job needs more than {pause} requests");
            break;
        };
        if result.wrote || !result.sent.is_empty() {
            wrong.push(format!("paused at request {pause}: wrote {}, sent {:?}", result.wrote, result.sent));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The mutant: a fence that always allows, because its clock does not advance.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_always_allows_is_caught() {
    let mut caught = false;
    for pause in 1.. {
        let Some(result) = wake_zombie(pause, false).await else { break };
        assert!(!result.wrote, "the epoch in the database needs no clock");
        caught |= result.mutated;
    }
    assert!(caught, "no zombie changed the machine although its fence allows everything");
}
