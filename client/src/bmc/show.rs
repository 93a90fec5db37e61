//! A capability card and diagnostics as text.

use serde_json::Value;

use super::super::error::CliError;
use super::super::output::{Output, join, plain, text};

/// Shows a capability card.
pub(super) fn card(card: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let of = |pointer: &str| text(card, pointer);
    let firmware = [of("/identity/bmc_model"), of("/identity/bmc_firmware")];
    let redfish = of("/identity/redfish_version");
    let model = [of("/identity/manufacturer"), of("/identity/model")];
    output.fields(&[
        ("bmc", of("/address")),
        ("certificate", certificate(card)),
        ("machine", join(&model, " ")),
        ("serial", serial(card)),
        ("firmware", join(&[join(&firmware, " "), of("/identity/bios_version")], ", BIOS ")),
        ("redfish", redfish),
        ("profile", join(&[of("/profile/name"), of("/profile/rule")], ": ")),
        ("host", of("/host/power")),
        ("resets", words(&card["power"]["reset_types"])),
        ("boot", boot(&card["boot"])),
        ("account", account(&card["account"])),
        ("clock", clock(&card["clock"])),
        ("update service", update(&card["update_service"])),
        ("slot plan", plan(&card["slot_plan"])),
        ("requests", format!("{} made", of("/requests/count"))),
    ])?;
    output.line("")?;
    let rows: Vec<Vec<String>> = list(&card["slots"])
        .map(|slot| {
            let state = if slot["empty"] == true { "empty" } else { "media inserted" };
            vec![
                text(slot, "/id"),
                words(&slot["media_types"]),
                text(slot, "/insert"),
                words(&slot["transfer_protocols"]),
                state.to_owned(),
            ]
        })
        .collect();
    output.table(&["SLOT", "TYPES", "INSERT BY", "READS", "STATE"], &rows)
}

/// Shows every check, with the action below each that has one.
pub(super) fn checks(report: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let names: Vec<String> = list(&report["checks"]).map(|check| text(check, "/name")).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for check in list(&report["checks"]) {
        let (status, name) = (text(check, "/status"), text(check, "/name"));
        output.line(format!("{status:<4}  {name:<width$}  {}", text(check, "/found")))?;
        let next = text(check, "/next_action");
        if !next.is_empty() {
            output.line(format!("{:4}  {:width$}  -> {next}", "", ""))?;
        }
    }
    match report["message"].as_str() {
        Some(message) => output.line(plain(message)),
        None => output.line(format!("\n{}", verdict(&text(report, "/verdict")))),
    }
}

fn verdict(verdict: &str) -> &'static str {
    match verdict {
        "pass" => "Ready for a job.",
        "warn" => "A job may work; see the warnings.",
        _ => "A job would fail; see the actions above.",
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn words(value: &Value) -> String {
    let words: Vec<String> = list(value).filter_map(Value::as_str).map(plain).collect();
    words.join(" ")
}

fn certificate(card: &Value) -> String {
    let fingerprint = text(card, "/tls/fingerprint");
    match card["tls"]["mode"].as_str() {
        Some("none") => "none: plain HTTP".to_owned(),
        Some("verify") => "issued by the configured CA".to_owned(),
        Some("insecure") => join(&["any is accepted".to_owned(), fingerprint], ", shows sha256 "),
        _ if card["tls"]["first_met"] == true => format!("sha256 {fingerprint} (first seen now)"),
        _ => format!("sha256 {fingerprint} (pinned)"),
    }
}

fn serial(card: &Value) -> String {
    let shown = [text(card, "/host/serial"), text(card, "/host/sku")];
    let shown = shown.into_iter().find(|shown| !shown.is_empty()).unwrap_or_else(|| "none shown".to_owned());
    match card["host"]["serial_check"].as_str() {
        Some("another machine") => format!("{shown} (NOT the registered one)"),
        Some("match") => format!("{shown} (as registered)"),
        _ => shown,
    }
}

fn boot(boot: &Value) -> String {
    let of = |names: [&str; 2]| names.iter().find_map(|name| boot[*name].as_str()).map(plain);
    let parts = [of(["target", "Target"]), of(["enabled", "Enabled"]), of(["mode", "Mode"])];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    join(&parts, ", ")
}

fn account(account: &Value) -> String {
    if account.is_null() {
        return "not shown".to_owned();
    }
    let flag = |name: &str, word: &str| (account[name] == true).then(|| word.to_owned());
    let number = |name: &str, word: &str| account[name].as_u64().map(|n| format!("{word} {n}"));
    let parts = [
        Some(text(account, "/role")).filter(|role| !role.is_empty()),
        flag("locked", "LOCKED"),
        flag("password_change_required", "PASSWORD CHANGE REQUIRED"),
        number("lockout_threshold", "locked after"),
        number("session_timeout", "session timeout"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn clock(clock: &Value) -> String {
    match clock["skew_seconds"].as_i64() {
        Some(0) => "no difference".to_owned(),
        Some(skew) => format!("{} s {}", skew.abs(), if skew < 0 { "behind" } else { "ahead" }),
        None => "not shown".to_owned(),
    }
}

fn update(update: &Value) -> String {
    if update.is_null() {
        return "none".to_owned();
    }
    let way =
        |name: &str, word: &str| (!update[name].is_null() && update[name] != false).then(|| word.to_owned());
    let ways = [way("simple_update", "pull"), way("multipart_push", "multipart push"), way("push", "push")];
    let ways: Vec<String> = ways.into_iter().flatten().collect();
    let pieces = update["firmware_count"].as_u64().unwrap_or(0);
    join(&[ways.join(", "), format!("{pieces} firmware components")], "; ")
}

fn plan(plan: &Value) -> String {
    match plan["plan"].as_str() {
        Some(name) => {
            let slots = words(&plan["slots"]).replace(' ', " and ");
            format!("{} with {slots}: {}", plain(name), text(plan, "/reason"))
        }
        None => format!("none: {}; {}", text(plan, "/reason"), text(plan, "/next_action")),
    }
}
