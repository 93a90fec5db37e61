//! Diagnostics: every check an operator needs before the first job, with result and next action.
//!
//! ```text
//!   connect  credentials  account  licence  tls  serial  clock  slot-plan  boot-override  media
//!      `-- when one of the first two fails, the other checks do not run
//!   media:  empty slot -> insert the test image -> read back -> wait for the BMC to read it -> eject -> read back
//! ```
//!
//! Invariants: only the media check (and the boot override check, when allowed) changes anything, and nothing is changed on a BMC that
//! shows another machine. The test image is ejected again, and a boot override that was set is cleared again. A slot with other
//! media is not changed. Every wait has a limit.

use std::time::Duration;

use async_trait::async_trait;
use redfish::error::DenialReason;
use redfish::{Bmc, ErrorKind, InsertOptions, PowerState, RedfishError, SerialMatch, SystemInfo};
use serde::{Deserialize, Serialize};

use bmc::probe::{BmcFacts, ProbeTarget, bmc_problem, plan_of, read_facts, skew};
use bmc::slots::SlotPlan;

/// The time in which the BMC must read the test image, and show or eject it.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Delay between two reads.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A clock skew (seconds) from here on is a warning: certificates and logs suffer.
const SKEW_WARN: i64 = 300;
/// A clock skew (seconds) from here on means that the clock is not set.
const SKEW_FAIL: i64 = 86_400;

/// The status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// The check passed.
    Pass,
    /// A job may still work.
    Warn,
    /// A job would fail.
    Fail,
    /// The check did not run.
    Skip,
}

/// One check of a BMC with its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The name of the check.
    pub name: String,
    /// The status of the check.
    pub status: CheckStatus,
    /// The finding of the check, in words.
    pub found: String,
    /// The next action; empty when none is needed.
    pub next_action: String,
}

/// The result of all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostics {
    /// The checks in the order in which they ran.
    pub checks: Vec<Check>,
    /// Whether the boot override was set and may be set still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub boot_left_set: bool,
}

impl Diagnostics {
    fn add(
        &mut self,
        name: &str,
        status: CheckStatus,
        found: impl Into<String>,
        next_action: impl Into<String>,
    ) {
        let (found, next_action) = (found.into(), next_action.into());
        self.checks.push(Check { name: name.to_owned(), status, found, next_action });
    }

    fn pass(&mut self, name: &str, found: impl Into<String>) {
        self.add(name, CheckStatus::Pass, found, "");
    }

    /// Returns whether the BMC could be read.
    pub fn was_read(&self) -> bool {
        self.checks.iter().any(|check| check.name == "connect" && check.status == CheckStatus::Pass)
    }

    /// Returns whether the BMC shows the serial number of another machine.
    pub fn another_machine(&self) -> bool {
        self.checks.iter().any(|check| check.name == "serial" && check.status == CheckStatus::Fail)
    }

    /// Returns the worst status.
    pub fn verdict(&self) -> CheckStatus {
        let has = |status| self.checks.iter().any(|check| check.status == status);
        if has(CheckStatus::Fail) {
            CheckStatus::Fail
        } else if has(CheckStatus::Warn) {
            CheckStatus::Warn
        } else {
            CheckStatus::Pass
        }
    }
}

/// The test image that the BMC reads during the media check.
#[async_trait]
pub trait TestMedium: Send + Sync {
    /// Returns the URL of the image.
    fn url(&self) -> &str;
    /// Returns whether any byte of the image was read.
    async fn was_read(&self) -> bool;
}

/// Records the intent to set the boot override; after a crash the cleanup step reads it and clears the override.
#[async_trait]
pub trait BootIntent: Send + Sync {
    /// Records the intent; returns whether it is recorded. Without a record nothing may be sent.
    async fn record(&self) -> bool;
}

/// The changes that diagnostics may make on the BMC.
pub struct AllowedChanges<'a> {
    /// The test image, or the reason why slots must not be changed.
    pub medium: Result<&'a dyn TestMedium, String>,
    /// Whether the boot override may be set and cleared, and where that is recorded.
    pub write_boot: Option<&'a dyn BootIntent>,
    /// Whether a BMC that shows no serial number may be changed.
    pub unverified_serial: bool,
}

/// Runs every check.
pub async fn run_checks(bmc: &Bmc, target: &ProbeTarget<'_>, allowed: &AllowedChanges<'_>) -> Diagnostics {
    let mut diagnostics = Diagnostics::default();
    let facts = match read_facts(bmc, target.serial).await {
        Ok(facts) => facts,
        Err(error) => {
            connect_failed(&mut diagnostics, &error, target);
            return diagnostics;
        }
    };
    diagnostics.pass("connect", format!("{} responds", bmc.endpoint()));
    diagnostics.pass("credentials", "the BMC accepts user name and password");
    tls(&mut diagnostics, target);
    account(&mut diagnostics, &facts);
    serial(&mut diagnostics, &facts, target);
    clock(&mut diagnostics, &facts, target);
    let slot = slots(&mut diagnostics, bmc, &facts, target);
    // Nothing is changed on a BMC that may be that of another machine, which a job may be using now (decision D3a).
    let unverified = match target.serial.map(|serial| facts.discovery.system.matches_serial(serial)) {
        Some(SerialMatch::Mismatch) => Some("this is another machine, so nothing was changed on its BMC"),
        Some(SerialMatch::Unknown) if !allowed.unverified_serial => {
            Some("the machine cannot be verified, so nothing was changed on its BMC")
        }
        _ => None,
    };
    boot(&mut diagnostics, bmc, &facts, allowed.write_boot.filter(|_| unverified.is_none())).await;
    let medium = match (&allowed.medium, unverified) {
        (_, Some(why)) => Err(why.to_owned()),
        (Ok(medium), None) => Ok(*medium),
        (Err(why), None) => Err(why.clone()),
    };
    match (slot, medium) {
        (None, _) => diagnostics.add("media", CheckStatus::Skip, "there is no slot to test", ""),
        (Some(_), Err(why)) => diagnostics.add("media", CheckStatus::Skip, why, ""),
        (Some(slot), Ok(medium)) => {
            let off = facts.discovery.system.power_state == PowerState::Off;
            media(&mut diagnostics, bmc, &slot, medium, (target, off)).await;
        }
    }
    diagnostics
}

/// Adds the failed check when the BMC could not be read.
fn connect_failed(diagnostics: &mut Diagnostics, error: &RedfishError, target: &ProbeTarget<'_>) {
    let problem = bmc_problem(error, target.serial);
    let name = match &error.kind {
        ErrorKind::Tls { .. } => "tls",
        ErrorKind::Unauthorized { denial: DenialReason::PasswordChangeRequired, .. } => "account",
        ErrorKind::Unauthorized { .. } => "credentials",
        ErrorKind::License { .. } => "licence",
        _ => "connect",
    };
    diagnostics.add(name, CheckStatus::Fail, problem.sentence, problem.next_action);
}

fn tls(diagnostics: &mut Diagnostics, target: &ProbeTarget<'_>) {
    let of = |name: &str| target.tls[name].as_str().unwrap_or("-").to_owned();
    match target.tls["mode"].as_str() {
        Some("none") => diagnostics.add(
            "tls",
            CheckStatus::Warn,
            "plain HTTP: the password is sent unencrypted",
            "enable HTTPS in the BMC and register its address with https://",
        ),
        Some("insecure") => diagnostics.add(
            "tls",
            CheckStatus::Warn,
            format!("any certificate is accepted; the BMC shows {}", of("fingerprint")),
            "pin it: `shoal server update … --tls pinned`",
        ),
        Some("verify") => diagnostics.pass("tls", "the certificate is issued by the configured CA"),
        _ => diagnostics
            .pass("tls", format!("the certificate is the pinned one, sha256 {}", of("fingerprint"))),
    }
}

fn account(diagnostics: &mut Diagnostics, facts: &BmcFacts) {
    let Some(account) = &facts.account else {
        return diagnostics.add("account", CheckStatus::Skip, "the BMC does not show its accounts", "");
    };
    if account.password_change_required == Some(true) {
        return diagnostics.add(
            "account",
            CheckStatus::Fail,
            "the password must be changed first",
            "log in to the web interface of the BMC with this account, set a new password, then register it",
        );
    }
    if account.locked == Some(true) || account.enabled == Some(false) {
        let next = "unlock and enable it in the BMC";
        return diagnostics.add("account", CheckStatus::Fail, "the account is locked or disabled", next);
    }
    match account.role.as_deref() {
        Some("ReadOnly") => diagnostics.add(
            "account",
            CheckStatus::Fail,
            "the account may only read",
            "give it the role Operator or Administrator",
        ),
        Some(role) => diagnostics.pass("account", format!("role {role}")),
        None => diagnostics.add("account", CheckStatus::Skip, "the BMC does not show the account in use", ""),
    }
}

fn serial(diagnostics: &mut Diagnostics, facts: &BmcFacts, target: &ProbeTarget<'_>) {
    let system = &facts.discovery.system;
    let shown = system.shown_serial().unwrap_or("none");
    let Some(expected) = target.serial else {
        return match shown {
            "none" => diagnostics.add(
                "serial",
                CheckStatus::Warn,
                "the BMC shows no serial number",
                "register the server with --allow-unverified-serial",
            ),
            shown => diagnostics.pass("serial", format!("register it as {shown}")),
        };
    };
    match system.matches_serial(expected) {
        SerialMatch::Match => diagnostics.pass("serial", format!("the BMC shows {shown}")),
        SerialMatch::Mismatch => diagnostics.add(
            "serial",
            CheckStatus::Fail,
            format!("this is another machine: the BMC shows {shown}, {expected} is registered"),
            format!(
                "correct the address: `shoal server update {expected} --bmc-address … --bmc-password-stdin`"
            ),
        ),
        SerialMatch::Unknown => diagnostics.add(
            "serial",
            CheckStatus::Warn,
            "the BMC shows no serial number, so the machine cannot be verified",
            format!("if you are sure: `shoal server update {expected} --allow-unverified-serial true`"),
        ),
    }
}

fn clock(diagnostics: &mut Diagnostics, facts: &BmcFacts, target: &ProbeTarget<'_>) {
    let date = facts.discovery.manager.as_ref().and_then(|manager| manager.date_time.as_deref());
    let Some(skew) = date.and_then(|date| skew(date, target.now)) else {
        return diagnostics.add("clock", CheckStatus::Skip, "the BMC shows no clock that can be read", "");
    };
    let ahead = if skew < 0 { "behind" } else { "ahead" };
    let found = format!("the BMC's clock is {} s {ahead}", skew.abs());
    let next = "set the clock or an NTP server: with a wrong clock, certificate checks fail and logs have wrong times";
    match skew.abs() {
        0..SKEW_WARN => diagnostics.pass("clock", found),
        SKEW_WARN..SKEW_FAIL => diagnostics.add("clock", CheckStatus::Warn, found, next),
        _ if target.media_base.starts_with("https") => {
            diagnostics.add("clock", CheckStatus::Fail, found, next)
        }
        _ => diagnostics.add("clock", CheckStatus::Warn, found, next),
    }
}

/// Checks licence and slot plan; returns the slot for the media check.
fn slots(
    diagnostics: &mut Diagnostics,
    bmc: &Bmc,
    facts: &BmcFacts,
    target: &ProbeTarget<'_>,
) -> Option<String> {
    let slots = &facts.discovery.slots;
    let closed = !slots.is_empty() && slots.iter().all(|slot| !slot.takes_media());
    match closed {
        true => diagnostics.add(
            "licence",
            CheckStatus::Fail,
            "no virtual media slot offers a way to insert an image",
            "install the BMC licence that includes virtual media",
        ),
        false => diagnostics.pass("licence", "the BMC offers virtual media"),
    }
    match plan_of(bmc, &facts.discovery, target) {
        Ok(plans) => {
            let best = plans.best();
            let status = if best.plan == SlotPlan::Single && !target.learned.is_empty() {
                CheckStatus::Warn
            } else {
                CheckStatus::Pass
            };
            let found = format!("{} with {}: {}", best.plan.as_str(), best.ids.join(" and "), best.reason);
            diagnostics.add("slot-plan", status, found, "");
            Some(best.boot.clone())
        }
        Err(no) => {
            diagnostics.add("slot-plan", CheckStatus::Fail, no.why, no.next);
            None
        }
    }
}

async fn boot(diagnostics: &mut Diagnostics, bmc: &Bmc, facts: &BmcFacts, write: Option<&dyn BootIntent>) {
    const NAME: &str = "boot-override";
    let system = &facts.discovery.system;
    let read = match bmc.boot_override(system).await {
        Ok(read) => read,
        Err(error) => {
            let problem = bmc_problem(&error, None);
            return diagnostics.add(NAME, CheckStatus::Fail, problem.sentence, problem.next_action);
        }
    };
    let target = read.target.as_ref().map_or("none", |target| target.as_str()).to_owned();
    if read.is_active() {
        let next = "the override was set outside of Shoal; a job replaces it";
        return diagnostics.add(
            NAME,
            CheckStatus::Warn,
            format!("a boot from {target} is already set"),
            next,
        );
    }
    let Some(intent) = write else {
        return diagnostics.pass(NAME, "can be read; --write also sets and clears it");
    };
    if !intent.record().await {
        return diagnostics.add(
            NAME,
            CheckStatus::Skip,
            "the diagnostics were taken over, so it was not set",
            "",
        );
    }
    let set = bmc.set_boot_once(system, &bmc.profile().boot_targets, None).await;
    // A BMC that shows the setting late would show it after it was "cleared", and the next boot would be the wrong one.
    let shown = match &set {
        Ok(set) if set.confirmed => true,
        Err(error) if !error.maybe_applied() => false,
        _ => wait_for_boot(bmc, system, true).await,
    };
    let cleared = clear_boot(bmc, system).await;
    diagnostics.boot_left_set = !matches!(cleared, Ok(true));
    match (set, cleared) {
        (Ok(set), Ok(true)) if set.confirmed => {
            diagnostics.pass(NAME, "set, read back, cleared, read back");
        }
        (Ok(_), Ok(cleared)) => {
            let (found, next) = match (shown, cleared) {
                (false, _) => ("accepted, and no read showed it", "check the BMC for a pending BIOS job"),
                (true, false) => (
                    "set, and still shown after it was cleared",
                    "clear it in the BMC before the next restart",
                ),
                (true, true) => ("set, shown late, cleared", "a job waits until the BMC shows it"),
            };
            diagnostics.add(NAME, CheckStatus::Warn, found, next);
        }
        (Err(error), _) | (_, Err(error)) => {
            let problem = bmc_problem(&error, None);
            diagnostics.add(NAME, CheckStatus::Fail, problem.sentence, problem.next_action);
        }
    }
}

/// Clears the boot override; returns whether a read shows it as cleared. After a transient error the change is sent again.
///
/// # Errors
/// The last error of the BMC, when it did not accept the change within the time limit.
pub(crate) async fn clear_boot(bmc: &Bmc, system: &SystemInfo) -> Result<bool, RedfishError> {
    let deadline = tokio::time::Instant::now() + TIME_LIMIT;
    loop {
        match bmc.clear_boot_override(system).await {
            Ok(cleared) if cleared.confirmed => return Ok(true),
            Ok(_) => return Ok(wait_for_boot(bmc, system, false).await),
            Err(error) if !error.is_transient() || tokio::time::Instant::now() >= deadline => {
                return Err(error);
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until the BMC shows a boot override, or none, or until the time limit; returns whether the BMC shows that.
async fn wait_for_boot(bmc: &Bmc, system: &SystemInfo, active: bool) -> bool {
    let deadline = tokio::time::Instant::now() + TIME_LIMIT;
    loop {
        if bmc.boot_override(system).await.is_ok_and(|shown| shown.is_active() == active) {
            return true;
        }
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Checks that the BMC reads the test image from a slot.
async fn media(
    diagnostics: &mut Diagnostics,
    bmc: &Bmc,
    slot: &str,
    medium: &dyn TestMedium,
    (target, host_off): (&ProbeTarget<'_>, bool),
) {
    const NAME: &str = "media";
    let mut fail = |status, found: String, next: &str| diagnostics.add(NAME, status, found, next);
    let before = match bmc.slot(slot).await {
        Ok(before) => before,
        Err(error) => return fail(CheckStatus::Fail, error.kind.to_string(), error.next_action()),
    };
    if !before.is_empty() && !before.holds(medium.url()) {
        let found = format!("slot {} holds other media, so it was not tested", before.id);
        return fail(CheckStatus::Skip, found, "eject the media in the BMC and run the diagnostics again");
    }
    let reach = format!("check that the BMC can reach {} (firewall, port, name)", target.media_base);
    let inserted = match bmc.insert(slot, medium.url(), InsertOptions::default()).await {
        Ok(inserted) => inserted,
        Err(error) => {
            let emptied = eject_test_medium(bmc, slot, medium).await;
            let found = format!("slot {} did not accept the test image: {}", before.id, error.kind);
            let found = emptied.map_or(found.clone(), |remains| format!("{found}; {remains}"));
            return fail(CheckStatus::Fail, found, &reach);
        }
    };
    let (read, shown) = wait_until_read(bmc, slot, medium, inserted.confirmed).await;
    let remains = eject_test_medium(bmc, slot, medium).await;
    if let Some(remains) = remains {
        return fail(CheckStatus::Fail, remains, "eject it in the BMC; the next job also ejects it");
    }
    let found = |what: &str| format!("slot {}: inserted, {what}, ejected, each read back", before.id);
    match (read, shown) {
        (true, true) => diagnostics.pass(NAME, found("read by the BMC")),
        (true, false) => fail(
            CheckStatus::Warn,
            format!("the BMC read the image, but slot {} never showed it as inserted", before.id),
            "update the BMC's firmware: a job waits until the slot shows its image",
        ),
        (false, true) if host_off => fail(
            CheckStatus::Warn,
            found("not read; the host is off, and some BMCs read only while the host is on"),
            &reach,
        ),
        (false, true) => fail(CheckStatus::Warn, found("not read within 30 s"), &reach),
        (false, false) => fail(
            CheckStatus::Fail,
            format!("slot {} accepted the image, did not show it and did not read it", before.id),
            &reach,
        ),
    }
}

/// Waits until the image was read and the slot shows it, or until the time limit.
async fn wait_until_read(bmc: &Bmc, slot: &str, medium: &dyn TestMedium, mut shown: bool) -> (bool, bool) {
    let deadline = tokio::time::Instant::now() + TIME_LIMIT;
    loop {
        let read = medium.was_read().await;
        if !shown {
            shown = bmc.slot(slot).await.is_ok_and(|slot| slot.holds(medium.url()));
        }
        if (read && shown) || tokio::time::Instant::now() >= deadline {
            return (read, shown);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Ejects the test image; returns a sentence about what remains in the slot, if anything.
pub(crate) async fn eject_test_medium(bmc: &Bmc, slot: &str, medium: &dyn TestMedium) -> Option<String> {
    let deadline = tokio::time::Instant::now() + TIME_LIMIT;
    loop {
        let now = bmc.slot(slot).await;
        let remains = match &now {
            Ok(now) if !now.is_empty() && now.image.as_ref().is_none_or(|image| image.is(medium.url())) => {
                match bmc.eject(slot).await {
                    Ok(ejected) if ejected.confirmed => return None,
                    Ok(_) => {
                        format!("slot {} accepted the eject of the test image and still shows it", now.id)
                    }
                    Err(error) => format!("slot {} does not eject the test image: {}", now.id, error.kind),
                }
            }
            Ok(_) => return None,
            Err(error) => {
                format!("the slot cannot be read to verify that the test image was ejected: {}", error.kind)
            }
        };
        if tokio::time::Instant::now() >= deadline {
            return Some(remains);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests;
