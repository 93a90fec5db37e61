//! Tests of authentication, one file per topic.

mod authenticate;
mod header;
mod jwt;
mod limit;
mod report;
mod roles;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::model::PullGrant;
use jiff::Timestamp;
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
    used: Mutex<Vec<(String, Timestamp)>>,
    down: AtomicBool,
}

impl Memory {
    fn add_user(&self, name: &str, password: &str, role: Role) {
        let record =
            UserRecord { name: name.to_owned(), password_hash: quick_hash(password), role, disabled: false };
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

fn jwt_key() -> JwtKey {
    JwtKey::hs256(&SecretString::from(JWT_SECRET)).unwrap()
}
