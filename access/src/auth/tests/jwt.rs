//! JSON Web Tokens: their signatures, claims and roles.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use rcgen::{KeyPair, PKCS_ED25519};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::auth::jwt::{Bearer, JwtError, is_jwt};
use secrets::hmac_sha256;

pub(super) const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const CLAIMS: &str = r#"{"sub":"ci","role":"viewer","exp":2000000000}"#;
const RSA_PRIVATE: &str = include_str!("keys/rsa-private.pem");
pub(super) const RSA_PUBLIC: &str = include_str!("keys/rsa-public.pem");

/// Signs with a key of any kind, with the code of other libraries where there are any.
pub(super) enum Signer {
    Secret(Vec<u8>),
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair, KeyPair),
    Ed(Ed25519KeyPair, KeyPair),
}

impl Signer {
    pub(super) fn secret(secret: &str) -> Self {
        Self::Secret(secret.as_bytes().to_vec())
    }

    /// The key of `keys/rsa-private.pem`.
    pub(super) fn rsa() -> Self {
        let der = PrivatePkcs8KeyDer::from_pem_slice(RSA_PRIVATE.as_bytes()).unwrap();
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap()))
    }

    pub(super) fn ec() -> Self {
        let made = KeyPair::generate().unwrap();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, &made.serialize_der(), &SystemRandom::new()).unwrap();
        Self::Ec(key, made)
    }

    pub(super) fn ed() -> Self {
        let made = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(&made.serialize_der()).unwrap(), made)
    }

    pub(super) fn alg(&self) -> &'static str {
        match self {
            Self::Secret(_) => "HS256",
            Self::Rsa(_) => "RS256",
            Self::Ec(..) => "ES256",
            Self::Ed(..) => "EdDSA",
        }
    }

    pub(super) fn public_pem(&self) -> String {
        match self {
            Self::Secret(_) => unreachable!("a secret has no public key"),
            Self::Rsa(_) => RSA_PUBLIC.to_owned(),
            Self::Ec(_, made) | Self::Ed(_, made) => made.public_key_pem(),
        }
    }

    pub(super) fn jwk(&self, kid: &str) -> serde_json::Value {
        use ring::signature::KeyPair as _;
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Secret(secret) => serde_json::json!({"kty": "oct", "kid": kid, "k": part(secret)}),
            Self::Rsa(key) => {
                let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public_key());
                // Some issuers encode the number as DER does, with a zero in front.
                let n = [&[0], public.n.as_slice()].concat();
                serde_json::json!({"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": part(&n), "e": part(&public.e)})
            }
            Self::Ec(key, _) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                serde_json::json!({"kty": "EC", "kid": kid, "crv": "P-256", "x": part(x), "y": part(y)})
            }
            Self::Ed(key, _) => {
                let x = part(key.public_key().as_ref());
                serde_json::json!({"kty": "OKP", "kid": kid, "crv": "Ed25519", "alg": "EdDSA", "x": x})
            }
        }
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Secret(secret) => hmac_sha256(secret, message).to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
            Self::Ec(key, _) => key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Self::Ed(key, _) => key.sign(message).as_ref().to_vec(),
        }
    }

    pub(super) fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.signature(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

pub(super) fn sign(header: &str, claims: &str) -> String {
    Signer::secret(JWT_SECRET).sign(header, claims)
}

/// Waits for a future that never waits itself.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn verify_with(verifier: &JwtVerifier, token: &str) -> Result<Bearer, JwtError> {
    now(verifier.verify(token, at(0), at(0)))
}

fn verify(token: &str) -> Result<Bearer, JwtError> {
    verify_with(&jwt_key(), token)
}

fn verify_claims(claims: &str) -> Result<Bearer, JwtError> {
    verify(&sign(HEADER, claims))
}

fn with_rules(rules: JwtRules) -> JwtVerifier {
    let keys = JwtKeys { secret: Some(SecretString::from(JWT_SECRET)), ..JwtKeys::default() };
    JwtVerifier::new(keys, rules).unwrap().unwrap()
}

fn with_public(pem: &str) -> JwtVerifier {
    let keys = JwtKeys { public: Some(pem.as_bytes().to_vec()), ..JwtKeys::default() };
    JwtVerifier::new(keys, JwtRules::default()).unwrap().unwrap()
}

fn viewer() -> Result<Bearer, JwtError> {
    Ok(Bearer { name: "ci".to_owned(), role: Role::Viewer })
}

#[test]
fn a_jwt_has_a_role_of_users() {
    let with = |role: &str| sign(HEADER, &format!(r#"{{"sub":"ci","role":"{role}","exp":2000000000}}"#));
    for role in [Role::Admin, Role::Operator, Role::Viewer] {
        assert_eq!(verify(&with(role.as_str())).unwrap().role, role);
    }
    for role in ["report-only", "registry-only", "reader", "root", ""] {
        assert_eq!(verify(&with(role)), Err(JwtError::Role), "{role}");
    }
}

/// RFC 7515, appendix A.1.
#[test]
fn the_example_of_the_specification_verifies() {
    let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9\
                 .eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ\
                 .dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let verifier = JwtVerifier::of_secret_bytes(&URL_SAFE_NO_PAD.decode(key).unwrap());
    let claims = now(verifier.verified_claims(token, at(0))).unwrap();
    assert_eq!(claims.value("iss").unwrap(), "joe");
    assert_eq!(claims.value("exp").unwrap(), 1_300_819_380);
    assert_eq!(verify_with(&verifier, token), Err(JwtError::Expired));
}

/// The token was signed by another implementation.
#[test]
fn a_fixed_token_verifies() {
    let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9\
                 .eyJzdWIiOiJjaSIsInJvbGUiOiJ2aWV3ZXIiLCJleHAiOjIwMDAwMDAwMDB9\
                 .TossMhU1x6ImQhms0RsJykH_2k3vPOqfVOQrxNnV8as";
    assert_eq!(verify(token), viewer());
    let other = JwtVerifier::of_secret_bytes(b"another key of thirty-two bytes!");
    assert_eq!(verify_with(&other, token), Err(JwtError::Signature));
}

#[test]
fn public_keys_of_three_kinds_verify_what_their_private_keys_signed() {
    for signer in [Signer::rsa(), Signer::ec(), Signer::ed()] {
        let verifier = with_public(&signer.public_pem());
        let header = format!(r#"{{"alg":"{}","kid":"any"}}"#, signer.alg());
        assert_eq!(verify_with(&verifier, &signer.sign(&header, CLAIMS)), viewer(), "{}", signer.alg());
    }
    let (rsa, ec) = (Signer::rsa(), Signer::ec());
    let both = with_public(&(rsa.public_pem() + &ec.public_pem()));
    for signer in [rsa, ec] {
        let header = format!(r#"{{"alg":"{}"}}"#, signer.alg());
        assert_eq!(verify_with(&both, &signer.sign(&header, CLAIMS)), viewer());
    }
}

/// The refusals of tokens, one line for each way to forge or mistake one: `golden/jwt.txt`.
#[test]
fn every_mistaken_or_forged_token_is_refused_as_the_golden_table_says() {
    use std::fmt::Write as _;
    let rules = JwtRules {
        issuer: Some("https://login.example".to_owned()),
        audience: Some("shoal".to_owned()),
        ..JwtRules::default()
    };
    let rsa = Signer::rsa();
    let keys = JwtKeys { public: Some(RSA_PUBLIC.into()), ..JwtKeys::default() };
    let verifier = JwtVerifier::new(keys, rules).unwrap().unwrap();
    let header = r#"{"alg":"RS256","typ":"JWT"}"#;
    let with = |more: &str| {
        format!(
            r#"{{"sub":"ada","exp":2000000000,"iss":"https://login.example","aud":"shoal","role":"admin"{more}}}"#
        )
    };
    let but = |from: &str, to: &str| with("").replace(from, to);
    let secret = |text: &str| Signer::Secret(text.as_bytes().to_vec());
    let unsigned =
        |header: &str| format!("{}.{}.", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(with("")));
    let good = rsa.sign(header, &with(""));
    let swapped = |claims: &str| {
        let parts: Vec<&str> = good.split('.').collect();
        format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(claims), parts[2])
    };
    let mut der = Vec::new();
    der.extend_from_slice(
        &rustls::pki_types::SubjectPublicKeyInfoDer::from_pem_slice(RSA_PUBLIC.as_bytes()).unwrap(),
    );
    let cases = [
        ("a right token", good.clone()),
        ("no signature, alg none", unsigned(r#"{"alg":"none"}"#)),
        ("no signature, alg RS256", unsigned(header)),
        ("no signature, no alg", unsigned("{}")),
        ("the public key in PEM as secret of HS256", secret(RSA_PUBLIC).sign(HEADER, &with(""))),
        ("the public key in DER as secret of HS256", Signer::Secret(der).sign(HEADER, &with(""))),
        ("the public key as secret, alg RS256", secret(RSA_PUBLIC).sign(header, &with(""))),
        ("an empty secret", secret("").sign(HEADER, &with(""))),
        ("another alg of RSA", rsa.sign(r#"{"alg":"RS512"}"#, &with(""))),
        ("alg PS256", rsa.sign(r#"{"alg":"PS256"}"#, &with(""))),
        ("alg in small letters", rsa.sign(r#"{"alg":"rs256"}"#, &with(""))),
        ("alg twice", rsa.sign(r#"{"alg":"RS256","alg":"none"}"#, &with(""))),
        ("kid twice", rsa.sign(r#"{"alg":"RS256","kid":"a","kid":"b"}"#, &with(""))),
        ("critical extensions", rsa.sign(r#"{"alg":"RS256","crit":["exp"]}"#, &with(""))),
        ("another type", rsa.sign(r#"{"alg":"RS256","typ":"logout+jwt"}"#, &with(""))),
        (
            "a key in the header",
            Signer::ec().sign(r#"{"alg":"ES256","jwk":{"kty":"oct","k":"AA"}}"#, &with("")),
        ),
        ("claims of another token", swapped(&but("ada", "eve"))),
        ("expired", rsa.sign(header, &but("2000000000", "1899999000"))),
        ("without exp", rsa.sign(header, &but(r#""exp":2000000000,"#, ""))),
        ("exp as text", rsa.sign(header, &but("2000000000", r#""2000000000""#))),
        ("nbf in the future", rsa.sign(header, &with(r#","nbf":1900000100"#))),
        ("iat in the future", rsa.sign(header, &with(r#","iat":1900000100"#))),
        ("another issuer", rsa.sign(header, &but("login.example", "login.example.net"))),
        ("without iss", rsa.sign(header, &but(r#""iss":"https://login.example","#, ""))),
        ("another audience", rsa.sign(header, &but(r#""aud":"shoal""#, r#""aud":["mail","shoals"]"#))),
        ("without aud", rsa.sign(header, &but(r#""aud":"shoal","#, ""))),
        ("without sub", rsa.sign(header, &but(r#""sub":"ada","#, ""))),
        ("an empty sub", rsa.sign(header, &but(r#""ada""#, r#""""#))),
        ("an unknown role", rsa.sign(header, &but(r#""admin""#, r#""root""#))),
        ("role twice", rsa.sign(header, &with(r#","role":"viewer""#))),
        ("sub twice", rsa.sign(header, &with(r#","sub":"eve""#))),
        ("claims that are a list", rsa.sign(header, "[]")),
        ("four parts", format!("{good}.AAAA")),
        ("padding", format!("{good}=")),
        ("huge", rsa.sign(header, &with(&format!(r#","more":"{}""#, "x".repeat(5000))))),
    ];
    let mut table = String::new();
    for (case, token) in &cases {
        let said = match verify_with(&verifier, token) {
            Ok(bearer) => format!("{} is {}", bearer.name, bearer.role),
            Err(why) => format!("refused: {why}"),
        };
        writeln!(table, "{case:<42} {said}").unwrap();
    }
    assert_eq!(table.matches("ada is admin").count(), 1, "{table}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/jwt.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(golden == table, "the table changed; review it and run with UPDATE_GOLDEN=1\n{table}");
}

#[test]
fn a_header_that_is_no_header_is_refused() {
    for (header, expected) in [
        (r#"{"alg":"HS512"}"#, JwtError::Algorithm),
        (r#"{"alg":"RS256"}"#, JwtError::Algorithm),
        (r#"{"alg":"HS256","crit":[]}"#, JwtError::Critical),
        ("not json", JwtError::Unreadable("header")),
    ] {
        assert_eq!(verify(&sign(header, CLAIMS)), Err(expected), "{header}");
    }
    for typ in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
        assert_eq!(verify(&sign(&format!(r#"{{"alg":"HS256","typ":"{typ}"}}"#), CLAIMS)), viewer(), "{typ}");
    }
}

#[test]
fn a_sub_is_a_name() {
    for sub in ["", "a\\nb", &"n".repeat(129)] {
        let claims = format!(r#"{{"sub":"{sub}","role":"admin","exp":2000000000}}"#);
        assert_eq!(verify_claims(&claims), Err(JwtError::Unreadable("sub")), "{sub}");
    }
    assert_eq!(
        verify_claims(r#"{"sub":7,"role":"admin","exp":2000000000}"#),
        Err(JwtError::Unreadable("claims"))
    );
}

#[test]
fn times_have_a_leeway_of_half_a_minute() {
    let second = at(0).as_second();
    let claims = |exp: i64, name: &str, start: i64| {
        format!(r#"{{"sub":"ci","role":"admin","exp":{exp},"{name}":{start}}}"#)
    };
    for name in ["nbf", "iat"] {
        assert!(verify_claims(&claims(second + 1, name, second)).is_ok());
        assert!(verify_claims(&claims(second - 29, name, second + 30)).is_ok());
        assert_eq!(verify_claims(&claims(second - 30, name, second - 60)), Err(JwtError::Expired));
        assert_eq!(verify_claims(&claims(second + 90, name, second + 31)), Err(JwtError::NotYet));
        assert_eq!(verify_claims(&claims(i64::MIN, name, 0)), Err(JwtError::Expired));
        assert!(verify_claims(&claims(i64::MAX, name, i64::MIN)).is_ok());
    }
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
fn an_aud_claim_must_contain_the_audience() {
    let claims = |aud: &str| format!(r#"{{"sub":"ci","role":"admin","exp":2000000000,"aud":{aud}}}"#);
    for aud in [r#""shoal""#, r#"["other","shoal"]"#, "null"] {
        assert!(verify_claims(&claims(aud)).is_ok(), "{aud}");
    }
    for aud in [r#""other""#, "[]", r#"["shoals"]"#] {
        assert_eq!(verify_claims(&claims(aud)), Err(JwtError::Audience), "{aud}");
    }
    assert_eq!(verify_claims(&claims("7")), Err(JwtError::Unreadable("claims")));
    let lab = with_rules(JwtRules { audience: Some("lab".to_owned()), ..JwtRules::default() });
    assert!(verify_with(&lab, &sign(HEADER, &claims(r#"["x","lab"]"#))).is_ok());
    for aud in [r#""shoal""#, "null"] {
        assert_eq!(verify_with(&lab, &sign(HEADER, &claims(aud))), Err(JwtError::Audience), "{aud}");
    }
}

#[test]
fn roles_come_from_the_claim_and_the_map_of_the_settings() {
    let roles = ["ops=operator", "CN=sec = admin", "staff=viewer"];
    let rules = |claim: &str, roles: &[&str]| JwtRules {
        role_claim: claim.to_owned(),
        roles: roles.iter().map(|entry| entry.parse().unwrap()).collect(),
        ..JwtRules::default()
    };
    let role = |rules: JwtRules, claim: &str| {
        let claims = format!(r#"{{"sub":"ci","exp":2000000000,{claim}}}"#);
        verify_with(&with_rules(rules), &sign(HEADER, &claims)).map(|bearer| bearer.role)
    };
    let groups = |claim: &str| role(rules("groups", &roles), claim);
    assert_eq!(groups(r#""groups":["staff","unknown"]"#), Ok(Role::Viewer));
    assert_eq!(groups(r#""groups":["staff","CN=sec","ops"]"#), Ok(Role::Admin), "the one with most rights");
    assert_eq!(groups(r#""groups":"ops""#), Ok(Role::Operator));
    for none in [
        r#""groups":["admin","Staff",""]"#,
        r#""groups":[]"#,
        r#""groups":[["ops"]]"#,
        r#""groups":{"ops":1}"#,
        r#""role":"admin""#,
    ] {
        assert_eq!(groups(none), Err(JwtError::Role), "{none}");
    }
    let nested = r#""realm_access":{"roles":["ops"]}"#;
    assert_eq!(role(rules("realm_access.roles", &roles), nested), Ok(Role::Operator));
    assert_eq!(role(rules("realm_access.roles.more", &roles), nested), Err(JwtError::Role));
    let dotted = r#""https://a.example/roles":"admin""#;
    assert_eq!(role(rules("https://a.example/roles", &[]), dotted), Ok(Role::Admin));
    assert_eq!(role(rules("role", &[]), r#""role":["x","operator"]"#), Ok(Role::Operator));
    for entry in ["", "a", "=admin", "a=root", "a=report-only", "a=registry-only", "a\nb=admin"] {
        assert!(entry.parse::<RoleEntry>().is_err(), "{entry}");
    }
}

#[test]
fn a_token_has_three_short_parts_in_base64url() {
    let good = sign(HEADER, CLAIMS);
    for token in ["", ".", "..", "a.b", "a.b.c.d", &format!("{good}="), &format!("x.{good}")] {
        assert!(matches!(verify(token), Err(JwtError::Form | JwtError::Unreadable(_))), "{token}");
    }
    assert_eq!(verify(&"a.".repeat(3001)), Err(JwtError::TooLong));
}

#[test]
fn every_change_of_a_token_is_refused() {
    let ed = Signer::ed();
    let of_ed = with_public(&ed.public_pem());
    for (verifier, good) in
        [(jwt_key(), sign(HEADER, CLAIMS)), (of_ed, ed.sign(r#"{"alg":"EdDSA"}"#, CLAIMS))]
    {
        assert_eq!(verify_with(&verifier, &good), viewer());
        for position in 0..good.len() {
            let mut changed = good.clone().into_bytes();
            changed[position] = if changed[position] == b'A' { b'B' } else { b'A' };
            let changed = str::from_utf8(&changed).unwrap();
            assert!(verify_with(&verifier, changed).is_err(), "position {position}");
        }
    }
}

#[test]
fn a_short_secret_is_refused_and_never_shown() {
    let error = check_secret(&SecretString::from(CANARY)).unwrap_err();
    assert!(error.to_string().contains("at least 32") && !all_messages(&error).contains(CANARY));
    let secret = Some(SecretString::from(CANARY.repeat(2)));
    let verifier = JwtVerifier::new(JwtKeys { secret, ..JwtKeys::default() }, JwtRules::default()).unwrap();
    assert!(!format!("{verifier:?}").contains(CANARY));
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

    #[test]
    fn a_public_key_never_verifies_what_it_signed_itself(alg in "HS256|HS384|HS512|RS256|ES256|EdDSA|none", trim in any::<bool>()) {
        let key = if trim { RSA_PUBLIC.trim() } else { RSA_PUBLIC };
        let forged = Signer::secret(key).sign(&format!(r#"{{"alg":"{alg}"}}"#), CLAIMS);
        prop_assert!(verify_with(&with_public(RSA_PUBLIC), &forged).is_err());
    }
}
