//! Tests of authentication, one file per topic.

mod authenticate;
mod client_certificate;
mod header;
mod jwt;
mod jwt_keys;
mod limit;
mod report;
mod roles;
mod web_session;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use model::PullGrant;
use secrecy::SecretString;

use super::*;

const CANARY: &str = "canary-in-the-coal-mine";
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const JWT_SECRET: &str = "0123456789abcdef0123456789abcdef";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + second).unwrap()
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// A hash with the smallest costs, so that tests are fast.
fn quick_hash(password: &str) -> String {
    use argon2::password_hash::{PasswordHasher, SaltString};
    let params = argon2::Params::new(8, 1, 1, None).unwrap();
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let salt = SaltString::encode_b64(b"sixteen bytes ok").unwrap();
    argon2.hash_password(password.as_bytes(), &salt).unwrap().to_string()
}

/// A credential store in memory with a switch for failure.
#[derive(Default)]
struct Memory {
    users: Mutex<HashMap<String, UserRecord>>,
    tokens: Mutex<HashMap<String, TokenRecord>>,
    pulls: Mutex<HashMap<String, PullGrant>>,
    sessions: Mutex<HashMap<String, SessionRecord>>,
    used: Mutex<Vec<(String, Timestamp)>>,
    down: AtomicBool,
}

impl Memory {
    fn add_user(&self, name: &str, password: &str, role: Role) {
        let record = UserRecord {
            name: name.to_owned(),
            password_hash: quick_hash(password),
            role,
            disabled: false,
            unconfirmed: false,
        };
        self.users.lock().unwrap().insert(name.to_owned(), record);
    }

    fn up(&self) -> Result<(), StoreUnavailable> {
        match self.down.load(Ordering::Relaxed) {
            true => Err(StoreUnavailable("the disk is on fire".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl CredentialStore for Memory {
    async fn user(&self, name: &str) -> Result<Option<UserRecord>, StoreUnavailable> {
        self.up().map(|()| self.users.lock().unwrap().get(name).cloned())
    }

    async fn api_token(&self, hash: &str) -> Result<Option<TokenRecord>, StoreUnavailable> {
        self.up().map(|()| self.tokens.lock().unwrap().get(hash).cloned())
    }

    async fn api_token_used(&self, id: &str, now: Timestamp) {
        self.used.lock().unwrap().push((id.to_owned(), now));
    }

    async fn api_token_named(&self, name: &str) -> Result<Option<TokenRecord>, StoreUnavailable> {
        let named =
            |tokens: &HashMap<String, TokenRecord>| tokens.values().find(|token| token.name == name).cloned();
        self.up().map(|()| named(&self.tokens.lock().unwrap()))
    }

    async fn web_session(&self, hash: &str) -> Result<Option<SessionRecord>, StoreUnavailable> {
        self.up().map(|()| self.sessions.lock().unwrap().get(hash).cloned())
    }

    async fn web_session_used(&self, id: &str, now: Timestamp) {
        let mut sessions = self.sessions.lock().unwrap();
        sessions
            .values_mut()
            .filter(|session| session.id == id)
            .for_each(|session| session.last_used_at = now);
    }

    async fn pull_grant(&self, hash: &str) -> Result<Option<PullGrant>, StoreUnavailable> {
        self.up().map(|()| self.pulls.lock().unwrap().get(hash).cloned())
    }
}

/// The messages of an error and of its sources, as `Display` and as `Debug`.
fn all_messages(error: &dyn std::error::Error) -> String {
    let mut said = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    said
}

/// A verifier of tokens that are signed with [`JWT_SECRET`].
fn jwt_key() -> JwtVerifier {
    let keys = JwtKeys { secret: Some(SecretString::from(JWT_SECRET)), ..JwtKeys::default() };
    JwtVerifier::new(keys, JwtRules::default()).unwrap().unwrap()
}
