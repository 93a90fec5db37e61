//! A run that waited until the end of its maintenance window sends nothing: what is stored would be used at any later restart.

use std::time::Duration;

use serde_json::json;

use firmware::Component;
use model::{Outcome, Time};
use upkeep::{ConditionKind, UpkeepAction};

use crate::firmware::{order, vendor};
use crate::images::Files;
use crate::kit::Bench;

/// Orders an action, lets its window pass while the run waits for a worker, and returns what it failed with.
async fn waited_too_long(files: Files, action: UpkeepAction) -> (Bench, String) {
    let bench = Bench::with_files(vendor("generic"), files).await;
    let id = bench.order(action).await;
    bench.clock.advance(Duration::from_secs(3601));
    let run = bench.run_to_end(&bench.worker("w1"), id).await;
    let stored = bench.stored(id).await;
    let failure = run.failure.unwrap_or_else(|| panic!("{stored}"));
    assert_eq!(failure.class.as_str(), "window_over", "{stored}");
    for said in ["2026-11-20T09:00:00", "nothing was sent"] {
        assert!(failure.summary.contains(said), "{said} is not in {}", failure.summary);
    }
    (bench, stored)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_image_is_sent_after_the_end_of_the_window() {
    // Firmware of the BMC restarts only the BMC, and belongs to the change that the window is for.
    for component in [Component::Bios, Component::Bmc] {
        let (files, action) = order(&vendor("generic"), &[component]);
        let UpkeepAction::Firmware(mut install) = action else { panic!("another action") };
        install.restart_until = Some("2026-11-20T09:00:00Z".parse().unwrap());
        let (bench, stored) = waited_too_long(files, UpkeepAction::Firmware(install)).await;
        let end = bench.sim_bmc.snapshot();
        assert_eq!((end.images, end.updates_started, end.power_ons), (0, 0, 0), "{component}: {stored}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_ends_between_two_components_says_what_was_sent() {
    let config = vendor("generic");
    let (files, action) = order(&config, &[Component::Bmc, Component::Bios]);
    let UpkeepAction::Firmware(mut install) = action else { panic!("another action") };
    let until = "2026-11-20T08:15:00Z".parse().unwrap();
    install.restart_until = Some(until);
    let bench = Bench::with_files(config, files).await;
    let (worker, id) = (bench.worker("w1"), bench.order(UpkeepAction::Firmware(install)).await);
    // The first component is installed and read, then the window ends.
    bench.run_to_wait(&worker, id, "version").await;
    bench.clock.advance(until.since(bench.clock_now()));
    let run = bench.run_to_end(&worker, id).await;
    let stored = bench.stored(id).await;
    let failure = run.failure.unwrap_or_else(|| panic!("{stored}"));
    assert_eq!(failure.class.as_str(), "window_over", "{stored}");
    for said in ["2026-11-20T08:15:00", "before bios 99.1 could be sent", "nothing more was sent"] {
        assert!(failure.summary.contains(said), "{said} is not in {}", failure.summary);
    }
    assert_eq!(bench.sim_bmc.snapshot().images, 1, "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn firmware_that_needs_no_restart_of_the_host_is_sent_in_the_window_and_other_firmware_before() {
    let from: Time = "2026-11-20T20:00:00Z".parse().unwrap();
    for (component, waits) in [(Component::Bmc, true), (Component::Bios, false)] {
        let config = vendor("generic");
        let (files, action) = order(&config, &[component]);
        let UpkeepAction::Firmware(mut install) = action else { panic!("another action") };
        install.restart_from = Some(from);
        let bench = Bench::with_files(config, files).await;
        let (worker, id) = (bench.worker("w1"), bench.order(UpkeepAction::Firmware(install)).await);
        bench.run_to_wait(&worker, id, "restart_window").await;
        assert_eq!(bench.sim_bmc.snapshot().images, u64::from(!waits), "{}", bench.stored(id).await);
        let run = bench.run_to_end(&worker, id).await;
        let stored = bench.stored(id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{component}: {stored}");
        assert!(bench.clock_now() >= from && bench.sim_bmc.snapshot().images == 1, "{component}: {stored}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_settings_are_sent_after_the_end_of_the_window() {
    let parameters =
        json!({ "attributes": { "BootMode": "Legacy" }, "restart_until": "2026-11-20T09:00:00Z" });
    let action = UpkeepAction::of(ConditionKind::BiosApply, parameters).unwrap();
    let (bench, stored) = waited_too_long(Files::default(), action).await;
    assert_eq!((bench.sim_bmc.bios_writes(), bench.sim_bmc.power_ons()), (0, 0), "{stored}");
}
