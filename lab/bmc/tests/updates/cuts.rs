//! Every request of an update is lost once, before and after it is carried out, and the controller's process ends there.

use lab_bmc::{Fault, FaultEffect, FaultTrigger};

use crate::kit::{Bench, Stored, Wanted};

/// Vendors whose starts differ: one request, two requests, no task, a URL and a task that only the list shows,
/// a stored upload.
const VENDORS: [&str; 5] = ["generic", "smc-x12", "hpe-ilo6", "smc-x11-cfgcd", "dell-idrac8"];

/// Runs an update with a fault at request `at`; every error ends the process. Returns whether the fault was used.
async fn run(vendor: &str, component: &'static str, at: u32, effect: FaultEffect) -> bool {
    let mut bench = Bench::new(vendor, Wanted::new(component, "99.1")).await;
    bench.sim.inject(Fault::once(FaultTrigger::Anything, effect.clone()).after(at));
    let mut stored = Stored::default();
    let mut ends = 0;
    let installed = loop {
        match bench.run(&mut stored).await {
            Ok(installed) => break installed,
            Err(error) => {
                ends += 1;
                assert!(ends < 5, "{vendor}, request {at}, {effect:?}: {error}");
                bench.new_process();
            }
        }
    };
    let end = bench.sim.snapshot();
    let context = format!("{vendor} {component}, request {at}, {effect:?}: {:?}", bench.states);
    assert!(installed, "{context}");
    assert_eq!((end.images, end.updates_started), (1, 1), "an image arrived twice: {context}");
    bench.sim.faults().is_empty()
}

/// The number of requests of a discovery, which every process sends first and other tests cut.
async fn requests_of_discovery(vendor: &str) -> u32 {
    let bench = Bench::new(vendor, Wanted::new("bios", "99.1")).await;
    bench.discover().await.unwrap();
    u32::try_from(bench.sim.snapshot().requests).unwrap()
}

async fn lose_each_request(vendor: &str, component: &'static str) {
    let first = requests_of_discovery(vendor).await;
    for effect in [FaultEffect::Drop, FaultEffect::ApplyButDrop] {
        let mut at = first;
        while run(vendor, component, at, effect.clone()).await {
            at += 1;
            assert!(at < 200, "{vendor}: the run does not end");
        }
        assert!(at > first + 8, "{vendor}: only {} requests were lost", at - first);
    }
}

#[tokio::test]
async fn no_image_of_a_bios_arrives_twice_whichever_request_is_lost() {
    for vendor in VENDORS {
        lose_each_request(vendor, "bios").await;
    }
}

#[tokio::test]
async fn no_image_of_a_bmc_arrives_twice_whichever_request_is_lost() {
    for vendor in ["generic", "hpe-ilo6"] {
        lose_each_request(vendor, "bmc").await;
    }
}

/// The mutant of this harness: a caller that does not look first.
#[tokio::test]
async fn a_caller_that_starts_again_without_looking_is_noticed() {
    let bench = Bench::new("generic", Wanted::new("bios", "99.1")).await;
    bench.discover().await.unwrap();
    bench.sim.inject(Fault::once(FaultTrigger::Update, FaultEffect::ApplyButDrop));
    let prepared = bench.prepare().await.unwrap();
    for _ in 0..2 {
        // Maybe accepted both times: the second upload finds the BMC busy.
        bench.start(&prepared).await.unwrap();
    }
    assert_eq!(bench.sim.snapshot().images, 2);
}
