//! Servers that lose mains power while their BMC flashes: what the run says, what it sends, and the power of the host afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use lab_bmc::{Component as Kind, Fault, FaultEffect, FaultTrigger, FlashFault, Power, SimBmcConfig};
use serde_json::{Value, json};

use firmware::Component;
use model::{Outcome, Run, RunId};
use upkeep::UpkeepAction;

use crate::firmware::{nic, order, order_of_nics, vendor};
use crate::images::Files;
use crate::kit::{Bench, Elsewhere, SERIAL};

/// The time that the BMC takes to write an image. It passes only when a test says so.
const FLASH: Duration = Duration::from_secs(3600);
/// How long the server is without power.
const AWAY: Duration = Duration::from_secs(7 * 60);

/// A BMC of a vendor that writes for as long as the test lets it.
fn slow(name: &str) -> SimBmcConfig {
    let mut config = vendor(name);
    config.update.flash_time = FLASH;
    config
}

/// A run that installs an image, at whose half the server loses power.
struct Losing {
    bench: Bench,
    worker: Elsewhere,
    id: RunId,
}

impl Losing {
    /// Begins to install the components on a server of the vendor.
    async fn begin(name: &str, components: &[Component], keeps_version: bool) -> Self {
        let config = slow(name);
        let order = order(&config, components);
        let loss = FlashFault::PowerLoss { away: FLASH, keeps_version };
        Self::of(config, order, &[FaultEffect::Flash(loss)]).await
    }

    /// Orders on a server with these faults of its next update.
    async fn of(
        config: SimBmcConfig,
        (files, action): (Files, UpkeepAction),
        faults: &[FaultEffect],
    ) -> Self {
        let bench = Bench::with_files(config, files).await;
        for fault in faults {
            bench.sim_bmc.inject(Fault::once(FaultTrigger::Update, fault.clone()));
        }
        let (worker, id) = (bench.worker("w1"), bench.order(action).await);
        Self { bench, worker, id }
    }

    /// Works until half of the image is written, and until the run knows that the BMC is away.
    async fn lose_power(&self) {
        let sim_bmc = &self.bench.sim_bmc;
        self.bench.run_while(&self.worker, self.id, || !sim_bmc.is_flashing()).await;
        sim_bmc.skip_flash_time(FLASH / 2);
        assert_eq!(sim_bmc.snapshot().power, Power::Off, "{}", self.bench.stored(self.id).await);
        self.bench.run_to_wait(&self.worker, self.id, "bmc_back").await;
    }

    /// The mains power is back after some minutes.
    async fn power_is_back(&self) {
        let since = self.bench.clock_now();
        self.bench.run_while(&self.worker, self.id, || self.bench.clock_now().since(since) < AWAY).await;
        assert!(!self.bench.has_ended(self.id).await, "{}", self.bench.stored(self.id).await);
        self.bench.sim_bmc.set_reachable(true);
    }

    /// Works to the end. Returns the run, and everything that is stored about it.
    async fn end(&self) -> (Run, String) {
        let run = self.bench.run_to_end(&self.worker, self.id).await;
        (run, self.bench.stored(self.id).await)
    }

    /// The update in the record of the server.
    async fn recorded(&self) -> Value {
        let server = self.bench.store.server(&SERIAL.parse().unwrap()).await.unwrap().unwrap();
        server.observed.map_or(Value::Null, |observed| observed["update"].clone())
    }
}

#[track_caller]
fn says(run: &Run, words: &[&str], stored: &str) {
    let failure = run.failure.as_ref().unwrap_or_else(|| panic!("no failure: {stored}"));
    assert_eq!(failure.class.as_str(), "power_lost", "{stored}");
    for said in words {
        assert!(failure.summary.contains(said), "{said} is not in {}", failure.summary);
    }
    assert!(failure.next_action.contains("power supplies"), "{}", failure.next_action);
}

/// Vendors that write the image while the host runs, and one that writes it while the host boots; with a task, and with a state of the
/// service.
#[tokio::test(flavor = "multi_thread")]
async fn a_flash_that_loses_power_is_explained_by_the_version_and_the_host_is_on_again() {
    for name in ["generic", "hpe-ilo6", "dell-idrac9-6"] {
        for keeps_version in [true, false] {
            let losing = Losing::begin(name, &[Component::Bios], keeps_version).await;
            let sim_bmc = losing.bench.sim_bmc.clone();
            let old = sim_bmc.versions_of(Kind::Bios).remove(0);
            losing.lose_power().await;
            losing.power_is_back().await;
            let back = losing.bench.clock_now();
            let ons = sim_bmc.power_ons();
            let (run, stored) = losing.end().await;
            let shown = if keeps_version { old.as_str() } else { "no version" };
            says(
                &run,
                &["bios 99.1", "lost power", "was away for", "host was off", shown, "not sent a second"],
                &stored,
            );
            let end = sim_bmc.snapshot();
            assert_eq!((end.images, end.updates_started), (1, 1), "{name}: {stored}");
            assert_eq!((end.power, end.power_ons), (Power::On, ons + 1), "{name}: {stored}");
            assert_eq!(stored.matches("\"firmware.power-lost\"").count(), 1, "{name}: {stored}");
            assert_eq!(losing.recorded().await, Value::Null, "{name}: nothing is left to the BMC: {stored}");
            let took = losing.bench.clock_now().since(back);
            assert!(took < Duration::from_secs(20 * 60), "{name}: {took:?}: {stored}");
        }
    }
}

/// A BMC restarts for its own firmware, so that its absence proves nothing: the version decides, and the host is left as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_flash_of_the_bmc_itself_ends_by_its_version_and_the_host_is_left_as_it_is() {
    let losing = Losing::begin("generic", &[Component::Bmc, Component::Bios], true).await;
    losing.lose_power().await;
    losing.power_is_back().await;
    let (run, stored) = losing.end().await;
    assert_eq!(run.failure.unwrap().class.as_str(), "version_unchanged", "{stored}");
    assert!(!stored.contains("power-lost"), "{stored}");
    let end = losing.bench.sim_bmc.snapshot();
    assert_eq!((end.images, end.power, end.power_ons), (1, Power::Off, 0), "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_an_operator_switches_off_during_the_flash_of_the_bmc_is_left_off() {
    let mut config = vendor("generic");
    config.update.restart_time = FLASH;
    let order = order(&config, &[Component::Bmc]);
    let losing = Losing::of(config, order, &[]).await;
    losing.bench.run_to_wait(&losing.worker, losing.id, "bmc_back").await;
    losing.bench.sim_bmc.switch_host_off();
    losing.power_is_back().await;
    let (run, stored) = losing.end().await;
    let end = losing.bench.sim_bmc.snapshot();
    assert_eq!(
        (run.outcome, end.power, end.power_ons),
        (Some(Outcome::Succeeded), Power::Off, 0),
        "{stored}"
    );
    assert!(!stored.contains("power-lost"), "{stored}");
}

/// The BMC loses its tasks without a restart, and the host is off: it may be writing.
#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_has_not_restarted_may_flash_a_host_that_is_off() {
    let losing = Losing::begin("generic", &[Component::Bios], true).await;
    let sim_bmc = &losing.bench.sim_bmc;
    losing.bench.run_while(&losing.worker, losing.id, || !sim_bmc.is_flashing()).await;
    let began = losing.bench.clock_now();
    sim_bmc.set_reachable(false);
    sim_bmc.reset_bmc();
    sim_bmc.switch_host_off();
    losing.bench.run_to_wait(&losing.worker, losing.id, "bmc_back").await;
    losing.power_is_back().await;
    let passed = || losing.bench.clock_now().since(began);
    losing.bench.run_while(&losing.worker, losing.id, || passed() < Duration::from_secs(55 * 60)).await;
    let (stored, now) = (losing.bench.stored(losing.id).await, sim_bmc.snapshot());
    assert_eq!((now.power, now.power_ons), (Power::Off, 0), "nothing is powered on in a flash: {stored}");
    let (run, stored) = losing.end().await;
    assert_eq!(run.failure.unwrap().class.as_str(), "version_unchanged", "{stored}");
    assert!(!stored.contains("power-lost"), "{stored}");
}

/// A BMC that starts can fail once more after its first responses.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_second_absence_does_not_hide_the_loss_of_power() {
    let losing = Losing::begin("generic", &[Component::Bios], true).await;
    losing.lose_power().await;
    let inventory =
        FaultTrigger::Request { method: "GET".to_owned(), path_ends_with: "/UpdateService".to_owned() };
    let starting = FaultEffect::Answer { status: 503, headers: BTreeMap::new(), body: String::new() };
    losing.bench.sim_bmc.inject(Fault::once(inventory, starting).times(2));
    losing.power_is_back().await;
    let (run, stored) = losing.end().await;
    says(&run, &["bios 99.1", "was away for 8 min"], &stored);
    assert!(losing.bench.sim_bmc.faults().is_empty(), "the second absence took place: {stored}");
    assert_eq!(losing.bench.sim_bmc.snapshot().power, Power::On, "{stored}");
}

/// The power fails after the image is written: the new version is shown, and the host is off.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_installed_counts_and_no_further_component_is_sent_before_a_look() {
    for (devices, outcome) in [(&["NIC1"][..], Outcome::Succeeded), (&["NIC1", "NIC2"][..], Outcome::Failed)]
    {
        let mut config = vendor("generic");
        config.service.firmware = devices.iter().map(|id| nic(id)).collect();
        let losing = Losing::of(config, order_of_nics("Contoso", "Network adapter"), &[]).await;
        losing.bench.run_to_wait(&losing.worker, losing.id, "version").await;
        let ons = losing.bench.sim_bmc.power_ons();
        losing.bench.sim_bmc.lose_power(FLASH);
        losing.power_is_back().await;
        let (run, stored) = losing.end().await;
        let end = losing.bench.sim_bmc.snapshot();
        assert_eq!((run.outcome, end.images), (Some(outcome), 1), "{stored}");
        assert_eq!((end.power, end.power_ons), (Power::On, ons + 1), "{stored}");
        assert_eq!(stored.matches("\"firmware.power-lost\"").count(), 1, "{stored}");
        if outcome == Outcome::Failed {
            says(&run, &["is not sent", "lost power"], &stored);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_the_server_is_without_power_ends_when_it_is_back_and_the_host_is_on_again() {
    let losing = Losing::begin("generic", &[Component::Bios], true).await;
    losing.lose_power().await;
    losing.bench.cancel(losing.id).await;
    losing.power_is_back().await;
    let back = losing.bench.clock_now();
    let (run, stored) = losing.end().await;
    assert_eq!(run.outcome, Some(Outcome::Cancelled), "{stored}");
    let end = losing.bench.sim_bmc.snapshot();
    assert_eq!((end.images, end.power, end.power_ons), (1, Power::On, 1), "{stored}");
    assert!(stored.contains("\"firmware.power-lost\""), "{stored}");
    assert_eq!(losing.recorded().await, Value::Null, "{stored}");
    let took = losing.bench.clock_now().since(back);
    assert!(took < Duration::from_secs(10 * 60), "{took:?}: {stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_off_before_is_off_after_the_loss_of_power() {
    let losing = Losing::begin("generic", &[Component::Bios], true).await;
    let sim_bmc = &losing.bench.sim_bmc;
    sim_bmc.lose_power(Duration::ZERO);
    sim_bmc.set_reachable(true);
    losing.lose_power().await;
    let ons = sim_bmc.power_ons();
    losing.power_is_back().await;
    let (run, stored) = losing.end().await;
    says(&run, &["bios 99.1", "lost power"], &stored);
    let end = sim_bmc.snapshot();
    assert_eq!((end.power, end.power_ons), (Power::Off, ons), "{stored}");
}

/// The response to the upload is lost, and then the power: no read shows whether the image arrived.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_may_have_arrived_before_the_loss_of_power_is_not_sent_again() {
    let config = slow("generic");
    let order = order(&config, &[Component::Bios]);
    let losing = Losing::of(config, order, &[FaultEffect::Drop]).await;
    losing.bench.run_to_wait(&losing.worker, losing.id, "upload_look").await;
    losing.bench.sim_bmc.lose_power(FLASH);
    losing.bench.run_to_wait(&losing.worker, losing.id, "bmc_back").await;
    losing.power_is_back().await;
    let (run, stored) = losing.end().await;
    says(&run, &["bios 99.1", "neither an update nor the new version", "not sent a second time"], &stored);
    let end = losing.bench.sim_bmc.snapshot();
    assert_eq!((end.images, end.power, end.power_ons), (0, Power::On, 1), "{stored}");
    assert_eq!(losing.recorded().await, Value::Null, "{stored}");
}

/// The BMC alone restarts in the middle: its task is gone, and the host runs. The flash may go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_restarts_in_the_middle_is_no_loss_of_power_and_is_waited_for() {
    let losing = Losing::begin("generic", &[Component::Bios], true).await;
    let sim_bmc = &losing.bench.sim_bmc;
    losing.bench.run_while(&losing.worker, losing.id, || !sim_bmc.is_flashing()).await;
    let began = losing.bench.clock_now();
    sim_bmc.restart_bmc(FLASH);
    losing.bench.run_to_wait(&losing.worker, losing.id, "bmc_back").await;
    losing.power_is_back().await;
    let (run, stored) = losing.end().await;
    let failure = run.failure.unwrap();
    assert_eq!(failure.class.as_str(), "version_unchanged", "{stored}");
    assert!(failure.summary.contains("(the BMC was away for"), "{}", failure.summary);
    assert!(losing.bench.clock_now().since(began) >= Duration::from_secs(3600), "it was waited for");
    assert!(!stored.contains("power-lost"), "{stored}");
    assert_eq!(sim_bmc.snapshot().images, 1, "{stored}");
}

/// The power is back shortly before the time of the update is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_of_power_at_the_end_of_the_time_of_an_update_is_no_update_that_is_stuck() {
    let losing = Losing::begin("generic", &[Component::Bios], true).await;
    losing.lose_power().await;
    let since = losing.bench.clock_now();
    let away = Duration::from_secs(59 * 60);
    losing.bench.run_while(&losing.worker, losing.id, || losing.bench.clock_now().since(since) < away).await;
    losing.bench.sim_bmc.set_reachable(true);
    let (run, stored) = losing.end().await;
    says(&run, &["bios 99.1", "lost power", "was away for 6"], &stored);
    let end = losing.bench.sim_bmc.snapshot();
    assert_eq!((end.images, end.power), (1, Power::On), "{stored}");
}

/// A BMC that starts shows a running host as off for a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_shown_as_off_for_a_moment_is_no_loss_of_power() {
    let losing = Losing::begin("generic", &[Component::Bios], true).await;
    let sim_bmc = &losing.bench.sim_bmc;
    losing.bench.run_while(&losing.worker, losing.id, || !sim_bmc.is_flashing()).await;
    sim_bmc.restart_bmc(FLASH);
    losing.bench.run_to_wait(&losing.worker, losing.id, "bmc_back").await;
    let off = FaultEffect::Lie(json!({ "PowerState": "Off" }));
    sim_bmc.inject(Fault::always(FaultTrigger::Read, off));
    losing.power_is_back().await;
    losing.bench.run_to_words(&losing.worker, losing.id, "is read for two minutes").await;
    sim_bmc.clear_faults();
    let (run, stored) = losing.end().await;
    assert_eq!(run.failure.unwrap().class.as_str(), "version_unchanged", "{stored}");
    assert!(!stored.contains("power-lost"), "{stored}");
    assert_eq!(sim_bmc.snapshot().power, Power::On, "{stored}");
}
