//! Web sessions: what ends them, and what they may do.

use std::time::Duration;

use super::*;

const IDLE: Duration = Duration::from_secs(3600);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn authenticator(mode: AuthMode) -> (Authenticator, std::sync::Arc<Memory>) {
    let store = std::sync::Arc::new(Memory::default());
    let config = AuthConfig { mode, basic_user: None, jwt: Some(jwt_key()), failures: RateLimit::default() };
    let held: std::sync::Arc<dyn CredentialStore> = store.clone();
    (Authenticator::new(config, held).unwrap(), store)
}

/// Logs in at second 0 and stores the session, which ends at second 40,000.
async fn log_in(authenticator: &Authenticator, store: &Memory, header: &str) -> SessionSecret {
    let principal = authenticator.authenticate(Some(header), PEER, at(0)).await.unwrap();
    let login = authenticator.login_of(&principal).await.unwrap().unwrap();
    let secret = SessionSecret::generate().unwrap();
    let record = SessionRecord {
        id: "session-1".to_owned(),
        name: principal.name,
        token_id: login.token_id,
        mark: login.mark,
        last_used_at: at(0),
        expires_at: at(40_000),
    };
    store.sessions.lock().unwrap().insert(secret.hash(), record);
    secret
}

async fn role(authenticator: &Authenticator, secret: &SessionSecret, second: i64) -> Option<Role> {
    let found = authenticator.by_session(secret, IDLE, PEER, at(second)).await;
    found.ok().and_then(|principal| principal.rights.role())
}

#[tokio::test]
async fn a_session_has_the_rights_of_its_user_until_role_password_or_state_change() {
    for change in ["role", "password", "disabled", "removed"] {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        store.add_user("ann", "correct horse battery", Role::Operator);
        let secret = log_in(&authenticator, &store, &basic("ann", "correct horse battery")).await;
        let principal = authenticator.by_session(&secret, IDLE, PEER, at(1)).await.unwrap();
        assert_eq!((principal.name.as_str(), principal.rights.role()), ("ann", Some(Role::Operator)));
        assert_eq!(principal.method, AuthMethod::Session { id: "session-1".to_owned() });
        assert_eq!(authenticator.login_of(&principal).await, Ok(None), "a session begins no other");
        match change {
            "role" => store.add_user("ann", "correct horse battery", Role::Admin),
            "password" => store.add_user("ann", "another horse battery", Role::Operator),
            "disabled" => store.users.lock().unwrap().get_mut("ann").unwrap().disabled = true,
            _ => drop(store.users.lock().unwrap().remove("ann")),
        }
        assert_eq!(role(&authenticator, &secret, 2).await, None, "{change}");
    }
}

#[tokio::test]
async fn a_session_ends_when_it_is_idle_and_at_its_end() {
    let (authenticator, store) = authenticator(AuthMode::Basic);
    store.add_user("ann", "correct horse battery", Role::Viewer);
    let secret = log_in(&authenticator, &store, &basic("ann", "correct horse battery")).await;
    for second in [0, 3599, 7198, 10_000, 13_000] {
        assert_eq!(role(&authenticator, &secret, second).await, Some(Role::Viewer), "{second}");
    }
    assert_eq!(role(&authenticator, &secret, 13_000 + 3600).await, None, "it was idle");
    store.sessions.lock().unwrap().values_mut().for_each(|session| session.last_used_at = at(39_990));
    assert_eq!(role(&authenticator, &secret, 39_999).await, Some(Role::Viewer));
    assert_eq!(role(&authenticator, &secret, 40_000).await, None, "it is past its end");
}

#[tokio::test]
async fn a_session_of_an_api_token_ends_with_the_token() {
    for change in ["rotated", "expired", "revoked"] {
        let (authenticator, store) = authenticator(AuthMode::Jwt);
        let text = generate_token().unwrap();
        let text = secrecy::ExposeSecret::expose_secret(&text);
        let record = TokenRecord {
            id: "token-1".to_owned(),
            name: "ci".to_owned(),
            role: Role::Admin,
            limits: TokenLimits::default(),
            expires_at: Some(at(100)),
            last_used_at: None,
            unconfirmed: false,
        };
        store.tokens.lock().unwrap().insert(secrets::token_hash(text), record);
        let secret = log_in(&authenticator, &store, &format!("Bearer {text}")).await;
        assert_eq!(role(&authenticator, &secret, 1).await, Some(Role::Admin));
        match change {
            "rotated" => {
                store.tokens.lock().unwrap().values_mut().for_each(|token| token.id = "token-2".into())
            }
            "revoked" => store.tokens.lock().unwrap().clear(),
            _ => {}
        }
        assert_eq!(role(&authenticator, &secret, 100).await, None, "{change}");
    }
}

#[tokio::test]
async fn an_unknown_cookie_is_refused_and_costs_no_attempt() {
    let (authenticator, store) = authenticator(AuthMode::Basic);
    store.add_user("ann", "correct horse battery", Role::Viewer);
    for _ in 0..50 {
        let secret = SessionSecret::generate().unwrap();
        let refused = authenticator.by_session(&secret, IDLE, PEER, at(0)).await;
        assert_eq!(refused.unwrap_err(), AuthFailure::Invalid);
    }
    let right = basic("ann", "correct horse battery");
    assert!(authenticator.authenticate(Some(&right), PEER, at(0)).await.is_ok());
    store.down.store(true, Ordering::Relaxed);
    let secret = SessionSecret::generate().unwrap();
    let failed = authenticator.by_session(&secret, IDLE, PEER, at(0)).await;
    assert_eq!(failed.unwrap_err(), AuthFailure::Unavailable);
}
