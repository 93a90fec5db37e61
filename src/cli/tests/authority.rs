//! `shoal ca export --from`.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Controller, Ran, shoal};

/// Two certificates as PEM, each with its fingerprint.
fn certificates() -> [(String, String); 2] {
    ["a.example", "b.example"].map(|name| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap().cert;
        (made.pem(), hex::encode(Sha256::digest(made.der())))
    })
}

/// Exports from a controller whose `/ca.pem` is this text.
fn export(text: &str, options: &[&str]) -> Ran {
    let text = text.to_owned();
    let controller = Controller::start(move |seen| match seen.uri.path() {
        "/ca.pem" => (200, Value::String(text.clone())),
        _ => (404, Value::Null),
    });
    shoal(&[&["ca", "export", "--from", &controller.url], options].concat())
}

#[test]
fn a_fingerprint_stands_for_all_that_is_printed() {
    let [(first, print), (second, _)] = certificates();
    let ran = export(&format!("{first}{second}"), &["--fingerprint", &print]).ends_with(1);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("2 certificates"), "{}", ran.err);
    let ran = export(&second, &["--fingerprint", &print]).ends_with(1);
    assert!(ran.out.is_empty() && ran.err.contains("another controller"), "{}", ran.err);
    let ran = export(&first, &["--fingerprint", &print]).ends_with(0);
    assert_eq!(ran.out, first);
}

#[test]
fn only_certificates_are_printed_and_no_other_text_of_the_response() {
    let [(first, print), _] = certificates();
    let crl = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    let text = format!("\u{1b}]0;title\u{7}\n{first}{crl}\u{1b}[2J");
    for fingerprint in [&[][..], &["--fingerprint", &print]] {
        let ran = export(&text, fingerprint).ends_with(0);
        assert_eq!(ran.out, first);
        assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
    }
    let ran = export(&text, &["--json"]).ends_with(0);
    assert_eq!(ran.json(), json!({ "pem": first, "sha256": print }));
    assert!(ran.err.contains("not verified"), "{}", ran.err);
    let ran = export("no PEM \u{1b}[2J", &[]).ends_with(1);
    assert!(ran.err.contains("no certificate") && !ran.err.contains('\u{1b}'), "{}", ran.err);
}

#[test]
fn each_of_several_unverified_certificates_has_its_fingerprint() {
    let [(first, print), (second, other)] = certificates();
    let both = format!("{first}junk\n{second}");
    let ran = export(&both, &[]).ends_with(0);
    assert_eq!(ran.out, format!("{first}{second}"));
    assert!(ran.err.contains(&print) && ran.err.contains(&other), "{}", ran.err);
    // A script that compares one must not take it for both.
    let ran = export(&both, &["--json"]).ends_with(0);
    assert_eq!(ran.json(), json!({ "pem": format!("{first}{second}"), "sha256": null }));
}
