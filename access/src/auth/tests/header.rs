//! Parsing of the `Authorization` header.

use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::*;
use crate::auth::header::{PresentedCredentials, parse};

fn basic_of(value: &str) -> Option<(String, String)> {
    match parse(value)? {
        PresentedCredentials::Basic { name, password } => Some((name, password.expose_secret().to_owned())),
        PresentedCredentials::Bearer(_) => None,
    }
}

#[test]
fn the_first_colon_separates_name_and_password() {
    let pair = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
    // RFC 7617 section 2.
    assert_eq!(basic_of("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), pair("Aladdin", "open sesame"));
    assert_eq!(basic_of("basic   QWxhZGRpbjpvcGVuIHNlc2FtZQ"), pair("Aladdin", "open sesame"));
    assert_eq!(basic_of(&basic("a", "b:c:")), pair("a", "b:c:"));
    assert_eq!(basic_of(&basic("ü", "pä")), pair("ü", "pä"));
}

#[test]
fn a_bearer_token_is_parsed_completely() {
    for value in ["Bearer abc.DEF-1_~+/=", "BEARER  abc.DEF-1_~+/=  "] {
        let Some(PresentedCredentials::Bearer(token)) = parse(value) else { panic!("{value}") };
        assert_eq!(token.expose_secret(), "abc.DEF-1_~+/=");
    }
}

#[test]
fn every_other_header_is_refused() {
    let long_name = basic(&"n".repeat(129), "password");
    let long_password = basic("n", &"p".repeat(MAX_PASSWORD_BYTES + 1));
    let long_header = format!("Bearer {}", "a".repeat(9000));
    let no_colon = format!("Basic {}", STANDARD.encode("no colon"));
    let not_text = format!("Basic {}", STANDARD.encode([0xff, b':', 0xff]));
    let refused = [
        "",
        "Basic",
        "Basic ",
        "Basic @@@",
        "Bearer",
        "Bearer ",
        "Bearer a b",
        "Bearer a\"b",
        "Digest abc",
        "Negotiate abc",
        "shoal_aaaa",
        &long_name,
        &long_password,
        &long_header,
        &no_colon,
        &not_text,
        &basic("", "password"),
        &basic("name", ""),
        &basic("na\nme", "password"),
        &basic("name", "pass\0word"),
    ];
    for value in refused {
        assert!(parse(value).is_none(), "{value:?}");
    }
}

#[test]
fn debug_output_of_credentials_contains_no_secret() {
    let presented = [parse(&basic("name", CANARY)), parse(&format!("Bearer {CANARY}"))];
    let shown = format!("{presented:?}");
    assert!(!shown.contains(CANARY), "{shown}");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(value in ".*", scheme in "(?i)(basic|bearer|) *") {
        let _either = parse(&value).is_some();
        let _either = parse(&format!("{scheme}{value}")).is_some();
    }

    #[test]
    fn no_bytes_in_base64_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _either = parse(&format!("Basic {}", STANDARD.encode(bytes))).is_some();
    }

    #[test]
    fn every_printable_name_and_password_is_parsed_unchanged(name in "[^:\\p{Cc}]{1,30}", password in "[^\\p{Cc}]{1,60}") {
        prop_assert_eq!(basic_of(&basic(&name, &password)), Some((name, password)));
    }
}
