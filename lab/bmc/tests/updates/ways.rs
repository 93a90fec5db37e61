//! Each vendor's way end to end.

use redfish::update::UpdateRoute;
use redfish::{UpdateState, profile::UpdateWay};

use crate::kit::{Bench, Stored, Wanted};

/// The vendors with an update service, and the way that is chosen.
const WAYS: [(&str, UpdateWay); 17] = [
    ("generic", UpdateWay::Multipart),
    ("dell-idrac8", UpdateWay::Push),
    ("dell-idrac9-5", UpdateWay::Multipart),
    ("dell-idrac9-6", UpdateWay::Multipart),
    ("dell-idrac10", UpdateWay::Multipart),
    ("hpe-ilo5", UpdateWay::Push),
    ("hpe-ilo6", UpdateWay::Push),
    ("lenovo-xcc", UpdateWay::Multipart),
    ("lenovo-xcc3", UpdateWay::Multipart),
    ("lenovo-tsm", UpdateWay::Multipart),
    ("smc-x11-cfgcd", UpdateWay::Simple),
    ("smc-x12", UpdateWay::Multipart),
    ("ami-megarac", UpdateWay::Multipart),
    ("openbmc", UpdateWay::Multipart),
    ("nvidia-dgx-h100", UpdateWay::Multipart),
    ("fujitsu-irmc", UpdateWay::Simple),
    ("huawei-ibmc", UpdateWay::Simple),
];
/// The most requests of one update, beside its polls.
const MOST_REQUESTS: u64 = 30;

#[tokio::test]
async fn every_vendor_updates_its_bios_in_its_own_way() {
    for (vendor, way) in WAYS {
        let mut bench = Bench::new(vendor, Wanted::new("bios", "99.1")).await;
        let installed = bench.run(&mut Stored::default()).await;
        let installed = installed.unwrap_or_else(|error| panic!("{vendor}: {error}, {:?}", bench.states));
        assert!(installed, "{vendor}: {:?}", bench.states);
        let end = bench.sim.snapshot();
        assert_eq!((end.images, end.updates_started), (1, 1), "{vendor}");
        let beside = end.requests - bench.polls;
        assert!(beside <= MOST_REQUESTS, "{vendor}: {beside} requests beside {} of polls", bench.polls);
        let prepared = bench.prepare().await.unwrap();
        assert_eq!(prepared.choice.route.way(), way, "{vendor}: {}", prepared.choice.why());
    }
}

#[tokio::test]
async fn every_vendor_updates_its_bmc_which_restarts_in_the_middle() {
    for (vendor, _) in WAYS.into_iter().chain([("nvidia-gb200", UpdateWay::Multipart)]) {
        let mut bench = Bench::new(vendor, Wanted::new("bmc", "99.1")).await;
        let installed = bench.run(&mut Stored::default()).await;
        let installed = installed.unwrap_or_else(|error| panic!("{vendor}: {error}, {:?}", bench.states));
        assert!(installed, "{vendor}: {:?}", bench.states);
        let away = |state: &UpdateState| matches!(state, UpdateState::Away { .. });
        assert!(bench.states.iter().any(away), "{vendor}: {:?}", bench.states);
        let found = bench.discover().await.unwrap();
        let shown = found.manager.unwrap().firmware.unwrap();
        assert!(shown.as_str().contains("99.1"), "{vendor}: {shown}");
        assert_eq!(bench.sim.snapshot().images, 1, "{vendor}");
    }
}

#[tokio::test]
async fn each_way_is_taken_when_the_others_are_not_offered() {
    for (way, form) in [("simple", "simple"), ("push", "push"), ("multipart", "multipart")] {
        let mut bench = Bench::new("generic", Wanted::new("Network adapter", "22.99")).await;
        let flags = serde_json::json!({ "update_ways": [way] });
        let flags = redfish::profile::Flags::parse(flags.as_object().unwrap()).unwrap();
        bench.override_flags(flags);
        assert!(bench.run(&mut Stored::default()).await.unwrap());
        let prepared = bench.prepare().await.unwrap();
        assert_eq!(prepared.choice.route.way().as_str(), form);
        assert_eq!(bench.sim.snapshot().images, 1);
    }
}

#[tokio::test]
async fn a_staged_upload_of_an_older_bmc_is_started_by_its_path() {
    let bench = Bench::new("dell-idrac8", Wanted::new("bios", "2.19.1")).await;
    bench.discover().await.unwrap();
    let prepared = bench.prepare().await.unwrap();
    assert!(matches!(prepared.choice.route, UpdateRoute::Push { then: Some(_), .. }));
    let started = bench.start(&prepared).await.unwrap();
    assert!(!started.handle().has_task());
    assert_eq!(bench.bmc.poll_update(started.handle()).await.unwrap().state, UpdateState::Uploaded);
    assert_eq!(bench.sim.snapshot().updates_started, 0, "the upload alone starts nothing");
    let started = bench.bmc.start_uploaded(started.handle()).await.unwrap();
    assert!(started.handle().has_task());
    bench.sim.skip_flash_time(crate::kit::LONG);
    let poll = bench.bmc.poll_update(started.handle()).await.unwrap();
    assert_eq!(poll.state, UpdateState::NeedsHostRestart, "{:?}", poll.messages);
}
