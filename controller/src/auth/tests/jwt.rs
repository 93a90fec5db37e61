//! JSON Web Tokens.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::*;
use crate::auth::jwt::{Bearer, JwtError, is_jwt};
use secrets::hmac_sha256;

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

fn sign(header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac_sha256(JWT_SECRET.as_bytes(), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn verify(token: &str) -> Result<Bearer, JwtError> {
    jwt_key().verify(token, at(0))
}

fn verify_claims(claims: &str) -> Result<Bearer, JwtError> {
    verify(&sign(HEADER, claims))
}

/// RFC 7515, appendix A.1.
#[test]
fn a_jwt_has_a_role_of_users() {
    let with = |role: &str| sign(HEADER, &format!(r#"{{"sub":"ci","role":"{role}","exp":2000000000}}"#));
    for role in [Role::Admin, Role::Operator, Role::Viewer] {
        assert_eq!(verify(&with(role.as_str())).unwrap().role, role);
    }
    for role in ["report-only", "registry-only", "reader", "root", ""] {
        assert!(verify(&with(role)).is_err(), "{role}");
    }
}

#[test]
fn the_example_of_the_specification_verifies() {
    let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9\
                 .eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ\
                 .dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let key = JwtKey::from_bytes(&URL_SAFE_NO_PAD.decode(key).unwrap());
    let claims = key.verified_claims(token).unwrap();
    let expected = "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}";
    assert_eq!(str::from_utf8(&claims).unwrap(), expected);
    assert_eq!(key.verify(token, at(0)), Err(JwtError::Unreadable("claims")), "its claims have no sub");
}

/// The token was signed by another implementation.
#[test]
fn a_fixed_token_verifies() {
    let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9\
                 .eyJzdWIiOiJjaSIsInJvbGUiOiJ2aWV3ZXIiLCJleHAiOjIwMDAwMDAwMDB9\
                 .TossMhU1x6ImQhms0RsJykH_2k3vPOqfVOQrxNnV8as";
    assert_eq!(verify(token), Ok(Bearer { name: "ci".to_owned(), role: Role::Viewer }));
    let other = JwtKey::from_bytes(b"another key of thirty-two bytes!");
    assert_eq!(other.verify(token, at(0)), Err(JwtError::Signature));
}

#[test]
fn only_hs256_without_critical_extensions_is_accepted() {
    let claims = r#"{"sub":"ci","role":"admin","exp":2000000000}"#;
    let refused = [
        (r#"{"alg":"none"}"#, JwtError::Algorithm),
        (r#"{"alg":"HS512"}"#, JwtError::Algorithm),
        (r#"{"alg":"RS256"}"#, JwtError::Algorithm),
        (r#"{"alg":"hs256"}"#, JwtError::Algorithm),
        (r#"{"alg":"HS256","crit":["exp"]}"#, JwtError::Critical),
        (r#"{"alg":"HS256","alg":"none"}"#, JwtError::Unreadable("header")),
        ("{}", JwtError::Unreadable("header")),
        ("not json", JwtError::Unreadable("header")),
    ];
    for (header, expected) in refused {
        assert_eq!(verify(&sign(header, claims)), Err(expected), "{header}");
    }
    let unsigned =
        format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims));
    assert_eq!(verify(&unsigned), Err(JwtError::Signature));
}

#[test]
fn sub_role_and_exp_are_required() {
    let refused = [
        r#"{"role":"admin","exp":2000000000}"#,
        r#"{"sub":"ci","exp":2000000000}"#,
        r#"{"sub":"ci","role":"admin"}"#,
        r#"{"sub":"ci","role":"root","exp":2000000000}"#,
        r#"{"sub":"ci","role":["admin"],"exp":2000000000}"#,
        r#"{"sub":7,"role":"admin","exp":2000000000}"#,
        r#"{"sub":"ci","role":"admin","exp":"2000000000"}"#,
        r#"{"sub":"ci","role":"viewer","role":"admin","exp":2000000000}"#,
        r#"[]"#,
        "",
    ];
    for claims in refused {
        assert_eq!(verify_claims(claims), Err(JwtError::Unreadable("claims")), "{claims}");
    }
    for sub in ["", "a\\nb", &"n".repeat(129)] {
        let claims = format!(r#"{{"sub":"{sub}","role":"admin","exp":2000000000}}"#);
        assert_eq!(verify_claims(&claims), Err(JwtError::Unreadable("sub")), "{sub}");
    }
}

#[test]
fn exp_and_nbf_have_a_leeway_of_half_a_minute() {
    let now = at(0).as_second();
    let claims = |exp: i64, nbf: i64| format!(r#"{{"sub":"ci","role":"admin","exp":{exp},"nbf":{nbf}}}"#);
    assert!(verify_claims(&claims(now + 1, now)).is_ok());
    assert!(verify_claims(&claims(now - 29, now + 30)).is_ok());
    assert_eq!(verify_claims(&claims(now - 30, now - 60)), Err(JwtError::Expired));
    assert_eq!(verify_claims(&claims(now + 90, now + 31)), Err(JwtError::NotYet));
    assert_eq!(verify_claims(&claims(i64::MIN, 0)), Err(JwtError::Expired));
    assert!(verify_claims(&claims(i64::MAX, i64::MIN)).is_ok());
}

#[test]
fn fractions_of_seconds_are_allowed_and_other_types_are_not() {
    let claims = |exp: &str| format!(r#"{{"sub":"ci","role":"admin","exp":{exp}}}"#);
    assert!(verify_claims(&claims("2000000000.5")).is_ok());
    assert!(verify_claims(&claims("2e9")).is_ok());
    for exp in ["1e300", "-1e300", "18446744073709551615"] {
        assert_eq!(verify_claims(&claims(exp)), Err(JwtError::Unreadable("claims")), "{exp}");
    }
}

#[test]
fn an_aud_claim_must_contain_shoal() {
    let claims = |aud: &str| format!(r#"{{"sub":"ci","role":"admin","exp":2000000000,"aud":{aud}}}"#);
    for aud in [r#""shoal""#, r#"["other","shoal"]"#, "null"] {
        assert!(verify_claims(&claims(aud)).is_ok(), "{aud}");
    }
    for aud in [r#""other""#, "[]", r#"["shoals"]"#] {
        assert_eq!(verify_claims(&claims(aud)), Err(JwtError::Audience), "{aud}");
    }
    assert_eq!(verify_claims(&claims("7")), Err(JwtError::Unreadable("claims")));
}

#[test]
fn a_token_has_three_short_parts_in_base64url() {
    let good = sign(HEADER, r#"{"sub":"ci","role":"admin","exp":2000000000}"#);
    for token in ["", ".", "..", "a.b", "a.b.c.d", &format!("{good}="), &format!("x.{good}")] {
        assert!(matches!(verify(token), Err(JwtError::Form | JwtError::Signature)), "{token}");
    }
    assert_eq!(verify(&"a.".repeat(3000)), Err(JwtError::TooLong));
}

#[test]
fn every_change_of_a_token_is_refused() {
    let good = sign(HEADER, r#"{"sub":"ci","role":"viewer","exp":2000000000}"#);
    for position in 0..good.len() {
        let mut changed = good.clone().into_bytes();
        changed[position] = if changed[position] == b'A' { b'B' } else { b'A' };
        assert!(verify(str::from_utf8(&changed).unwrap()).is_err(), "position {position}");
    }
}

#[test]
fn a_short_secret_is_refused_and_never_shown() {
    let error = JwtKey::hs256(&SecretString::from(CANARY)).unwrap_err();
    assert!(error.to_string().contains("at least 32") && !all_messages(&error).contains(CANARY));
    let key = JwtKey::hs256(&SecretString::from(CANARY.repeat(2))).unwrap();
    assert!(!format!("{key:?}").contains(CANARY));
}

#[test]
fn a_jwt_is_distinguished_from_a_password_by_its_form() {
    assert!(is_jwt(&sign(HEADER, "{}")));
    assert!(!is_jwt("my.pass.word") && !is_jwt("eyJ.only-two"));
}

proptest! {
    #[test]
    fn no_text_makes_the_verifier_panic(token in "(eyJ)?[A-Za-z0-9_.-]{0,200}", claims in ".{0,200}") {
        prop_assert!(verify(&token).is_err());
        prop_assert!(verify_claims(&claims).is_err());
    }
}
