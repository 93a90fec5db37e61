//! The workflows in a worker elsewhere. Every command crosses a link as JSON (decision D33).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lab_bmc::JournalItem;

use firmware::Component;
use model::{Clock, ManualClock, Outcome, RunId};
use upkeep::UpkeepAction;
use upkeep::order::{HardCycle, ReadInventory, SoftCycle};

use crate::firmware::{order, vendor};
use crate::kit::{Bench, GRACE, LEASE, SERIAL};

/// A late worker that has not ended after this time is stuck.
const STUCK: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn power_cycles_and_the_inventory_are_executed_elsewhere() {
    let bench = Bench::new().await;
    let worker = bench.worker("w1");
    let actions = [
        UpkeepAction::Inventory(ReadInventory::default()),
        UpkeepAction::Hard(HardCycle::default()),
        UpkeepAction::Soft(SoftCycle { force: true, ..SoftCycle::default() }),
    ];
    for action in actions {
        let kind = action.kind();
        let id = bench.order(action).await;
        let run = bench.run_to_end(&worker, id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{kind}: {}", bench.stored(id).await);
    }
    let hardware = bench.store.server_hardware(&SERIAL.parse().unwrap()).await.unwrap();
    assert!(hardware.is_some(), "the inventory of the worker is stored");
    assert_eq!(bench.sim_bmc.snapshot().open_sessions, 0);
}

/// What a late worker did after it continued.
struct Late {
    mutated: bool,
    wrote: bool,
    sent: usize,
    /// The firmware images that arrived, of all workers.
    images: u64,
    /// Whether the run succeeded.
    succeeded: bool,
    /// Whether it was paused between the record of the last piece of an image and the record of its response.
    is_open: bool,
}

/// What a late worker was about to do.
#[derive(Clone, Copy)]
enum Work {
    HardCycle,
    Firmware,
}

impl Work {
    async fn bench(self) -> (Bench, UpkeepAction) {
        match self {
            Self::HardCycle => (Bench::new().await, UpkeepAction::Hard(HardCycle::default())),
            Self::Firmware => {
                let config = vendor("generic");
                let (files, action) = order(&config, &[Component::Bios]);
                (Bench::with_files(config, files).await, action)
            }
        }
    }

    /// How many images a run sends.
    fn images(self) -> u64 {
        match self {
            Self::HardCycle => 0,
            Self::Firmware => 1,
        }
    }
}

/// Whether the record says that an image may have arrived, and not yet what the BMC responded.
async fn is_open(bench: &Bench, id: RunId) -> bool {
    let snapshot = bench.store.snapshot(id).await.unwrap().unwrap();
    snapshot.steps.iter().any(|record| {
        let output = &record.output;
        record.name == "firmware.upload"
            && output["prepared"].is_object()
            && output["incomplete"] == false
            && output["handle"].is_null()
    })
}

/// Pauses the first worker as soon as the BMC has received request number `pause`; another worker ends the run, then the first
/// one continues. `None` when the run needs fewer requests. `obeys`: whether the first worker can notice that its lease is lost, by
/// its clock and by its checkpoints.
async fn late_worker(work: Work, pause: u64, obeys: bool) -> Option<Late> {
    let (bench, action) = work.bench().await;
    let ready = bench.sim_bmc.snapshot().requests;
    let stopped = Arc::new(ManualClock::new(bench.clock.now()));
    let first = bench.worker_with("w1", if obeys { &bench.clock } else { &stopped }, obeys);
    let id = bench.order(action).await;
    let mut late = pin!(first.run_until_idle());
    let paused = tokio::select! {
        biased;
        _ = bench.sim_bmc.wait_for(|sim_bmc| sim_bmc.requests >= ready + pause) => true,
        _ = &mut late => false,
    };
    if !paused {
        return None;
    }
    // The future of the first worker is not polled from here on. All runs on one thread: between the request and this line the
    // first worker had no turn, so it is paused at that request and not at a later one.
    bench.sim_bmc.wait_for(|sim_bmc| sim_bmc.in_flight == 0).await;
    let is_open = is_open(&bench, id).await;
    bench.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    let run = bench.run_to_end(&bench.worker("w2"), id).await;
    let succeeded = run.outcome == Some(Outcome::Succeeded);
    let unknown = run.failure.is_some_and(|failure| failure.class.as_str() == "upload_unknown");
    assert!(unknown || succeeded, "{}", bench.stored(id).await);
    let (ended, before) =
        (bench.sim_bmc.journal().last().map_or(0, |entry| entry.sequence), bench.stored(id).await);
    tokio::time::timeout(STUCK, late).await.expect("the late worker ends");
    let later: Vec<bool> = bench
        .sim_bmc
        .journal()
        .iter()
        .filter(|entry| entry.sequence > ended)
        .filter_map(|entry| match &entry.what {
            JournalItem::Request { operation, .. } => Some(operation.is_mutation()),
            JournalItem::Change(_) => None,
        })
        .collect();
    let mutated = later.contains(&true);
    let images = bench.sim_bmc.snapshot().images;
    let wrote = bench.stored(id).await != before;
    Some(Late { mutated, wrote, sent: later.len(), images, succeeded, is_open })
}

#[tokio::test]
async fn a_worker_elsewhere_that_is_late_at_any_request_writes_nothing_and_changes_no_bmc() {
    late_at_any_request(Work::HardCycle, 5).await;
}

/// At the upload of an image too: its successor sends the image, or finds it. Only for a worker that was paused while the last piece
/// was under way it may stay unknown whether the image arrived.
#[tokio::test]
async fn a_worker_elsewhere_that_is_late_with_firmware_sends_nothing_more_and_no_image_twice() {
    late_at_any_request(Work::Firmware, 15).await;
}

async fn late_at_any_request(work: Work, least: u64) {
    let (mut wrong, mut open) = (Vec::new(), 0);
    for pause in 1.. {
        let Some(late) = Box::pin(late_worker(work, pause, true)).await else {
            assert!(pause > least, "the run needs more than {pause} requests");
            break;
        };
        open += u32::from(late.is_open);
        let ended = late.succeeded && late.images == work.images();
        let unknown = late.is_open && !late.succeeded && late.images <= 1;
        if late.wrote || late.mutated || late.sent > 0 || !(ended || unknown) {
            let Late { wrote, sent, images, succeeded, .. } = late;
            wrong.push(format!(
                "paused at {pause}: wrote {wrote}, sent {sent}, {images} images, succeeded {succeeded}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(open <= 1, "an upload is one request, and {open} were under way");
}

/// The mutant: a fence that always allows, because the clock of the worker does not advance, and checkpoints that never say that the
/// lease is lost.
#[tokio::test]
async fn a_worker_elsewhere_that_ignores_its_lease_is_caught() {
    let mut caught = false;
    for pause in 1.. {
        let Some(late) = Box::pin(late_worker(Work::HardCycle, pause, false)).await else { break };
        assert!(!late.wrote, "the epoch in the database needs no clock of the worker");
        caught |= late.mutated;
    }
    assert!(caught, "no late worker changed the machine although none noticed that its lease was lost");
}
