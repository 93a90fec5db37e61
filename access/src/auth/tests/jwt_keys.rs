//! The keys of tokens: which are accepted, how a key set selects them, and when it is fetched.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::jwt::{RSA_PUBLIC, Signer};
use super::*;
use crate::auth::jwt::JwtError;

fn set(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

fn token(signer: &Signer, kid: Option<&str>) -> String {
    let kid = kid.map(|kid| format!(r#","kid":"{kid}""#)).unwrap_or_default();
    let header = format!(r#"{{"alg":"{}"{kid}}}"#, signer.alg());
    signer.sign(&header, r#"{"sub":"ci","role":"viewer","exp":2000000000}"#)
}

fn verifier(set: KeySet) -> JwtVerifier {
    let keys = JwtKeys { set: Some(set), ..JwtKeys::default() };
    JwtVerifier::new(keys, JwtRules::default()).unwrap().unwrap()
}

async fn ask(verifier: &JwtVerifier, token: &str, second: i64) -> Result<(), JwtError> {
    verifier.verify(token, at(second), at(second)).await.map(drop)
}

#[tokio::test]
async fn the_kid_selects_the_key_of_a_set() {
    let (rsa, ec, ed, other) = (Signer::rsa(), Signer::ec(), Signer::ed(), Signer::ec());
    let keys = [rsa.jwk("r"), ec.jwk("e"), ed.jwk("d"), other.jwk("o")];
    let all = verifier(KeySet::fixed(&set(&keys)).unwrap());
    for (signer, kid) in [(&rsa, "r"), (&ec, "e"), (&ed, "d"), (&other, "o")] {
        assert_eq!(ask(&all, &token(signer, Some(kid)), 0).await, Ok(()), "{kid}");
    }
    assert_eq!(ask(&all, &token(&ec, Some("o")), 0).await, Err(JwtError::Signature));
    assert_eq!(
        ask(&all, &token(&ec, Some("r")), 0).await,
        Err(JwtError::UnknownKey),
        "a key has one algorithm"
    );
    assert_eq!(ask(&all, &token(&ec, Some("new")), 0).await, Err(JwtError::UnknownKey));
    assert_eq!(ask(&all, &token(&ec, None), 0).await, Err(JwtError::UnknownKey), "one of several");
    let alone = verifier(KeySet::fixed(&set(&[ec.jwk("e")])).unwrap());
    assert_eq!(ask(&alone, &token(&ec, None), 0).await, Ok(()), "the only key");
    let secret = Signer::secret(JWT_SECRET);
    assert_eq!(ask(&all, &token(&secret, Some("r")), 0).await, Err(JwtError::Algorithm));
}

#[test]
fn a_set_contributes_no_secret_and_no_key_for_another_use() {
    let (rsa, ec) = (Signer::rsa(), Signer::ec());
    let with = |name: &str, value: Value| {
        let mut key = rsa.jwk("r");
        key[name] = value;
        key
    };
    let mut p384 = ec.jwk("e");
    p384["crv"] = json!("P-384");
    for unusable in [
        Signer::secret(JWT_SECRET).jwk("s"),
        with("use", json!("enc")),
        with("key_ops", json!(["sign"])),
        with("alg", json!("RSA-OAEP")),
        with("alg", json!("RS512")),
        with("alg", json!("HS256")),
        with("n", json!("AQAB")),
        with("n", json!("*")),
        with("kty", json!("oct")),
        p384,
        json!({}),
        json!(7),
    ] {
        let refused = check_key_set(&set(std::slice::from_ref(&unusable)));
        assert_eq!(refused, Err(JwtKeyError::NoUsableKey), "{unusable}");
        check_key_set(&set(&[unusable, rsa.jwk("r")])).unwrap();
    }
    assert_eq!(check_key_set(b"{}"), Err(JwtKeyError::NotKeySet));
    assert_eq!(check_key_set(b"[]"), Err(JwtKeyError::NotKeySet));
    assert_eq!(check_key_set(&set(&vec![rsa.jwk("r"); 65])), Err(JwtKeyError::TooManyKeys));
}

#[test]
fn a_pem_file_contains_public_keys_of_known_kinds() {
    check_public_keys(RSA_PUBLIC.as_bytes()).unwrap();
    for other in [include_str!("keys/rsa-short-public.pem"), include_str!("keys/p384-public.pem")] {
        assert_eq!(check_public_keys(other.as_bytes()), Err(JwtKeyError::KeyKind));
        let both = format!("{RSA_PUBLIC}{other}");
        assert_eq!(check_public_keys(both.as_bytes()), Err(JwtKeyError::KeyKind), "no key is skipped");
    }
    for none in ["", "nothing", include_str!("keys/rsa-private.pem"), "-----BEGIN PUBLIC KEY-----\nAA"] {
        assert_eq!(check_public_keys(none.as_bytes()), Err(JwtKeyError::NoPublicKey), "{none}");
    }
    assert_eq!(check_public_keys(RSA_PUBLIC.repeat(65).as_bytes()), Err(JwtKeyError::TooManyKeys));
}

/// A document that changes, and counts how often it is fetched.
#[derive(Default)]
struct Published {
    content: Mutex<Option<Vec<u8>>>,
    fetches: AtomicUsize,
    /// If set, the notification for which fetches wait.
    gate: Option<Notify>,
}

impl Published {
    fn publish(&self, keys: &[Value]) {
        *self.content.lock().unwrap() = Some(set(keys));
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

struct Source(Arc<Published>);

#[async_trait]
impl KeyDocument for Source {
    async fn fetch(&self) -> Result<Vec<u8>, String> {
        self.0.fetches.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.0.gate {
            gate.notified().await;
        }
        self.0.content.lock().unwrap().clone().ok_or_else(|| "it is down".to_owned())
    }
}

fn fetched(published: &Arc<Published>) -> JwtVerifier {
    verifier(KeySet::fetched(Arc::new(Source(Arc::clone(published)))))
}

#[tokio::test]
async fn a_set_is_fetched_for_the_first_token_and_again_for_an_unknown_kid() {
    let published = Arc::new(Published::default());
    let (old, new) = (Signer::ec(), Signer::ec());
    published.publish(&[old.jwk("1")]);
    let verifier = fetched(&published);
    assert_eq!(published.fetches(), 0, "nothing is fetched before it is needed");
    for second in 0..5 {
        assert_eq!(ask(&verifier, &token(&old, Some("1")), second).await, Ok(()));
    }
    assert_eq!(published.fetches(), 1);
    published.publish(&[old.jwk("1"), new.jwk("2")]);
    assert_eq!(ask(&verifier, &token(&new, Some("2")), 31).await, Ok(()), "an unknown kid");
    assert_eq!(published.fetches(), 2);
}

#[tokio::test]
async fn unknown_kids_cause_at_most_one_fetch_per_interval() {
    let published = Arc::new(Published::default());
    let key = Signer::ec();
    published.publish(&[key.jwk("1")]);
    let verifier = fetched(&published);
    for second in 0..30 {
        let unknown = token(&Signer::ec(), Some(&format!("x{second}")));
        assert_eq!(ask(&verifier, &unknown, second).await, Err(JwtError::UnknownKey));
    }
    assert_eq!(published.fetches(), 1);
    assert_eq!(ask(&verifier, &token(&key, Some("1")), 29).await, Ok(()), "known keys are not affected");
    assert_eq!(ask(&verifier, &token(&key, Some("x")), 30).await, Err(JwtError::UnknownKey));
    assert_eq!(published.fetches(), 2);
    let secret = Signer::secret(JWT_SECRET);
    assert_eq!(ask(&verifier, &token(&secret, Some("y")), 90).await, Err(JwtError::Algorithm));
    assert_eq!(published.fetches(), 2, "a token of a shared secret never needs the set");
}

#[tokio::test]
async fn the_last_good_set_is_kept_on_failure_and_a_removed_key_ends_after_ten_minutes() {
    let published = Arc::new(Published::default());
    let (old, new) = (Signer::ec(), Signer::ec());
    let verifier = fetched(&published);
    let of_old = token(&old, Some("1"));
    assert_eq!(ask(&verifier, &of_old, 0).await, Err(JwtError::NoKeySet), "no set was ever fetched");
    published.publish(&[old.jwk("1")]);
    assert_eq!(ask(&verifier, &of_old, 1).await, Err(JwtError::NoKeySet), "the interval is not over");
    assert_eq!(ask(&verifier, &of_old, 30).await, Ok(()));
    *published.content.lock().unwrap() = None;
    assert_eq!(ask(&verifier, &of_old, 5000).await, Ok(()), "the source is down");
    *published.content.lock().unwrap() = Some(b"<html>".to_vec());
    assert_eq!(ask(&verifier, &of_old, 6000).await, Ok(()), "the source sends something else");
    assert_eq!(published.fetches(), 4);
    published.publish(&[new.jwk("2")]);
    assert_eq!(ask(&verifier, &of_old, 6029).await, Ok(()));
    assert_eq!(ask(&verifier, &of_old, 6030).await, Err(JwtError::UnknownKey), "its issuer removed the key");
    assert_eq!(ask(&verifier, &token(&new, Some("2")), 6031).await, Ok(()));
    assert_eq!(published.fetches(), 5);
    assert_eq!(ask(&verifier, &token(&new, Some("2")), 100).await, Ok(()), "a clock that was set back");
    assert_eq!(published.fetches(), 6);
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_use_up_the_fetch_of_the_interval() {
    let published = Arc::new(Published { gate: Some(Notify::new()), ..Published::default() });
    let key = Signer::ec();
    published.publish(&[key.jwk("1")]);
    let verifier = Arc::new(fetched(&published));
    let of_key = token(&key, Some("1"));
    let first = {
        let (verifier, of_key) = (Arc::clone(&verifier), of_key.clone());
        tokio::spawn(async move { ask(&verifier, &of_key, 0).await })
    };
    while published.fetches() == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let second = tokio::spawn(async move { ask(&verifier, &of_key, 1).await });
    tokio::task::yield_now().await;
    published.gate.as_ref().unwrap().notify_one();
    assert_eq!(second.await.unwrap(), Ok(()), "the fetch of the first request serves the second one");
    assert_eq!(published.fetches(), 1);
}

#[tokio::test]
async fn a_reload_keeps_the_keys_until_the_set_is_fetched_again() {
    let published = Arc::new(Published::default());
    let key = Signer::ec();
    published.publish(&[key.jwk("1")]);
    let former = fetched(&published);
    assert_eq!(ask(&former, &token(&key, Some("1")), 0).await, Ok(()));
    *published.content.lock().unwrap() = None;
    let new = fetched(&published);
    new.inherit(&former);
    assert_eq!(ask(&new, &token(&key, Some("1")), 1).await, Ok(()));
    assert_eq!(published.fetches(), 2, "it was tried at once");
}

#[tokio::test]
async fn a_caller_is_not_blamed_for_a_key_set_that_is_down() {
    let published = Arc::new(Published::default());
    let failures = RateLimit { burst: 1, interval: Duration::from_secs(10), max_addresses: 16 };
    let config =
        AuthConfig { mode: AuthMode::Jwt, basic_user: None, jwt: Some(fetched(&published)), failures };
    let authenticator = Authenticator::new(config, Arc::new(Memory::default())).unwrap();
    let value = format!("Bearer {}", token(&Signer::ec(), Some("1")));
    for _ in 0..3 {
        let refused = authenticator.authenticate(Some(&value), PEER, at(0)).await;
        assert_eq!(refused.unwrap_err(), AuthFailure::Unavailable);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_key_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), position in 0usize..400, byte in any::<u8>()) {
        let _ = check_key_set(&bytes);
        let _ = check_public_keys(&bytes);
        let mut changed = RSA_PUBLIC.as_bytes().to_vec();
        let position = position % changed.len();
        changed[position] = byte;
        let _ = check_public_keys(&changed);
    }
}
