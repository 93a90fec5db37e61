//! Users and API tokens.

use std::collections::BTreeMap;

use super::*;
use crate::{AccountWritten, LoginGuard, StoredToken, StoredUser, UserChange};

pub(super) const GUARD: Option<LoginGuard> = Some(LoginGuard { passwords: true });

fn event() -> NewEvent {
    NewEvent::info("test.account", "x").by("ada")
}

fn user(name: &str, role: &str) -> StoredUser {
    StoredUser {
        name: name.to_owned(),
        password_hash: "hash".to_owned(),
        role: role.to_owned(),
        disabled_at: None,
        created_by: "ada".to_owned(),
        created_at: at(0),
        updated_at: at(0),
        unconfirmed: false,
    }
}

pub(super) fn token(name: &str, role: &str) -> StoredToken {
    StoredToken {
        id: format!("id of {name}"),
        name: name.to_owned(),
        role: role.to_owned(),
        labels: BTreeMap::new(),
        registry: Vec::new(),
        created_by: "ada".to_owned(),
        created_at: at(0),
        expires_at: None,
        last_used_at: None,
        unconfirmed: false,
    }
}

/// The result of a change in one word.
fn word<T>(written: Result<AccountWritten<T>, StoreError>) -> &'static str {
    match written.unwrap() {
        AccountWritten::Done(_) => "done",
        AccountWritten::Unknown => "unknown",
        AccountWritten::NameTaken => "taken",
        AccountWritten::Full => "full",
        AccountWritten::LastWayIn => "last",
        AccountWritten::OtherPassword => "other",
    }
}

impl Kit {
    pub(super) async fn add_user(&self, name: &str, role: &str) -> &'static str {
        word(self.store.create_user(user(name, role), event()).await)
    }

    pub(super) async fn add_token(&self, new: StoredToken) -> &'static str {
        let hash = format!("hash of {}", new.name);
        word(self.store.create_api_token(new, hash, event()).await)
    }

    pub(super) async fn revoke(&self, name: &str, guard: Option<LoginGuard>) -> &'static str {
        word(self.store.revoke_api_token(name, guard, event(), at(5)).await)
    }

    pub(super) async fn change(
        &self,
        name: &str,
        change: UserChange,
        guard: Option<LoginGuard>,
    ) -> &'static str {
        word(self.store.change_user(name, change, guard, event(), at(5)).await)
    }
}

#[tokio::test]
async fn a_name_belongs_to_one_user_or_one_token() {
    let kit = Kit::new();
    assert_eq!(kit.add_user("ada", "admin").await, "done");
    assert_eq!(kit.add_user("ada", "viewer").await, "taken");
    assert_eq!(kit.add_token(token("ada", "viewer")).await, "taken");
    assert_eq!(kit.add_token(token("ci", "viewer")).await, "done");
    assert_eq!(kit.add_user("ci", "viewer").await, "taken");
    let events: i64 = kit
        .outside()
        .query_row("SELECT count(*) FROM events WHERE actor = 'ada'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(events, 2, "only what was written is an event");
}

#[tokio::test]
async fn a_token_is_stored_with_its_limits_and_found_by_its_hash_until_it_is_rotated_or_revoked() {
    let kit = Kit::new();
    let new = StoredToken {
        labels: [("site".to_owned(), "bern".to_owned())].into(),
        registry: vec!["pull:os-images/**".to_owned()],
        expires_at: Some(at(100)),
        ..token("ci", "operator")
    };
    assert_eq!(kit.add_token(new.clone()).await, "done");
    assert_eq!(kit.store.api_token("hash of ci").await.unwrap(), Some(new.clone()));
    kit.store.api_token_used(&new.id, at(3)).await.unwrap();
    let used = kit.store.api_token_named("ci").await.unwrap().unwrap();
    assert_eq!(used.last_used_at, Some(at(3)));

    let rotated = kit
        .store
        .rotate_api_token("ci", "2".to_owned(), "another".to_owned(), Some(at(200)), event(), at(4))
        .await;
    assert_eq!(word(rotated), "done");
    assert_eq!(kit.store.api_token("hash of ci").await.unwrap(), None);
    assert_eq!(kit.store.api_token("another").await.unwrap().unwrap().expires_at, Some(at(200)));
    let missing =
        kit.store.rotate_api_token("cd", "3".to_owned(), "x".to_owned(), None, event(), at(4)).await;
    assert_eq!(word(missing), "unknown");

    assert_eq!(kit.revoke("ci", GUARD).await, "done");
    assert_eq!(kit.revoke("ci", GUARD).await, "unknown");
    assert_eq!(kit.store.api_token("another").await.unwrap(), None);
}

#[tokio::test]
async fn the_last_way_in_for_an_administrator_stays() {
    let kit = Kit::new();
    kit.add_token(token("first", "admin")).await;
    kit.add_token(token("reading", "viewer")).await;
    let bern = [("site".to_owned(), "bern".to_owned())].into();
    kit.add_token(StoredToken { labels: bern, ..token("of-bern", "admin") }).await;
    kit.add_token(StoredToken { expires_at: Some(at(5)), ..token("over", "admin") }).await;
    assert_eq!(kit.revoke("first", GUARD).await, "last");
    assert_eq!(kit.revoke("reading", GUARD).await, "done");
    assert_eq!(
        kit.revoke("first", None).await,
        "done",
        "without a guard, as on the controller's own machine"
    );
    assert_eq!(kit.revoke("over", GUARD).await, "done", "an expired token is no way in");

    kit.add_user("ada", "admin").await;
    let off = || UserChange { disabled: Some(true), ..UserChange::default() };
    let lower = || UserChange { role: Some("viewer".to_owned()), ..UserChange::default() };
    assert_eq!(kit.change("ada", off(), GUARD).await, "last");
    assert_eq!(kit.change("ada", lower(), GUARD).await, "last");
    assert_eq!(word(kit.store.remove_user("ada", GUARD, event(), at(5)).await), "last");
    let only_tokens = Some(LoginGuard { passwords: false });
    assert_eq!(kit.change("ada", off(), only_tokens).await, "done", "passwords let no user in");
    let on = UserChange { disabled: Some(false), ..UserChange::default() };
    assert_eq!(kit.change("ada", on, GUARD).await, "done");
    kit.add_user("bea", "admin").await;
    assert_eq!(kit.change("ada", lower(), GUARD).await, "done");
    assert_eq!(word(kit.store.remove_user("bea", GUARD, event(), at(5)).await), "last");
}

#[tokio::test]
async fn a_change_of_a_user_leaves_what_it_does_not_name() {
    let kit = Kit::new();
    kit.add_user("ada", "admin").await;
    kit.add_user("bea", "viewer").await;
    let disable = UserChange { disabled: Some(true), ..UserChange::default() };
    assert_eq!(kit.change("bea", disable, GUARD).await, "done");
    let rename = UserChange { password_hash: Some("other".to_owned()), ..UserChange::default() };
    assert_eq!(kit.change("bea", rename, GUARD).await, "done");
    let bea = kit.store.user("bea").await.unwrap().unwrap();
    assert_eq!((bea.role.as_str(), bea.password_hash.as_str()), ("viewer", "other"));
    assert_eq!((bea.disabled_at, bea.updated_at), (Some(at(5)), at(5)));
    let from = |former: &str| UserChange {
        password_hash: Some("third".to_owned()),
        former_hash: Some(former.to_owned()),
        ..UserChange::default()
    };
    assert_eq!(kit.change("bea", from("hash"), GUARD).await, "other");
    assert_eq!(kit.store.user("bea").await.unwrap().unwrap().password_hash, "other");
    assert_eq!(kit.change("bea", from("other"), GUARD).await, "done");
    assert_eq!(kit.change("eve", UserChange::default(), GUARD).await, "unknown");
    let names: Vec<String> = kit.store.users().await.unwrap().into_iter().map(|user| user.name).collect();
    assert_eq!(names, ["ada", "bea"]);
}
