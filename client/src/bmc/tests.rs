//! The text output of a probe and of diagnostics.

use serde_json::{Value, json};

use super::super::output::{Format, Output};
use super::*;

fn shown(write: impl FnOnce(&mut Output<'_>) -> Result<(), CliError>) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    write(&mut Output::new(&mut out, &mut err, Format::Text)).unwrap();
    String::from_utf8(out).unwrap()
}

fn golden(name: &str, text: &str) {
    let path = format!("{}/../golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

fn example() -> Value {
    json!({
        "address": "https://192.0.2.7",
        "tls": { "mode": "pinned", "fingerprint": "ab".repeat(32), "first_met": true },
        "identity": {
            "vendor": "Contoso", "product": "Contoso BMC", "manufacturer": "Contoso", "model": "3500RX",
            "bios_version": "P79 v1.45", "bmc_model": "Joo Janta 200", "bmc_firmware": "1.45.455b66",
            "redfish_version": "1.15.0",
        },
        "host": { "serial": "SN-1", "sku": null, "power": "Off", "serial_check": "match" },
        "profile": { "name": "generic", "rule": "matches the identity of the BMC" },
        "slots": [
            { "id": "CD1", "media_types": ["CD", "DVD"], "empty": true, "insert": "action", "transfer_protocols": ["HTTP", "HTTPS"] },
            { "id": "USB\u{1b}[2J", "media_types": ["USBStick"], "empty": false, "insert": "patch", "transfer_protocols": [] },
        ],
        "boot": { "target": "None", "enabled": "Disabled", "mode": "UEFI" },
        "power": { "reset_types": ["On", "ForceOff"] },
        "update_service": { "simple_update": true, "multipart_push": "/upload", "push": null, "firmware_count": 7 },
        "account": { "role": "Operator", "locked": false, "lockout_threshold": 5, "session_timeout": 1800 },
        "clock": { "bmc": "2026-01-01T00:00:00Z", "skew_seconds": -12 },
        "slot_plan": { "plan": "cd+usb", "slots": ["CD1", "USB"], "reason": "one CD slot and a USB slot take media" },
        "requests": { "count": 21 },
    })
}

#[test]
fn a_card_matches_the_golden_file() {
    golden("bmc-card", &shown(|output| show::card(&example(), output)));
}

#[test]
fn an_empty_card_is_shown_without_panic() {
    let text = shown(|output| show::card(&json!({}), output));
    assert!(text.contains("SLOT") && text.contains("slot plan"), "{text}");
}

#[test]
fn diagnostics_match_the_golden_file() {
    let report = json!({ "verdict": "fail", "checks": [
        { "name": "connect", "status": "pass", "found": "https://192.0.2.7 responds", "next_action": "" },
        { "name": "clock", "status": "warn", "found": "the BMC's clock is 400 s behind", "next_action": "set it" },
        { "name": "media", "status": "fail", "found": "slot CD1 did not accept the test image: refused", "next_action": "see the network" },
        { "name": "account", "status": "skip", "found": "the BMC does not show its accounts", "next_action": "" },
    ]});
    golden("bmc-doctor", &shown(|output| show::checks(&report, output)));
}

#[test]
fn addresses_are_distinguished_from_serial_numbers() {
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        target: TargetArgs,
    }

    for (words, expected) in [
        (&["SN-1"][..], false),
        (&["192.0.2.7"], true),
        (&["bmc7.example"], true),
        (&["https://x"], true),
        (&["[fd00::7]:443"], true),
        (&["localhost"], true),
        (&["bmc7", "--direct"], true),
    ] {
        let line = Line::try_parse_from(["bmc"].iter().chain(words)).unwrap();
        assert_eq!(line.target.is_address(), expected, "{words:?}");
    }
}
