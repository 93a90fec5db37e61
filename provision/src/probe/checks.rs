//! What an operator should know before the first job: every check with what it found and what to do.
//!
//! ```text
//!   connect  credentials  account  licence  tls  serial  clock  slot-plan  boot-override  media
//!      `-- when one of the first two fails, the rest is not looked at
//!   media:  empty slot -> insert a tiny image -> read back -> wait for the BMC to read it -> eject -> read back
//! ```
//!
//! Invariants: nothing but the media check (and the boot override, when asked to) changes anything; what it puts in comes
//! out again; a slot that holds something is left alone; every wait has an end.

use std::time::Duration;

use async_trait::async_trait;
use redfish::error::Denial;
use redfish::{Bmc, ErrorKind, InsertOptions, PowerState, RedfishError, SerialMatch};
use serde::{Deserialize, Serialize};

use super::super::slots::SlotPlan;
use super::{Seen, Subject, look, plan_of, skew, trouble};

/// How long the BMC may take to read a tiny image, or to show it.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// A clock this far off breaks certificates and logs…
const SKEW_WARN: i64 = 300;
/// …and this far off is not a clock.
const SKEW_FAIL: i64 = 86_400;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As it should be.
    Pass,
    /// A job may still work.
    Warn,
    /// A job would fail.
    Fail,
    /// Not looked at.
    Skip,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// How it went.
    pub mark: Mark,
    /// What was found.
    pub found: String,
    /// What to do; empty when nothing needs to be done.
    pub next_action: String,
}

/// All checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// In the order in which they were made.
    pub checks: Vec<Check>,
}

impl Findings {
    fn add(&mut self, name: &str, mark: Mark, found: impl Into<String>, next_action: impl Into<String>) {
        let (found, next_action) = (found.into(), next_action.into());
        self.checks.push(Check { name: name.to_owned(), mark, found, next_action });
    }

    fn pass(&mut self, name: &str, found: impl Into<String>) {
        self.add(name, Mark::Pass, found, "");
    }

    /// The worst mark: what the whole is worth.
    pub fn verdict(&self) -> Mark {
        let has = |mark| self.checks.iter().any(|check| check.mark == mark);
        if has(Mark::Fail) {
            Mark::Fail
        } else if has(Mark::Warn) {
            Mark::Warn
        } else {
            Mark::Pass
        }
    }
}

/// A tiny image that the BMC is made to read.
#[async_trait]
pub trait TestMedium: Send + Sync {
    /// Where it is.
    fn url(&self) -> &str;
    /// Whether any of it was read, by a range or as a whole.
    async fn was_read(&self) -> bool;
}

/// What may be changed.
pub struct AllowedChanges<'a> {
    /// The tiny image; none to leave the slots alone, with the reason.
    pub medium: Result<&'a dyn TestMedium, String>,
    /// Whether the boot override is also set and cleared.
    pub write_boot: bool,
}

/// Makes every check.
pub async fn examine(bmc: &Bmc, subject: &Subject<'_>, trials: &AllowedChanges<'_>) -> Findings {
    let mut findings = Findings::default();
    let seen = match look(bmc, subject.serial).await {
        Ok(seen) => seen,
        Err(error) => {
            not_reached(&mut findings, &error, subject);
            return findings;
        }
    };
    findings.pass("connect", format!("{} answers", bmc.endpoint()));
    findings.pass("credentials", "the BMC takes user name and password");
    tls(&mut findings, subject);
    account(&mut findings, &seen);
    serial(&mut findings, &seen, subject);
    clock(&mut findings, &seen, subject);
    let slot = slots(&mut findings, bmc, &seen, subject);
    boot(&mut findings, bmc, &seen, trials.write_boot).await;
    match (slot, &trials.medium) {
        (None, _) => findings.add("media", Mark::Skip, "no slot to try it in", ""),
        (Some(_), Err(why)) => findings.add("media", Mark::Skip, why.clone(), ""),
        (Some(slot), Ok(medium)) => {
            let off = seen.discovery.system.power_state == PowerState::Off;
            media(&mut findings, bmc, &slot, *medium, (subject, off)).await;
        }
    }
    findings
}

/// Nothing could be read: whose check that is.
fn not_reached(findings: &mut Findings, error: &RedfishError, subject: &Subject<'_>) {
    let trouble = trouble(error, subject.serial);
    let name = match &error.kind {
        ErrorKind::Tls { .. } => "tls",
        ErrorKind::Unauthorized { denial: Denial::PasswordChangeRequired, .. } => "account",
        ErrorKind::Unauthorized { .. } => "credentials",
        ErrorKind::License { .. } => "licence",
        _ => "connect",
    };
    findings.add(name, Mark::Fail, trouble.sentence, trouble.next_action);
}

fn tls(findings: &mut Findings, subject: &Subject<'_>) {
    let of = |name: &str| subject.tls[name].as_str().unwrap_or("-").to_owned();
    match subject.tls["mode"].as_str() {
        Some("none") => findings.add(
            "tls",
            Mark::Warn,
            "plain HTTP: the password travels in the open",
            "switch HTTPS on in the BMC and register its address with https://",
        ),
        Some("insecure") => findings.add(
            "tls",
            Mark::Warn,
            format!("any certificate is accepted; it shows {}", of("fingerprint")),
            "pin it: `shoal server update … --tls pinned`",
        ),
        Some("verify") => findings.pass("tls", "its certificate is issued by the configured CA"),
        _ => findings.pass("tls", format!("its certificate is the pinned one, sha256 {}", of("fingerprint"))),
    }
}

fn account(findings: &mut Findings, seen: &Seen) {
    let Some(account) = &seen.account else {
        return findings.add("account", Mark::Skip, "the BMC shows nothing of its accounts", "");
    };
    if account.password_change_required == Some(true) {
        return findings.add(
            "account",
            Mark::Fail,
            "the password must be changed first",
            "log in to the BMC once and set a new password, then register it",
        );
    }
    if account.locked == Some(true) || account.enabled == Some(false) {
        let next = "unlock and enable it in the BMC";
        return findings.add("account", Mark::Fail, "the account is locked or disabled", next);
    }
    match account.role.as_deref() {
        Some("ReadOnly") => findings.add(
            "account",
            Mark::Fail,
            "the account may only read",
            "give it the role Operator or Administrator",
        ),
        Some(role) => findings.pass("account", format!("role {role}")),
        None => findings.add("account", Mark::Skip, "the BMC does not show the account in use", ""),
    }
}

fn serial(findings: &mut Findings, seen: &Seen, subject: &Subject<'_>) {
    let system = &seen.discovery.system;
    let shown = system.serial.as_deref().or(system.sku.as_deref()).unwrap_or("none");
    let Some(expected) = subject.serial else {
        return match shown {
            "none" => findings.add(
                "serial",
                Mark::Warn,
                "the BMC shows no serial number",
                "register the server with --allow-unverified-serial",
            ),
            shown => findings.pass("serial", format!("register it as {shown}")),
        };
    };
    match system.matches_serial(expected) {
        SerialMatch::Match => findings.pass("serial", format!("the BMC shows {shown}")),
        SerialMatch::Mismatch => findings.add(
            "serial",
            Mark::Fail,
            format!("this is another machine: the BMC shows {shown}, {expected} is registered"),
            format!("correct the address: `shoal server update {expected} --bmc-address …`"),
        ),
        SerialMatch::Unknown => findings.add(
            "serial",
            Mark::Warn,
            "the BMC shows no serial number, so it cannot be told which machine this is",
            format!("if you are sure: `shoal server update {expected} --allow-unverified-serial true`"),
        ),
    }
}

fn clock(findings: &mut Findings, seen: &Seen, subject: &Subject<'_>) {
    let date = seen.discovery.manager.as_ref().and_then(|manager| manager.date_time.as_deref());
    let Some(skew) = date.and_then(|date| skew(date, subject.now)) else {
        return findings.add("clock", Mark::Skip, "the BMC shows no clock that can be read", "");
    };
    let ahead = if skew < 0 { "behind" } else { "ahead" };
    let found = format!("the BMC's clock is {} s {ahead}", skew.abs());
    let next = "set its clock or an NTP server: a wrong clock fails certificate checks and muddles logs";
    match skew.abs() {
        0..SKEW_WARN => findings.pass("clock", found),
        SKEW_WARN..SKEW_FAIL => findings.add("clock", Mark::Warn, found, next),
        _ if subject.media_base.starts_with("https") => findings.add("clock", Mark::Fail, found, next),
        _ => findings.add("clock", Mark::Warn, found, next),
    }
}

/// The licence and the plan; answers the slot to try.
fn slots(findings: &mut Findings, bmc: &Bmc, seen: &Seen, subject: &Subject<'_>) -> Option<String> {
    let slots = &seen.discovery.slots;
    let closed = !slots.is_empty() && slots.iter().all(|slot| !slot.takes_media());
    match closed {
        true => findings.add(
            "licence",
            Mark::Fail,
            "no virtual media slot offers a way to insert an image",
            "install the BMC licence that includes virtual media",
        ),
        false => findings.pass("licence", "virtual media are offered"),
    }
    match plan_of(bmc, &seen.discovery, subject) {
        Ok(plans) => {
            let best = plans.best();
            let mark = if best.plan == SlotPlan::Single && !subject.learned.is_empty() {
                Mark::Warn
            } else {
                Mark::Pass
            };
            let found = format!("{} with {}: {}", best.plan.as_str(), best.ids.join(" and "), best.reason);
            findings.add("slot-plan", mark, found, "");
            Some(best.boot.clone())
        }
        Err(no) => {
            findings.add("slot-plan", Mark::Fail, no.why, no.next);
            None
        }
    }
}

async fn boot(findings: &mut Findings, bmc: &Bmc, seen: &Seen, write: bool) {
    const NAME: &str = "boot-override";
    let system = &seen.discovery.system;
    let read = match bmc.boot_override(system).await {
        Ok(read) => read,
        Err(error) => {
            let trouble = trouble(&error, None);
            return findings.add(NAME, Mark::Fail, trouble.sentence, trouble.next_action);
        }
    };
    let target = read.target.as_ref().map_or("none", |target| target.as_str()).to_owned();
    if read.is_active() {
        let next = "somebody wants the next boot from there; a job replaces it";
        return findings.add(NAME, Mark::Warn, format!("a boot from {target} is set already"), next);
    }
    if !write {
        return findings.pass(NAME, "can be read; --write also sets and clears it");
    }
    let set = bmc.set_boot_once(system, &bmc.profile().boot_targets, None).await;
    let cleared = bmc.clear_boot_override(system).await;
    match (set, cleared) {
        (Ok(set), Ok(cleared)) if set.confirmed && cleared.confirmed => {
            findings.pass(NAME, "set, read back, cleared, read back");
        }
        (Ok(_), Ok(_)) => findings.add(
            NAME,
            Mark::Warn,
            "accepted, and a read did not show it at once",
            "look for a pending BIOS job in the BMC",
        ),
        (Err(error), _) | (_, Err(error)) => {
            let trouble = trouble(&error, None);
            findings.add(NAME, Mark::Fail, trouble.sentence, trouble.next_action);
        }
    }
}

/// Makes the BMC read a tiny image of ours.
async fn media(
    findings: &mut Findings,
    bmc: &Bmc,
    slot: &str,
    medium: &dyn TestMedium,
    (subject, host_off): (&Subject<'_>, bool),
) {
    const NAME: &str = "media";
    let mut fail = |mark, found: String, next: &str| findings.add(NAME, mark, found, next);
    let before = match bmc.slot(slot).await {
        Ok(before) => before,
        Err(error) => return fail(Mark::Fail, error.kind.to_string(), error.next_step()),
    };
    if !before.is_empty() && !before.holds(medium.url()) {
        let found = format!("slot {} holds a medium, so nothing was put into it", before.id);
        return fail(Mark::Skip, found, "eject it in the BMC and try again");
    }
    let reach = format!("see that the BMC's network reaches {} (firewall, port, name)", subject.media_base);
    let inserted = match bmc.insert(slot, medium.url(), InsertOptions::default()).await {
        Ok(inserted) => inserted,
        Err(error) => {
            let emptied = take_out(bmc, slot, medium).await;
            let found = format!("slot {} did not take a tiny image: {}", before.id, error.kind);
            let found = emptied.map_or(found.clone(), |left| format!("{found}; {left}"));
            return fail(Mark::Fail, found, &reach);
        }
    };
    let (read, shown) = watch(bmc, slot, medium, inserted.confirmed).await;
    let left = take_out(bmc, slot, medium).await;
    if let Some(left) = left {
        return fail(Mark::Fail, left, "eject it in the BMC; a job does it at its beginning");
    }
    let found = |what: &str| format!("slot {}: inserted, {what}, ejected, each read back", before.id);
    match (read, shown) {
        (true, true) => findings.pass(NAME, found("read by the BMC")),
        (true, false) => fail(
            Mark::Warn,
            format!("slot {} read the image and never showed it as inserted", before.id),
            "a job waits for it to show; update the BMC's firmware",
        ),
        (false, true) if host_off => fail(
            Mark::Warn,
            found("not read; the host is off, and this BMC may read only for a host"),
            &reach,
        ),
        (false, true) => fail(Mark::Warn, found("and not read within 30 s"), &reach),
        (false, false) => fail(
            Mark::Fail,
            format!("slot {} accepted the image, did not show it and did not read it", before.id),
            &reach,
        ),
    }
}

/// Waits until the image was read and is shown, or long enough.
async fn watch(bmc: &Bmc, slot: &str, medium: &dyn TestMedium, mut shown: bool) -> (bool, bool) {
    let deadline = tokio::time::Instant::now() + READ_WITHIN;
    loop {
        let read = medium.was_read().await;
        if !shown {
            shown = bmc.slot(slot).await.is_ok_and(|slot| slot.holds(medium.url()));
        }
        if (read && shown) || tokio::time::Instant::now() >= deadline {
            return (read, shown);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Ejects what is ours; answers what remains.
pub(crate) async fn take_out(bmc: &Bmc, slot: &str, medium: &dyn TestMedium) -> Option<String> {
    let deadline = tokio::time::Instant::now() + READ_WITHIN;
    loop {
        let now = bmc.slot(slot).await;
        let left = match &now {
            Ok(now) if !now.is_empty() && now.image.as_ref().is_none_or(|image| image.is(medium.url())) => {
                match bmc.eject(slot).await {
                    Ok(ejected) if ejected.confirmed => return None,
                    Ok(_) => format!("slot {} was told to eject the tiny image and still shows it", now.id),
                    Err(error) => format!("slot {} does not eject the tiny image: {}", now.id, error.kind),
                }
            }
            Ok(_) => return None,
            Err(error) => {
                format!("the slot cannot be read to see whether the tiny image is out: {}", error.kind)
            }
        };
        if tokio::time::Instant::now() >= deadline {
            return Some(left);
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests;
