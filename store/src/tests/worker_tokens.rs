//! Tokens of workers elsewhere.

use std::collections::BTreeSet;

use super::*;
use crate::{AccountWritten, MAX_WORKER_TOKENS, StoredWorkerToken};

fn event() -> NewEvent {
    NewEvent::info("test.worker-token", "x").by("ada")
}

fn token(name: &str) -> StoredWorkerToken {
    StoredWorkerToken {
        id: format!("id of {name}"),
        name: name.to_owned(),
        queues: BTreeSet::from(["facility-b".to_owned()]),
        created_by: "ada".to_owned(),
        created_at: at(0),
        expires_at: None,
        last_used_at: None,
    }
}

impl Kit {
    async fn add_worker_token(&self, name: &str) -> AccountWritten<StoredWorkerToken> {
        self.store.create_worker_token(token(name), format!("hash of {name}"), event()).await.unwrap()
    }
}

#[tokio::test]
async fn a_token_of_a_worker_is_found_by_its_hash_until_it_is_revoked_and_is_no_api_token() {
    let kit = Kit::new();
    assert!(matches!(kit.add_worker_token("b").await, AccountWritten::Done(_)));
    assert!(matches!(kit.add_worker_token("b").await, AccountWritten::NameTaken));
    assert_eq!(kit.store.worker_token("hash of b").await.unwrap(), Some(token("b")));
    assert_eq!(kit.store.api_token("hash of b").await.unwrap(), None, "it is no API token");
    assert_eq!(kit.store.worker_token("hash of c").await.unwrap(), None);
    kit.store.worker_token_used("id of b", at(7)).await.unwrap();
    assert_eq!(kit.store.worker_tokens().await.unwrap()[0].last_used_at, Some(at(7)));
    assert!(matches!(
        kit.store.revoke_worker_token("b", event(), at(8)).await.unwrap(),
        AccountWritten::Done(_)
    ));
    assert!(matches!(
        kit.store.revoke_worker_token("b", event(), at(8)).await.unwrap(),
        AccountWritten::Unknown
    ));
    assert_eq!(kit.store.worker_token("hash of b").await.unwrap(), None);
}

#[tokio::test]
async fn the_number_of_tokens_of_workers_is_bounded_and_restored_data_has_none() {
    let kit = Kit::new();
    for number in 0..MAX_WORKER_TOKENS {
        assert!(matches!(kit.add_worker_token(&format!("t{number}")).await, AccountWritten::Done(_)));
    }
    assert!(matches!(kit.add_worker_token("one-more").await, AccountWritten::Full));
    kit.store.set_origin("mark".to_owned(), Some("a copy".to_owned()), at(9)).await.unwrap();
    assert_eq!(kit.store.worker_tokens().await.unwrap(), []);
}

#[tokio::test]
async fn the_queues_of_due_runs_are_listed_with_the_time_since_when_the_first_is_due() {
    let kit = Kit::new();
    for name in ["Q-1", "Q-2"] {
        kit.server(name).await;
        kit.create_run(new_job(name, at(3), None, name)).await;
    }
    let listed = kit.store.due_queues(at(5)).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(listed[0].0 == "default" && listed[0].1 <= at(5), "{listed:?}");
}
