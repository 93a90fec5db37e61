//! Signatures that GnuPG made, unchanged and changed.

use super::*;

/// The keys were made for this test, and their secret halves deleted.
const RSA_KEY: &str = include_str!("../../../../golden/maintenance/rsa.asc");
const ED25519_KEY: &str = include_str!("../../../../golden/maintenance/ed25519.asc");
/// Signed by both keys with SHA-512.
const BOTH: &str = include_str!("../../../../golden/maintenance/InRelease");
/// Signed by the RSA key with SHA-256.
const SHA256_ONLY: &str = include_str!("../../../../golden/maintenance/InRelease-sha256");

fn keyring(text: &str) -> Keyring {
    Keyring::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_text_is_opened_by_either_of_its_two_keys() {
    for key in [RSA_KEY, ED25519_KEY] {
        let text = keyring(key).open(BOTH).unwrap();
        assert!(text.starts_with("Origin: Test\nSuite: test\nSHA256:\n 0123"), "{text}");
        assert!(text.ends_with("\n- a line with a dash\ntrailing spaces\n"), "{text}");
    }
    assert!(keyring(RSA_KEY).open(SHA256_ONLY).is_ok());
}

#[test]
fn a_keyring_without_its_key_does_not_open_it() {
    let reason = keyring(ED25519_KEY).open(SHA256_ONLY).unwrap_err();
    assert!(reason.contains("no key of the keyring"), "{reason}");
    assert!(keyring(&format!("{ED25519_KEY}{RSA_KEY}")).open(SHA256_ONLY).is_ok());
}

#[test]
fn a_binary_keyring_is_read_too() {
    let begin = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
    let binary = unarmor(&RSA_KEY[begin.len()..], "-----END PGP PUBLIC KEY BLOCK-----").unwrap();
    let ring = Keyring::parse(&binary).unwrap();
    assert_eq!(ring.0, keyring(RSA_KEY).0);
    assert!(ring.open(BOTH).is_ok());
}

#[test]
fn every_change_of_the_text_or_its_signature_is_noticed() {
    let ring = keyring(&format!("{ED25519_KEY}{RSA_KEY}"));
    assert!(ring.open(&BOTH.replace("Suite: test", "Suite: tesT")).is_err());
    assert!(ring.open(&BOTH.replace("- - a line", "- a line")).is_err());
    assert!(ring.open(&BOTH.replace("Origin", "\nOrigin")).is_err());
    let body = BOTH.find("Origin").unwrap();
    for at in (body..BOTH.find("-----BEGIN PGP SIGNATURE").unwrap()).step_by(5) {
        let mut changed = BOTH.as_bytes().to_vec();
        changed[at] ^= 1;
        if let Ok(changed) = String::from_utf8(changed) {
            // Spaces at the end of a line are not signed, and are not returned either.
            assert!(ring.open(&changed).is_err() || BOTH.as_bytes()[at] == b' ', "{at}");
        }
    }
    let signature = SHA256_ONLY.find("\n\n").map(|_| SHA256_ONLY.rfind("-----BEGIN").unwrap()).unwrap();
    let end = SHA256_ONLY.rfind("\n=").unwrap();
    for at in (signature + 30..end).step_by(7) {
        let mut changed = SHA256_ONLY.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        // The packet has an unhashed part, which may be changed; the text that is returned is the signed one all the same.
        if let Ok(text) = ring.open(&changed) {
            assert_eq!(text, ring.open(SHA256_ONLY).unwrap());
        }
    }
}

#[test]
fn what_stands_before_or_behind_the_signed_text_is_not_returned() {
    let ring = keyring(RSA_KEY);
    assert!(ring.open(&format!("evil: 1\n{BOTH}")).is_err());
    assert_eq!(ring.open(&format!("{BOTH}evil: 1\n")).unwrap(), ring.open(BOTH).unwrap());
    assert!(ring.open(&BOTH.replace("Hash: SHA512\n", "Hash: SHA512\nEvil: 1\n")).is_err());
    assert!(ring.open("Origin: Test\n").is_err());
}

#[test]
fn every_cut_is_an_error_or_the_signed_text() {
    let ring = keyring(RSA_KEY);
    for end in 0..SHA256_ONLY.len() - 40 {
        assert!(ring.open(&SHA256_ONLY[..end]).is_err(), "{end}");
    }
    for end in 0..RSA_KEY.len() {
        let _result = Keyring::parse(&RSA_KEY.as_bytes()[..end]);
    }
    let binary = unarmor(&RSA_KEY[36..], "-----END PGP PUBLIC KEY BLOCK-----").unwrap();
    for end in 0..binary.len() {
        let _result = Keyring::parse(&binary[..end]);
    }
}

#[test]
fn a_certification_does_not_count_as_the_signature_of_a_text() {
    let block = SHA256_ONLY.rsplit("-----BEGIN PGP SIGNATURE-----").next().unwrap();
    let binary = unarmor(block, "-----END PGP SIGNATURE-----").unwrap();
    let (_, body) = Packets(&binary).next().unwrap().unwrap();
    assert!(signature(body).is_some());
    for (at, value) in [(0, 3), (1, 0x10), (1, 0x13), (3, 2)] {
        let mut changed = body.to_vec();
        changed[at] = value;
        assert!(signature(&changed).is_none(), "{at} {value}");
    }
}
