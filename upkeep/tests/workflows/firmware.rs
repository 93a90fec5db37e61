//! Installations of firmware on BMCs of every vendor, by upload and from a URL: how many requests they cost, and workers that die.

#![allow(clippy::print_stdout, reason = "the numbers of requests are for the reader of the run")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{Component as Kind, FirmwareItem, Power, SimBmcConfig, VENDORS, firmware_image};
use redfish::Hardware;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use bmc::test_support::PASSWORD;
use firmware::{Component, Entry, FirmwareFile, ServerFirmware, Sha256Digest};
use model::{Outcome, RunId, Server};
use upkeep::{ConditionKind, UpkeepAction};

use crate::counted::Reported;
use crate::images::Files;
use crate::kit::{Bench, SERIAL};

/// The version of every image.
pub(crate) const NEW: &str = "99.1";
/// Bytes of an image: more than one piece of an upload.
const SIZE: usize = 150_000;
/// The most requests of one component beside the polls.
const MOST: u64 = 30;
/// The most requests of the steps of a whole run: the identity, the plan, the inventory at the end, the power.
const MOST_OF_RUN: u64 = 60;

/// A BMC of a vendor whose delays are short.
pub(crate) fn vendor(name: &str) -> SimBmcConfig {
    let mut config = SimBmcConfig::vendor(name, SERIAL, "root", PASSWORD).unwrap().in_time(0.0);
    config.update.check_time = Duration::ZERO;
    config.update.flash_time = Duration::ZERO;
    config.update.restart_time = Duration::ZERO;
    config
}

/// BMC and BIOS, as far as the BMC shows them.
fn components(config: &SimBmcConfig) -> Vec<Component> {
    let has = |kind: Kind| config.service.firmware.iter().any(|item| item.component == kind);
    let all = [(Kind::Bmc, Component::Bmc), (Kind::Bios, Component::Bios)];
    all.into_iter().filter(|(kind, _)| has(*kind)).map(|(_, component)| component).collect()
}

/// One file for each of the components, and the order that installs them.
pub(crate) fn order(config: &SimBmcConfig, components: &[Component]) -> (Files, UpkeepAction) {
    let identity = &config.identity;
    let of = |component: &Component| {
        (*component, component.to_string(), identity.manufacturer.as_str(), identity.model.as_str())
    };
    order_of(components.iter().map(of))
}

/// One file for all network adapters of a maker, and the order that installs it.
pub(crate) fn order_of_nics(maker: &str, model: &str) -> (Files, UpkeepAction) {
    order_of([(Component::Nic, model.to_owned(), maker, model)])
}

/// Files for a component, each with what the simulated BMC takes its image for, maker and model; and the order that installs them.
fn order_of<'a>(
    of: impl IntoIterator<Item = (Component, String, &'a str, &'a str)>,
) -> (Files, UpkeepAction) {
    let (mut files, mut entries) = (BTreeMap::new(), Vec::new());
    for (component, image_of, maker, model) in of {
        let image: Arc<[u8]> = firmware_image(&image_of, NEW, None, SIZE).into();
        let of = (maker.parse().unwrap(), BTreeSet::from([model.parse().unwrap()]), component);
        let sha256 = Sha256Digest::new(Sha256::digest(&image).into());
        let name = format!("{component}.bin").parse().unwrap();
        let file = FirmwareFile::new(of, NEW, (name, sha256, image.len() as u64)).unwrap();
        let digest = format!("sha256:{}", file.sha256.hex());
        let repository = firmware::repository(&file.vendor, file.component);
        entries.push(Entry { repository, digest: digest.clone(), file: file.clone() });
        files.insert(digest, (file, image));
    }
    let parameters = json!({ "firmware_set": "all", "allow_downgrade": true });
    let UpkeepAction::Firmware(mut install) =
        UpkeepAction::of(ConditionKind::FirmwareInstall, parameters).unwrap()
    else {
        panic!("another action")
    };
    install.files = entries;
    (Files(files), UpkeepAction::Firmware(install))
}

/// The simulated vendors whose BMC does this.
fn vendors(does: impl Fn(&SimBmcConfig) -> bool) -> Vec<(&'static str, SimBmcConfig)> {
    let all = VENDORS.iter().map(|known| (known.name, vendor(known.name)));
    all.filter(|(_, config)| does(config)).collect()
}

/// The requests of one run for each of its components, beside the polls, where they are too many. `""` is what the run itself needs.
fn too_many(name: &str, calls: &[Reported]) -> Vec<String> {
    let sum = |of: &dyn Fn(&Reported) -> bool| -> u64 {
        calls.iter().filter(|call| of(call)).map(|call| call.requests).sum()
    };
    let keys: BTreeSet<&str> = calls.iter().map(|call| call.key.as_str()).collect();
    let each: Vec<(&str, u64)> =
        keys.into_iter().map(|key| (key, sum(&|call| call.key == key && !is_poll(call)))).collect();
    println!("{name}: {each:?}, polls {}", sum(&is_poll));
    let most = |key: &str| if key.is_empty() { MOST_OF_RUN } else { MOST };
    let wrong = each.into_iter().filter(|(key, requests)| *requests > most(key));
    wrong
        .map(|(key, requests)| {
            let calls: Vec<String> = calls
                .iter()
                .filter(|call| call.key == key && call.requests > 0)
                .map(|call| format!("{} {}", call.step, call.requests))
                .collect();
            format!("{name} {key}: {requests}: {calls:?}")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_of_any_vendor_costs_at_most_thirty_requests_beside_the_polls() {
    let mut wrong = Vec::new();
    for (name, config) in vendors(|config| config.update.multipart.is_some() || config.update.push.is_some())
    {
        let components = components(&config);
        let (files, action) = order(&config, &components);
        let bench = Bench::with_files(config, files).await;
        let id = bench.order(action).await;
        let run = bench.run_to_end(&bench.worker("w1"), id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{name}: {}", bench.stored(id).await);
        let images = bench.sim_bmc.snapshot().images;
        assert_eq!(images, components.len() as u64, "{name}: every image arrived once");
        wrong.extend(too_many(name, &bench.calls.all()));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// BMCs that take uploads too read the image here: an operator may order it so.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_whose_image_the_bmc_reads_costs_at_most_thirty_requests_beside_the_polls() {
    let (mut wrong, mut only_readers) = (Vec::new(), 0);
    for (name, config) in vendors(|config| config.update.simple.is_some()) {
        only_readers += u32::from(config.update.multipart.is_none() && config.update.push.is_none());
        let components = components(&config);
        let (files, action) = order(&config, &components);
        let simple = config.update.simple.as_ref().unwrap();
        let scheme = if simple.protocols.iter().any(|known| known == "HTTP") { "http" } else { "https" };
        let bench = Bench::with_files(config, files).await;
        let quirks = json!({ "update_ways": ["simple"] }).as_object().cloned();
        let media_base_url = Some(format!("{scheme}://192.0.2.1"));
        bench.change(|server| Server { quirks, media_base_url, ..server }).await;
        let run = bench.run_here(action).await;
        let stored = bench.stored(run.id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{name}: {stored}");
        assert_eq!(stored.matches("was read by the BMC").count(), components.len(), "{name}: {stored}");
        let images = bench.sim_bmc.snapshot().images;
        assert_eq!(images, components.len() as u64, "{name}: every image arrived once");
        wrong.extend(too_many(name, &bench.calls.all()));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(only_readers, 3, "BMCs that take no upload at all");
}

/// A file for a device of another maker than the server.
pub(crate) fn of_another_maker(digest: &str) -> Entry {
    let models = BTreeSet::from(["Network adapter".parse().unwrap()]);
    let of = ("Contoso".parse().unwrap(), models, Component::Nic);
    let sha256 = Sha256Digest::new(Sha256::digest(digest).into());
    let file = FirmwareFile::new(of, NEW, ("nic.bin".parse().unwrap(), sha256, 7)).unwrap();
    Entry { repository: "firmware/contoso/nic".to_owned(), digest: digest.to_owned(), file }
}

/// A network adapter that the file of [`of_another_maker`] is for.
pub(crate) fn nic(id: &str) -> FirmwareItem {
    FirmwareItem {
        id: id.to_owned(),
        name: "Network adapter".to_owned(),
        version: "22.1".to_owned(),
        updateable: true,
        manufacturer: Some("Contoso".to_owned()),
        ..FirmwareItem::default()
    }
}

/// The plan of a run that has ended.
pub(crate) async fn plan_of(bench: &Bench, id: RunId) -> Value {
    let snapshot = bench.store.snapshot(id).await.unwrap().unwrap();
    let plan = snapshot.steps.iter().find(|record| record.name == "firmware.plan");
    plan.map(|record| record.output["items"].clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_of_the_stored_inventory_is_that_of_the_run_for_every_vendor() {
    let all = VENDORS.iter().map(|known| (known.name, vendor(known.name)));
    let mut checked = 0;
    for (name, mut config) in all.filter(|(_, config)| config.update.takes_images()) {
        let components = components(&config);
        if config.identity.model.is_empty() {
            continue;
        }
        let spare = FirmwareItem {
            id: "BIOS-B".to_owned(),
            name: "BIOS".to_owned(),
            version: NEW.to_owned(),
            state: Some("StandbySpare".to_owned()),
            ..FirmwareItem::default()
        };
        // A device of another maker, and an image that is stored and does not run.
        config.service.firmware.extend([nic("NIC9"), spare]);
        let (files, action) = order(&config, &components);
        let UpkeepAction::Firmware(mut install) = action else { panic!("another action") };
        install.files.push(of_another_maker(&format!("sha256:{}", "7".repeat(64))));
        let bench = Bench::with_files(config, files).await;
        let read = UpkeepAction::of(ConditionKind::InventoryOob, json!({})).unwrap();
        let read = bench.order(read).await;
        let run = bench.run_to_end(&bench.worker("w1"), read).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{name}: {}", bench.stored(read).await);
        let stored = bench.store.server_hardware(&SERIAL.parse().unwrap()).await.unwrap().unwrap();
        let shown = ServerFirmware::of(&Hardware::deserialize(&stored.hardware).unwrap()).unwrap();
        let preview = json!(upkeep::planned(&install, &shown).unwrap());
        let id = bench.order(UpkeepAction::Firmware(install)).await;
        bench.run_to_end(&bench.worker("w1"), id).await;
        assert_eq!(preview, plan_of(&bench, id).await, "{name}: {}", bench.stored(id).await);
        let decisions: Vec<&str> =
            preview.as_array().unwrap().iter().map(|item| item["decision"].as_str().unwrap()).collect();
        let installs = decisions.iter().filter(|decision| **decision == "install").count();
        assert!(installs > components.len() && installs == decisions.len(), "{name}: {preview:#}");
        checked += 1;
    }
    assert!(checked > 15, "only {checked} vendors take images");
}

/// Whether a call only looked: how far the update is, which version is installed, or whether a wait has ended.
fn is_poll(call: &Reported) -> bool {
    call.is_poll || ["firmware.watch", "firmware.verify"].contains(&call.step.as_str())
}

/// Stops the first worker for good as soon as the BMC has received request number `last`, and lets another one end the run.
/// Returns the class of the failure, if it failed, and the images that arrived; `None` when the run needs fewer requests.
async fn died_after(
    last: u64,
    (config, files, action): (&SimBmcConfig, &Files, &UpkeepAction),
) -> Option<(Option<String>, u64)> {
    let bench = Bench::with_files(config.clone(), files.clone()).await;
    let id = bench.order(action.clone()).await;
    let run = bench.run_with_a_death(last, id).await?;
    let end = bench.sim_bmc.snapshot();
    assert_eq!(end.power, Power::On, "died after request {last}: {}", bench.stored(id).await);
    let class = run.failure.map(|failure| failure.class.as_str().to_owned());
    Some((class, end.images))
}

/// The worker dies after each of these requests of the run.
async fn image_arrives_once_when_a_worker_dies(
    what: &str,
    requests: impl IntoIterator<Item = u64>,
    (config, files, action): (&SimBmcConfig, &Files, &UpkeepAction),
) {
    let mut unknown = 0;
    for last in requests {
        let Some((class, images)) = Box::pin(died_after(last, (config, files, action))).await else {
            assert!(last > 15, "{what}: the run needs more than {last} requests");
            break;
        };
        match class.as_deref() {
            None => assert_eq!(images, 1, "{what}: died after request {last}"),
            Some("upload_unknown") => {
                unknown += 1;
                assert!(images <= 1, "{what}: died after request {last}");
            }
            Some(other) => panic!("{what}: died after request {last}: {other}"),
        }
    }
    assert!(unknown <= 1, "{what}: {unknown} uploads stayed unknown");
}

#[tokio::test]
async fn a_worker_that_dies_at_any_request_leaves_an_image_that_arrives_once() {
    let config = vendor("generic");
    let (files, action) = order(&config, &[Component::Bios]);
    image_arrives_once_when_a_worker_dies("generic bios", 1.., (&config, &files, &action)).await;
}

/// The requests of a run from the one before its upload to the end of the first look at the update.
async fn around_the_upload(
    (config, files, action): (&SimBmcConfig, &Files, &UpkeepAction),
) -> RangeInclusive<u64> {
    let bench = Bench::with_files(config.clone(), files.clone()).await;
    let id = bench.order(action.clone()).await;
    bench.run_to_end(&bench.worker("w1"), id).await;
    let calls = bench.calls.all();
    let first = |step: &str| calls.iter().find(|call| call.step == step && call.requests > 0);
    let (upload, watch) = (first("firmware.upload").unwrap(), first("firmware.watch").unwrap());
    upload.seen - upload.requests..=watch.seen
}

#[tokio::test]
#[ignore = "takes minutes: a run for each request of each upload; .ci/run runs it"]
async fn a_worker_that_dies_at_any_request_sends_no_image_of_any_component_and_vendor_twice() {
    let takes_uploads =
        |config: &SimBmcConfig| config.update.multipart.is_some() || config.update.push.is_some();
    let mut orders = Vec::new();
    for (name, config) in vendors(takes_uploads) {
        for component in components(&config) {
            let (files, action) = order(&config, &[component]);
            orders.push((format!("{name} {component}"), config.clone(), files, action));
        }
    }
    let mut config = vendor("generic");
    config.service.firmware.push(nic("NIC1"));
    let (files, action) = order_of_nics("Contoso", "Network adapter");
    orders.push(("generic nic".to_owned(), config, files, action));
    let names: Vec<&str> = orders.iter().map(|(what, ..)| what.as_str()).collect();
    assert!(names.len() > 25 && names.contains(&"nvidia-gb200 bmc"), "{names:?}");
    for (what, config, files, action) in &orders {
        let requests = around_the_upload((config, files, action)).await;
        println!("{what}: {requests:?}");
        image_arrives_once_when_a_worker_dies(what, requests, (config, files, action)).await;
    }
}

/// This vendor names the entries of its inventory after their versions.
#[tokio::test(flavor = "multi_thread")]
async fn a_flash_is_compared_with_former_ones_of_its_component_whatever_their_versions() {
    let flash = Duration::from_secs(3600);
    let mut config = vendor("dell-idrac9-6");
    config.update.flash_time = flash;
    let (files, action) = order(&config, &[Component::Bios]);
    let bench = Bench::with_files(config, files).await;
    let worker = bench.worker("w1");
    let mut explained = Vec::new();
    for version in ["1.7.1", "1.7.2", "1.7.3", "1.7.4"] {
        bench.sim_bmc.replace_firmware(Kind::Bios, version).unwrap();
        let id = bench.order(action.clone()).await;
        bench.run_while(&worker, id, || !bench.sim_bmc.is_flashing()).await;
        let since = bench.clock_now();
        bench.run_while(&worker, id, || bench.clock_now().since(since) < Duration::from_secs(300)).await;
        explained.push(bench.explained(id).await);
        bench.sim_bmc.skip_flash_time(flash);
        let run = bench.run_to_end(&worker, id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{}", bench.stored(id).await);
    }
    assert!(!explained[2].contains("usually takes"), "two are too few: {}", explained[2]);
    assert!(
        explained[3].contains("usually takes") && explained[3].contains("median of 3 jobs"),
        "{}",
        explained[3]
    );
}
