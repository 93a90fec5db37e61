//! What the doctor says of BMCs on which something is wrong: the client and a simulated BMC in one process, on virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lab_bmc::{
    Change, Effect, Fault, InProcess, JournalItem, MediaAnswer, MediaReader, MediaRefusal, MediaRequest,
    NullHost, SimBmc, SimBmcConfig, When,
};
use redfish::{Account, Credentials, Profile};
use serde_json::json;

use super::*;
use crate::slots::Learned;

const SERIAL: &str = "DOC-1";
const URL: &str = "http://192.0.2.1/media/tiny.iso";

/// Serves nothing but zeros, and notes that they were asked for.
struct Zeros(Arc<AtomicBool>);

#[async_trait]
impl MediaReader for Zeros {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaAnswer, MediaRefusal> {
        const LENGTH: u64 = 1 << 20;
        self.0.store(true, Ordering::Relaxed);
        let Some((first, last)) = request.range.filter(|_| !request.head) else {
            return Ok(MediaAnswer { status: 200, length: Some(LENGTH), ..MediaAnswer::default() });
        };
        Ok(MediaAnswer {
            status: 206,
            content_range: Some(format!("bytes {first}-{last}/{LENGTH}")),
            body: vec![0; usize::try_from(last - first + 1).unwrap()].into(),
            ..MediaAnswer::default()
        })
    }
}

struct Tiny(Arc<AtomicBool>);

#[async_trait]
impl TestMedium for Tiny {
    fn url(&self) -> &str {
        URL
    }

    async fn was_read(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Patient {
    bmc: Bmc,
    twin: SimBmc,
    read: Arc<AtomicBool>,
}

impl Patient {
    fn new(change: impl FnOnce(&mut SimBmcConfig)) -> Self {
        let mut config = SimBmcConfig::new(SERIAL, "root", "calvin-and-hobbes");
        config.started_at = subject().now.timestamp();
        change(&mut config);
        let read = Arc::new(AtomicBool::new(false));
        let twin = SimBmc::new(config, Arc::new(NullHost), Arc::new(Zeros(Arc::clone(&read))));
        let transport = Arc::new(InProcess::new(twin.clone()));
        let credentials = Credentials::new("root", "calvin-and-hobbes".to_owned());
        let endpoint = "https://192.0.2.7".parse().unwrap();
        let bmc = Bmc::builder(endpoint, credentials, transport, Profile::generic()).detecting().build();
        Self { bmc, twin, read }
    }

    async fn seen(&self) -> Seen {
        look(&self.bmc, Some(SERIAL)).await.unwrap()
    }

    async fn examine(&self, write_boot: bool) -> Findings {
        let medium = Tiny(Arc::clone(&self.read));
        examine(&self.bmc, &subject(), &AllowedChanges { medium: Ok(&medium), write_boot }).await
    }

    /// What is said of the media when this goes wrong.
    async fn media(fault: Fault) -> Check {
        let patient = Self::new(|twin| twin.faults.push(fault));
        let findings = patient.examine(false).await;
        assert_eq!(findings.verdict(), Mark::Fail);
        of(&findings, "media")
    }
}

fn subject() -> Subject<'static> {
    Subject {
        serial: Some(SERIAL),
        media_base: "http://192.0.2.1",
        tls: json!({ "mode": "pinned", "fingerprint": "ab12" }),
        learned: Learned::default(),
        now: "2026-11-21T08:00:00Z".parse().unwrap(),
    }
}

fn of(findings: &Findings, name: &str) -> Check {
    let found = findings.checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {findings:#?}")).clone()
}

fn refused(when: When) -> Fault {
    let effect = Effect::Status {
        status: 400,
        message_id: "Contoso.1.0.NotNow".to_owned(),
        message: "Not on a Saturday.".to_owned(),
    };
    Fault::always(when, effect)
}

/// One finding of a check that looks at what was read and asks nobody.
fn finding(check: impl FnOnce(&mut Findings)) -> (Mark, String) {
    let mut findings = Findings::default();
    check(&mut findings);
    let only = findings.checks.remove(0);
    let silent = matches!(only.mark, Mark::Pass | Mark::Skip);
    assert_eq!(
        only.next_action.is_empty(),
        silent,
        "{only:?}: what is wrong has a next step, what is not has none"
    );
    (only.mark, only.found)
}

#[tokio::test(start_paused = true)]
async fn a_sound_bmc_passes_every_check_and_is_left_as_it_was() {
    let patient = Patient::new(|_| {});
    let findings = patient.examine(true).await;
    assert_eq!(findings.verdict(), Mark::Pass, "{findings:#?}");
    assert_eq!(of(&findings, "boot-override").found, "set, read back, cleared, read back");
    assert_eq!(of(&findings, "media").found, "slot CD1: inserted, read by the BMC, ejected, each read back");
    let after = patient.seen().await;
    assert!(after.discovery.slots.iter().all(|slot| slot.is_empty()));
    assert!(!patient.bmc.boot_override(&after.discovery.system).await.unwrap().is_active());
}

#[tokio::test(start_paused = true)]
async fn nobody_who_is_not_let_in_looks_any_further() {
    let patient = Patient::new(|twin| twin.password = "another".to_owned().into());
    let findings = patient.examine(true).await;
    assert_eq!((findings.checks.len(), findings.verdict()), (1, Mark::Fail), "{findings:#?}");
    assert!(!patient.twin.journal().iter().any(|entry| matches!(entry.what, JournalItem::Change(_))));
}

#[tokio::test(start_paused = true)]
async fn what_a_slot_does_not_do_is_said() {
    let check = Patient::media(refused(When::Insert)).await;
    assert!(
        check.found.contains("did not take a tiny image") && check.found.contains("Saturday"),
        "{check:?}"
    );
    let check = Patient::media(Fault::always(When::Insert, Effect::AcceptButIgnore)).await;
    assert!(check.found.contains("accepted the image, did not show it and did not read it"), "{check:?}");
    let check = Patient::media(refused(When::Eject)).await;
    assert!(
        check.found.contains("does not eject the tiny image") && check.found.contains("Saturday"),
        "{check:?}"
    );
    let check = Patient::media(Fault::always(When::Eject, Effect::AcceptButIgnore)).await;
    assert!(check.found.contains("was told to eject the tiny image and still shows it"), "{check:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_reads_nothing_is_told_from_one_that_may_read_for_a_running_host_only() {
    for (starts_on, words) in [(false, "the host is off"), (true, "not read within 30 s")] {
        let patient = Patient::new(|twin| twin.starts_on = starts_on);
        let nobody = Tiny(Arc::default());
        let trials = AllowedChanges { medium: Ok(&nobody), write_boot: false };
        let findings = examine(&patient.bmc, &subject(), &trials).await;
        let check = of(&findings, "media");
        assert_eq!((check.mark, findings.verdict()), (Mark::Warn, Mark::Warn));
        assert!(check.found.contains(words) && check.next_action.contains("http://192.0.2.1"), "{check:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_put_in_stays_in() {
    let patient = Patient::new(|_| {});
    let theirs = "http://192.0.2.1/media/theirs.iso";
    let slot = patient.seen().await.discovery.slots[0].uri.clone();
    patient.bmc.insert(&slot, theirs, InsertOptions::default()).await.unwrap();
    let findings = patient.examine(false).await;
    assert_eq!(of(&findings, "media").mark, Mark::Skip);
    assert!(patient.bmc.slot(&slot).await.unwrap().holds(theirs));
}

#[tokio::test(start_paused = true)]
async fn a_boot_that_somebody_has_set_stays_set_and_what_the_bmc_refuses_or_does_not_show_is_said() {
    let patient = Patient::new(|_| {});
    let system = patient.seen().await.discovery.system;
    patient.bmc.set_boot_once(&system, &patient.bmc.profile().boot_targets, None).await.unwrap();
    assert_eq!(of(&patient.examine(true).await, "boot-override").mark, Mark::Warn);
    assert!(patient.bmc.boot_override(&system).await.unwrap().is_active());

    let patient = Patient::new(|twin| twin.faults.push(refused(When::PatchBoot)));
    let check = of(&patient.examine(true).await, "boot-override");
    assert!(check.mark == Mark::Fail && check.found.contains("Saturday"), "{check:?}");

    let patient =
        Patient::new(|twin| twin.faults.push(Fault::always(When::PatchBoot, Effect::AcceptButIgnore)));
    let check = of(&patient.examine(true).await, "boot-override");
    assert!(check.mark == Mark::Warn && check.found.contains("did not show it"), "{check:?}");
    let resets = |entry: &lab_bmc::Entry| matches!(entry.what, JournalItem::Change(Change::Reset(_)));
    assert!(!patient.twin.journal().iter().any(resets));
}

#[tokio::test(start_paused = true)]
async fn accounts_serials_and_clocks_that_would_fail_a_job_are_found() {
    let patient = Patient::new(|_| {});
    let mut seen = patient.seen().await;
    let of_account = |seen: &Seen| finding(|findings| account(findings, seen)).0;
    for (account, mark) in [
        (None, Mark::Skip),
        (Some(Account::default()), Mark::Skip),
        (Some(Account { role: Some("Operator".to_owned()), ..Account::default() }), Mark::Pass),
        (Some(Account { role: Some("ReadOnly".to_owned()), ..Account::default() }), Mark::Fail),
        (Some(Account { locked: Some(true), ..Account::default() }), Mark::Fail),
        (Some(Account { enabled: Some(false), ..Account::default() }), Mark::Fail),
        (Some(Account { password_change_required: Some(true), ..Account::default() }), Mark::Fail),
    ] {
        seen.account = account;
        assert_eq!(of_account(&seen), mark, "{:?}", seen.account);
    }

    let of_serial = |seen: &Seen, serial| {
        let subject = Subject { serial, ..subject() };
        finding(|findings| super::serial(findings, seen, &subject))
    };
    assert_eq!(of_serial(&seen, None), (Mark::Pass, format!("register it as {SERIAL}")));
    assert_eq!(of_serial(&seen, Some(SERIAL)).0, Mark::Pass);
    assert_eq!(of_serial(&seen, Some("ANOTHER")).0, Mark::Fail);
    seen.discovery.system.serial = None;
    seen.discovery.system.sku = None;
    assert_eq!(of_serial(&seen, None).0, Mark::Warn);
    assert_eq!(of_serial(&seen, Some(SERIAL)).0, Mark::Warn);

    let mut of_clock = |date: Option<&str>, media_base| {
        seen.discovery.manager.as_mut().unwrap().date_time = date.map(str::to_owned);
        let subject = Subject { media_base, ..subject() };
        finding(|findings| clock(findings, &seen, &subject))
    };
    let (http, https) = ("http://192.0.2.1", "https://192.0.2.1");
    assert_eq!(of_clock(None, http).0, Mark::Skip);
    assert_eq!(
        of_clock(Some("2026-11-21T09:00:01+01:00"), http),
        (Mark::Pass, "the BMC's clock is 1 s ahead".to_owned())
    );
    assert_eq!(
        of_clock(Some("2026-11-21T07:50:00Z"), https),
        (Mark::Warn, "the BMC's clock is 600 s behind".to_owned())
    );
    assert_eq!(of_clock(Some("1970-01-01T00:00:00Z"), http).0, Mark::Warn);
    assert_eq!(of_clock(Some("1970-01-01T00:00:00Z"), https).0, Mark::Fail, "no certificate is valid there");
}

#[test]
fn how_a_certificate_is_looked_at_is_said() {
    for (mode, mark) in
        [("none", Mark::Warn), ("insecure", Mark::Warn), ("verify", Mark::Pass), ("pinned", Mark::Pass)]
    {
        let subject = Subject { tls: json!({ "mode": mode, "fingerprint": "ab12" }), ..subject() };
        assert_eq!(finding(|findings| tls(findings, &subject)).0, mark);
    }
}
