//! Web sessions.

use std::time::Duration;

use super::*;
use crate::{StoredToken, StoredUser, StoredWebSession, UserChange, WebSessionLimits};

fn event() -> NewEvent {
    NewEvent::info("test.session", "x").by("ada")
}

impl Kit {
    /// Logs `name` in at a second; the hash of the cookie is `hash of ID`.
    async fn log_in(&self, name: &str, id: &str, second: u64, former: Option<&str>) {
        let new = StoredWebSession {
            id: id.to_owned(),
            name: name.to_owned(),
            token_id: None,
            mark: "mark".to_owned(),
            address: "192.0.2.1".to_owned(),
            agent: "browser".to_owned(),
            created_at: at(second),
            last_used_at: at(second),
            expires_at: at(second + 1000),
        };
        let limits = WebSessionLimits {
            idle_since: at(second).minus(Duration::from_secs(100)),
            of_name: 3,
            former: former.map(|former| format!("hash of {former}")),
        };
        self.store.create_web_session(new, format!("hash of {id}"), limits, event()).await.unwrap();
    }

    async fn sessions(&self, name: Option<&str>) -> Vec<String> {
        self.store.web_sessions(name).await.unwrap().into_iter().map(|session| session.id).collect()
    }

    async fn add_login(&self, name: &str) {
        let user = StoredUser {
            name: name.to_owned(),
            password_hash: "hash".to_owned(),
            role: "operator".to_owned(),
            disabled_at: None,
            created_by: "ada".to_owned(),
            created_at: at(0),
            updated_at: at(0),
            unconfirmed: false,
        };
        self.store.create_user(user, event()).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_is_found_by_the_hash_of_its_cookie_only() {
    let kit = Kit::new();
    kit.log_in("ann", "s1", 10, None).await;
    let found = kit.store.web_session("hash of s1").await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.name.as_str(), found.created_at), ("s1", "ann", at(10)));
    assert_eq!(kit.store.web_session("s1").await.unwrap(), None);
    kit.store.web_session_used("s1", at(40)).await.unwrap();
    assert_eq!(kit.store.web_session("hash of s1").await.unwrap().unwrap().last_used_at, at(40));
}

#[tokio::test]
async fn a_name_has_a_maximum_of_sessions_and_the_oldest_ends() {
    let kit = Kit::new();
    for (name, id, second) in
        [("ann", "a1", 1), ("ben", "b1", 2), ("ann", "a2", 3), ("ann", "a3", 4), ("ann", "a4", 5)]
    {
        kit.log_in(name, id, second, None).await;
    }
    assert_eq!(kit.sessions(Some("ann")).await, ["a4", "a3", "a2"]);
    assert_eq!(kit.sessions(None).await, ["a4", "a3", "a2", "b1"]);
}

#[tokio::test]
async fn a_login_ends_the_former_session_of_the_client_and_removes_expired_ones() {
    let kit = Kit::new();
    kit.log_in("ann", "a1", 10, None).await;
    kit.log_in("ann", "a2", 20, Some("a1")).await;
    assert_eq!(kit.sessions(None).await, ["a2"]);
    kit.log_in("ben", "b1", 121, None).await;
    assert_eq!(kit.sessions(None).await, ["b1"], "a2 was idle for more than 100 s");
    kit.store.web_session_used("b1", at(1121)).await.unwrap();
    kit.log_in("ben", "b2", 1122, None).await;
    assert_eq!(kit.sessions(None).await, ["b2"], "b1 is past its end");
}

#[tokio::test]
async fn a_session_is_ended_by_its_owner_and_a_foreign_one_is_not() {
    let kit = Kit::new();
    kit.log_in("ann", "a1", 1, None).await;
    assert!(!kit.store.end_web_session("a1", Some("ben"), event(), at(2)).await.unwrap());
    assert!(kit.store.end_web_session("a1", Some("ann"), event(), at(2)).await.unwrap());
    assert!(!kit.store.end_web_session("a1", None, event(), at(2)).await.unwrap());
    kit.log_in("ann", "a2", 3, None).await;
    kit.log_in("ann", "a3", 4, None).await;
    kit.log_in("ben", "b1", 5, None).await;
    assert_eq!(kit.store.end_web_sessions_of("ann", event(), at(6)).await.unwrap(), 2);
    assert_eq!(kit.store.end_web_sessions_of("ann", event(), at(6)).await.unwrap(), 0);
    assert_eq!(kit.sessions(None).await, ["b1"]);
}

#[tokio::test]
async fn a_change_of_a_login_ends_its_sessions_in_the_same_transaction() {
    let kit = Kit::new();
    let change = UserChange::default();
    let (role, password_hash) = (Some("viewer".to_owned()), Some("other".to_owned()));
    for (name, change, ends) in [
        ("role", UserChange { role, ..change.clone() }, true),
        ("same-role", UserChange { role: Some("operator".to_owned()), ..change.clone() }, false),
        ("password", UserChange { password_hash, ..change.clone() }, true),
        ("disabled", UserChange { disabled: Some(true), ..change.clone() }, true),
        ("enabled", UserChange { disabled: Some(false), ..change }, false),
    ] {
        kit.add_login(name).await;
        kit.log_in(name, name, 1, None).await;
        kit.store.change_user(name, change, None, event(), at(2)).await.unwrap();
        assert_eq!(kit.sessions(Some(name)).await.is_empty(), ends, "{name}");
    }
    kit.add_login("removed").await;
    kit.log_in("removed", "removed", 1, None).await;
    kit.store.remove_user("removed", None, event(), at(2)).await.unwrap();
    assert!(kit.sessions(Some("removed")).await.is_empty());

    for name in ["revoked", "rotated"] {
        let token = StoredToken {
            id: format!("id of {name}"),
            name: name.to_owned(),
            role: "viewer".to_owned(),
            labels: BTreeMap::new(),
            registry: Vec::new(),
            created_by: "ada".to_owned(),
            created_at: at(0),
            expires_at: None,
            last_used_at: None,
            unconfirmed: false,
        };
        kit.store.create_api_token(token, format!("hash of {name}"), event()).await.unwrap();
        kit.log_in(name, name, 1, None).await;
    }
    kit.store.revoke_api_token("revoked", None, event(), at(2)).await.unwrap();
    let rotated =
        kit.store.rotate_api_token("rotated", "id".into(), "hash".into(), None, event(), at(2)).await;
    rotated.unwrap();
    assert_eq!(kit.sessions(None).await, ["same-role", "enabled"]);
}
