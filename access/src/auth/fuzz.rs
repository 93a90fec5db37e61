//! The bodies of the fuzz targets `authorization` and `jwt`.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use super::header::{self, PresentedCredentials, is_name};
use super::jwt::{JwtKeys, JwtRules, JwtVerifier, KeySet, check_key_set, check_public_keys, is_jwt};
use super::password::MAX_PASSWORD_BYTES;
use secrets::hmac_sha256;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The public keys of RFC 7515 appendix A.3 and RFC 8037 appendix A.2.
const KEY_SET: &str = r#"{"keys":[
    {"kty":"EC","kid":"ec","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
    {"kty":"OKP","kid":"ed","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// Reads the value of an `Authorization` header.
///
/// # Panics
/// When a name or secret is returned that the header must not contain.
pub fn authorization(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match header::parse(text) {
        Some(PresentedCredentials::Basic { name, password }) => {
            let password = password.expose_secret();
            assert!(is_name(&name) && !name.contains(':'), "a name with a control character or colon");
            assert!((1..=MAX_PASSWORD_BYTES).contains(&password.len()), "a password of any length");
            assert!(!password.chars().any(char::is_control), "a password with a control character");
            let _ = is_jwt(password);
        }
        Some(PresentedCredentials::Bearer(token)) => {
            let token = token.expose_secret();
            assert!(
                !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()),
                "a token with spaces"
            );
            let _ = is_jwt(token);
        }
        None => {}
    }
}

/// Verifies a token, signs claims and verifies them, or reads keys. The first byte selects.
///
/// # Panics
/// When a token without a known signature is accepted, or its bearer has a name or role that users do not have.
pub fn jwt(data: &[u8]) {
    static VERIFIER: LazyLock<Option<JwtVerifier>> = LazyLock::new(|| {
        let set = KeySet::fixed(KEY_SET.as_bytes()).ok();
        let secret = Some(SecretString::from(SECRET));
        JwtVerifier::new(JwtKeys { secret, set, public: None }, JwtRules::default()).ok()?
    });
    let Some((kind, data)) = data.split_first() else { return };
    let token = match kind {
        b'0' => String::from_utf8_lossy(data).into_owned(),
        b'1' => {
            let middle = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
            let (header, claims) = (&data[..middle], data.get(middle + 1..).unwrap_or_default());
            let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
            let signature = URL_SAFE_NO_PAD.encode(hmac_sha256(SECRET.as_bytes(), signed.as_bytes()));
            format!("{signed}.{signature}")
        }
        b'2' => {
            let _ = check_key_set(data);
            return;
        }
        _ => {
            let _ = check_public_keys(data);
            return;
        }
    };
    let now = Timestamp::UNIX_EPOCH;
    let Some(verifier) = VERIFIER.as_ref() else { panic!("the keys of the target cannot be used") };
    let Some(verified) = verifier.verify(&token, now, now).now_or_never() else {
        panic!("a verification without a URL waits")
    };
    if let Ok(bearer) = verified {
        assert!(is_name(&bearer.name) && bearer.role.is_for_users(), "a bearer that is no user");
        assert!(*kind == b'1' || token.contains("eyJ"), "a token without a header");
    }
}
