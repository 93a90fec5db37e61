//! Diagnostics of simulated BMCs with faults, in one process on virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lab_bmc::{
    Fault, FaultCondition, FaultEffect, FaultTrigger, InProcess, JournalItem, MediaReader, MediaRefusal,
    MediaRequest, MediaResponse, NullHost, SimBmc, SimBmcConfig, StateChange,
};
use redfish::{Account, BmcCredentials, Profile};
use serde_json::json;

use super::*;
use bmc::slots::LearnedSlots;

const SERIAL: &str = "DOC-1";
const URL: &str = "http://192.0.2.1/media/tiny.iso";

/// Serves zeros and records that they were read.
struct Zeros(Arc<AtomicBool>);

#[async_trait]
impl MediaReader for Zeros {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        const LENGTH: u64 = 1 << 20;
        self.0.store(true, Ordering::Relaxed);
        let Some((first, last)) = request.range.filter(|_| !request.head) else {
            return Ok(MediaResponse { status: 200, length: Some(LENGTH), ..MediaResponse::default() });
        };
        Ok(MediaResponse {
            status: 206,
            content_range: Some(format!("bytes {first}-{last}/{LENGTH}")),
            body: vec![0; usize::try_from(last - first + 1).unwrap()].into(),
            ..MediaResponse::default()
        })
    }
}

struct TestImage(Arc<AtomicBool>);

#[async_trait]
impl TestMedium for TestImage {
    fn url(&self) -> &str {
        URL
    }

    async fn was_read(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct TestBmc {
    bmc: Bmc,
    sim: SimBmc,
    read: Arc<AtomicBool>,
}

impl TestBmc {
    fn new(change: impl FnOnce(&mut SimBmcConfig)) -> Self {
        let mut config = SimBmcConfig::new(SERIAL, "root", "calvin-and-hobbes");
        config.started_at = target().now.timestamp();
        change(&mut config);
        let read = Arc::new(AtomicBool::new(false));
        let sim = SimBmc::new(config, Arc::new(NullHost), Arc::new(Zeros(Arc::clone(&read))));
        let transport = Arc::new(InProcess::new(sim.clone()));
        let credentials = BmcCredentials::new("root", "calvin-and-hobbes".to_owned());
        let endpoint = "https://192.0.2.7".parse().unwrap();
        let bmc = Bmc::builder(endpoint, credentials, transport, Profile::generic()).detecting().build();
        Self { bmc, sim, read }
    }

    fn is_boot_set(&self) -> bool {
        self.sim.snapshot().boot.enabled != lab_bmc::OverrideEnabled::Disabled
    }

    async fn facts(&self) -> BmcFacts {
        read_facts(&self.bmc, Some(SERIAL)).await.unwrap()
    }

    async fn run_checks(&self, write_boot: bool) -> Diagnostics {
        let medium = TestImage(Arc::clone(&self.read));
        self.run(&AllowedChanges { medium: Ok(&medium), ..allowed(write_boot) }).await
    }

    async fn run(&self, allowed: &AllowedChanges<'_>) -> Diagnostics {
        run_checks(&self.bmc, &target(), allowed).await
    }

    /// Runs diagnostics with this fault and returns the media check.
    async fn media(fault: Fault) -> Check {
        let test_bmc = Self::new(|sim| sim.faults.push(fault));
        let diagnostics = test_bmc.run_checks(false).await;
        assert_eq!(diagnostics.verdict(), CheckStatus::Fail);
        of(&diagnostics, "media")
    }
}

struct Unrecorded;

#[async_trait]
impl BootIntent for Unrecorded {
    async fn record(&self) -> bool {
        true
    }
}

fn allowed(write_boot: bool) -> AllowedChanges<'static> {
    let write_boot: Option<&dyn BootIntent> = if write_boot { Some(&Unrecorded) } else { None };
    AllowedChanges { medium: Err("not given".to_owned()), write_boot, unverified_serial: false }
}

fn target() -> ProbeTarget<'static> {
    ProbeTarget {
        serial: Some(SERIAL),
        media_base: "http://192.0.2.1",
        secure_media_base: None,
        tls: json!({ "mode": "pinned", "fingerprint": "ab12" }),
        learned: LearnedSlots::default(),
        now: "2026-11-21T08:00:00Z".parse().unwrap(),
    }
}

fn of(diagnostics: &Diagnostics, name: &str) -> Check {
    let found = diagnostics.checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {diagnostics:#?}")).clone()
}

fn refused(when: FaultTrigger) -> Fault {
    let effect = FaultEffect::Status {
        status: 400,
        message_id: "Contoso.1.0.NotNow".to_owned(),
        message: "Not on a Saturday.".to_owned(),
    };
    Fault::always(when, effect)
}

/// Runs one check that evaluates facts and sends no request.
fn status_and_text(check: impl FnOnce(&mut Diagnostics)) -> (CheckStatus, String) {
    let mut diagnostics = Diagnostics::default();
    check(&mut diagnostics);
    let only = diagnostics.checks.remove(0);
    let no_action = matches!(only.status, CheckStatus::Pass | CheckStatus::Skip);
    assert_eq!(
        only.next_action.is_empty(),
        no_action,
        "{only:?}: a check has a next action exactly if it warns or fails"
    );
    (only.status, only.found)
}

#[tokio::test(start_paused = true)]
async fn a_sound_bmc_passes_every_check_and_is_left_as_it_was() {
    let test_bmc = TestBmc::new(|_| {});
    let diagnostics = test_bmc.run_checks(true).await;
    assert_eq!(diagnostics.verdict(), CheckStatus::Pass, "{diagnostics:#?}");
    assert_eq!(of(&diagnostics, "boot-override").found, "set, read back, cleared, read back");
    assert_eq!(
        of(&diagnostics, "media").found,
        "slot CD1: inserted, read by the BMC, ejected, each read back"
    );
    let after = test_bmc.facts().await;
    assert!(after.discovery.slots.iter().all(|slot| slot.is_empty()));
    assert!(!test_bmc.bmc.boot_override(&after.discovery.system).await.unwrap().is_active());
}

#[tokio::test(start_paused = true)]
async fn without_valid_credentials_no_other_check_runs() {
    let test_bmc = TestBmc::new(|sim| sim.password = "another".to_owned().into());
    let diagnostics = test_bmc.run_checks(true).await;
    assert_eq!((diagnostics.checks.len(), diagnostics.verdict()), (1, CheckStatus::Fail), "{diagnostics:#?}");
    assert!(!test_bmc.sim.journal().iter().any(|entry| matches!(entry.what, JournalItem::Change(_))));
}

#[tokio::test(start_paused = true)]
async fn the_media_check_names_the_operation_that_the_slot_refused() {
    let check = TestBmc::media(refused(FaultTrigger::Insert)).await;
    assert!(
        check.found.contains("did not accept the test image") && check.found.contains("Saturday"),
        "{check:?}"
    );
    let check = TestBmc::media(Fault::always(FaultTrigger::Insert, FaultEffect::AcceptButIgnore)).await;
    assert!(check.found.contains("accepted the image, did not show it and did not read it"), "{check:?}");
    let check = TestBmc::media(refused(FaultTrigger::Eject)).await;
    assert!(
        check.found.contains("does not eject the test image") && check.found.contains("Saturday"),
        "{check:?}"
    );
    let check = TestBmc::media(Fault::always(FaultTrigger::Eject, FaultEffect::AcceptButIgnore)).await;
    assert!(check.found.contains("accepted the eject of the test image and still shows it"), "{check:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unread_image_warns_and_the_warning_names_a_host_that_is_off() {
    for (starts_on, words) in [(false, "the host is off"), (true, "not read within 30 s")] {
        let test_bmc = TestBmc::new(|sim| sim.starts_on = starts_on);
        let unread = TestImage(Arc::default());
        let allowed = AllowedChanges { medium: Ok(&unread), ..allowed(false) };
        let diagnostics = run_checks(&test_bmc.bmc, &target(), &allowed).await;
        let check = of(&diagnostics, "media");
        assert_eq!((check.status, diagnostics.verdict()), (CheckStatus::Warn, CheckStatus::Warn));
        assert!(check.found.contains(words) && check.next_action.contains("http://192.0.2.1"), "{check:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn media_of_others_stay_inserted() {
    let test_bmc = TestBmc::new(|_| {});
    let other_url = "http://192.0.2.1/media/theirs.iso";
    let slot = test_bmc.facts().await.discovery.slots[0].uri.clone();
    test_bmc.bmc.insert(&slot, other_url, InsertOptions::default()).await.unwrap();
    let diagnostics = test_bmc.run_checks(false).await;
    assert_eq!(of(&diagnostics, "media").status, CheckStatus::Skip);
    assert!(test_bmc.bmc.slot(&slot).await.unwrap().holds(other_url));
}

#[tokio::test(start_paused = true)]
async fn an_active_boot_override_is_kept_and_a_refused_or_unconfirmed_one_is_reported() {
    let test_bmc = TestBmc::new(|_| {});
    let system = test_bmc.facts().await.discovery.system;
    test_bmc.bmc.set_boot_once(&system, &test_bmc.bmc.profile().boot_targets, None).await.unwrap();
    assert_eq!(of(&test_bmc.run_checks(true).await, "boot-override").status, CheckStatus::Warn);
    assert!(test_bmc.bmc.boot_override(&system).await.unwrap().is_active());

    let test_bmc = TestBmc::new(|sim| sim.faults.push(refused(FaultTrigger::PatchBoot)));
    let check = of(&test_bmc.run_checks(true).await, "boot-override");
    assert!(check.status == CheckStatus::Fail && check.found.contains("Saturday"), "{check:?}");

    let test_bmc = TestBmc::new(|sim| {
        sim.faults.push(Fault::always(FaultTrigger::PatchBoot, FaultEffect::AcceptButIgnore))
    });
    let check = of(&test_bmc.run_checks(true).await, "boot-override");
    assert!(check.status == CheckStatus::Warn && check.found.contains("no read showed it"), "{check:?}");
    let resets =
        |entry: &lab_bmc::JournalEntry| matches!(entry.what, JournalItem::Change(StateChange::Reset(_)));
    assert!(!test_bmc.sim.journal().iter().any(resets));
}

#[tokio::test(start_paused = true)]
async fn a_boot_override_that_is_shown_late_or_cleared_late_is_not_left_set() {
    let test_bmc = TestBmc::new(|sim| {
        let hidden = json!({ "Boot": { "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None" } });
        sim.faults.push(Fault {
            only_if: Some(FaultCondition::OverrideSet),
            ..Fault::always(FaultTrigger::Read, FaultEffect::Lie(hidden)).lasting(Duration::from_secs(10))
        });
    });
    let diagnostics = test_bmc.run_checks(true).await;
    let check = of(&diagnostics, "boot-override");
    assert!(check.status == CheckStatus::Warn && check.found.contains("shown late"), "{check:?}");
    assert!(!test_bmc.is_boot_set() && !diagnostics.boot_left_set);

    // The response to the setting is lost, and the first requests that clear it are refused.
    let busy = FaultEffect::Status {
        status: 503,
        message_id: "Base.1.18.ServiceTemporarilyUnavailable".to_owned(),
        message: "The service is temporarily unavailable.".to_owned(),
    };
    let test_bmc = TestBmc::new(|sim| {
        sim.faults.push(Fault::once(FaultTrigger::PatchBoot, FaultEffect::ApplyButDrop));
        sim.faults.push(Fault::once(FaultTrigger::PatchBoot, busy.clone()).times(3));
    });
    let diagnostics = test_bmc.run_checks(true).await;
    assert!(!test_bmc.is_boot_set(), "{diagnostics:?}");
    assert!(!diagnostics.boot_left_set, "{diagnostics:?}");

    let test_bmc = TestBmc::new(|sim| sim.faults.push(Fault::always(FaultTrigger::PatchBoot, busy).after(1)));
    let diagnostics = test_bmc.run_checks(true).await;
    assert_eq!(of(&diagnostics, "boot-override").status, CheckStatus::Fail);
    assert!(diagnostics.boot_left_set, "what follows clears it: {diagnostics:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed_on_a_bmc_that_is_not_known_to_be_that_of_the_server() {
    for (serial, status) in [("DOC-2", CheckStatus::Fail), ("", CheckStatus::Warn)] {
        let test_bmc = TestBmc::new(|sim| serial.clone_into(&mut sim.serial));
        let diagnostics = test_bmc.run_checks(true).await;
        assert_eq!(of(&diagnostics, "serial").status, status, "{diagnostics:?}");
        assert_eq!(of(&diagnostics, "media").status, CheckStatus::Skip, "{diagnostics:?}");
        assert_eq!(test_bmc.sim.mutations(), [], "{serial:?}");
    }
    let test_bmc = TestBmc::new(|sim| sim.serial.clear());
    let medium = TestImage(Arc::clone(&test_bmc.read));
    let changes = AllowedChanges { medium: Ok(&medium), unverified_serial: true, ..allowed(true) };
    let diagnostics = test_bmc.run(&changes).await;
    assert_eq!(of(&diagnostics, "media").status, CheckStatus::Pass, "the operator has accepted it");
}

#[tokio::test(start_paused = true)]
async fn accounts_serials_and_clocks_that_would_fail_a_job_are_found() {
    let test_bmc = TestBmc::new(|_| {});
    let mut facts = test_bmc.facts().await;
    let of_account = |facts: &BmcFacts| status_and_text(|diagnostics| account(diagnostics, facts)).0;
    for (account, status) in [
        (None, CheckStatus::Skip),
        (Some(Account::default()), CheckStatus::Skip),
        (Some(Account { role: Some("Operator".to_owned()), ..Account::default() }), CheckStatus::Pass),
        (Some(Account { role: Some("ReadOnly".to_owned()), ..Account::default() }), CheckStatus::Fail),
        (Some(Account { locked: Some(true), ..Account::default() }), CheckStatus::Fail),
        (Some(Account { enabled: Some(false), ..Account::default() }), CheckStatus::Fail),
        (Some(Account { password_change_required: Some(true), ..Account::default() }), CheckStatus::Fail),
    ] {
        facts.account = account;
        assert_eq!(of_account(&facts), status, "{:?}", facts.account);
    }

    let of_serial = |facts: &BmcFacts, serial| {
        let target = ProbeTarget { serial, ..target() };
        status_and_text(|diagnostics| super::serial(diagnostics, facts, &target))
    };
    assert_eq!(of_serial(&facts, None), (CheckStatus::Pass, format!("register it as {SERIAL}")));
    assert_eq!(of_serial(&facts, Some(SERIAL)).0, CheckStatus::Pass);
    assert_eq!(of_serial(&facts, Some("ANOTHER")).0, CheckStatus::Fail);
    facts.discovery.system.serial = None;
    facts.discovery.system.sku = None;
    assert_eq!(of_serial(&facts, None).0, CheckStatus::Warn);
    assert_eq!(of_serial(&facts, Some(SERIAL)).0, CheckStatus::Warn);

    let mut of_clock = |date: Option<&str>, media_base| {
        facts.discovery.manager.as_mut().unwrap().date_time = date.map(str::to_owned);
        let target = ProbeTarget { media_base, ..target() };
        status_and_text(|diagnostics| clock(diagnostics, &facts, &target))
    };
    let (http, https) = ("http://192.0.2.1", "https://192.0.2.1");
    assert_eq!(of_clock(None, http).0, CheckStatus::Skip);
    assert_eq!(
        of_clock(Some("2026-11-21T09:00:01+01:00"), http),
        (CheckStatus::Pass, "the BMC's clock is 1 s ahead".to_owned())
    );
    assert_eq!(
        of_clock(Some("2026-11-21T07:50:00Z"), https),
        (CheckStatus::Warn, "the BMC's clock is 600 s behind".to_owned())
    );
    assert_eq!(of_clock(Some("1970-01-01T00:00:00Z"), http).0, CheckStatus::Warn);
    assert_eq!(
        of_clock(Some("1970-01-01T00:00:00Z"), https).0,
        CheckStatus::Fail,
        "no certificate is valid there"
    );
}

#[test]
fn the_tls_check_names_how_the_certificate_is_verified() {
    for (mode, status) in [
        ("none", CheckStatus::Warn),
        ("insecure", CheckStatus::Warn),
        ("verify", CheckStatus::Pass),
        ("pinned", CheckStatus::Pass),
    ] {
        let target = ProbeTarget { tls: json!({ "mode": mode, "fingerprint": "ab12" }), ..target() };
        assert_eq!(status_and_text(|diagnostics| tls(diagnostics, &target)).0, status);
    }
}
