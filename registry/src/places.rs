//! Places for request bodies: how many a client, a repository and the whole registry may send at one time.
//!
//! ```text
//!  body ─> a place of its client ─> a place of its repository ─> a place of the registry ─> received
//!          each waited for in this order, all together for at most `upload_queue_timeout`
//! ```
//!
//! A client that waits for its own share holds nothing of the others, so slow clients delay each other and no other
//! client. The body waits unread.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::config::Config;
use crate::error::{Error, UploadLimit};
use crate::name::RepositoryName;
use crate::uploader::Uploader;

/// The time for which the registry counts as saturated after a refusal for lack of a place.
const REFUSAL_SHOWN: Duration = Duration::from_secs(60);

/// The places of a registry.
pub(crate) struct Places {
    all: Share,
    users: Shares<Uploader>,
    repositories: Shares<RepositoryName>,
    /// The time of the last refusal because all places were taken.
    refused: Mutex<Option<Instant>>,
}

/// The place of one body; free again when dropped.
pub(crate) struct Place(#[allow(dead_code, reason = "held")] [Option<OwnedSemaphorePermit>; 3]);

/// A number of places.
#[derive(Clone)]
struct Share {
    places: Arc<Semaphore>,
    limit: usize,
    of: UploadLimit,
}

/// Equal shares by key. A share exists while it is used.
struct Shares<K> {
    limit: usize,
    of: UploadLimit,
    used: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl Places {
    pub(crate) fn new(config: &Config) -> Self {
        Places {
            all: Share::new(config.max_concurrent_uploads, UploadLimit::Registry),
            users: Shares::new(config.max_concurrent_uploads_per_user, UploadLimit::User),
            repositories: Shares::new(config.max_concurrent_uploads_per_repository, UploadLimit::Repository),
            refused: Mutex::default(),
        }
    }

    /// Waits for a place until `patience` has passed.
    pub(crate) async fn take(
        &self,
        uploader: &Uploader,
        repository: &RepositoryName,
        patience: Duration,
    ) -> Result<Place, Error> {
        let deadline = Instant::now() + patience;
        let user = match uploader {
            Uploader::Unknown => None,
            known => Some(self.users.share(known).take(deadline).await?),
        };
        let repository = self.repositories.share(repository).take(deadline).await?;
        let all = self.all.clone().take(deadline).await.inspect_err(|_| {
            *self.refused.lock() = Some(Instant::now());
        })?;
        Ok(Place([user, Some(repository), Some(all)]))
    }

    /// Places in use, and how many there are.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        (self.all.limit - self.all.places.available_permits().min(self.all.limit), self.all.limit)
    }

    /// Whether all places are taken and a client was refused a moment ago.
    pub(crate) fn exhausted(&self) -> bool {
        self.all.places.available_permits() == 0
            && self.refused.lock().is_some_and(|refused| refused.elapsed() < REFUSAL_SHOWN)
    }
}

impl Share {
    fn new(limit: usize, of: UploadLimit) -> Self {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Share { places: Arc::new(Semaphore::new(limit)), limit, of }
    }

    async fn take(self, deadline: Instant) -> Result<OwnedSemaphorePermit, Error> {
        match timeout_at(deadline, self.places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_closed)) => Err(Error::Stopped),
            Err(_late) => Err(Error::TooManyUploads { limit: self.limit, of: self.of }),
        }
    }
}

impl<K: Clone + Eq + Hash> Shares<K> {
    fn new(limit: usize, of: UploadLimit) -> Self {
        Shares { limit, of, used: Mutex::default() }
    }

    fn share(&self, key: &K) -> Share {
        let mut used = self.used.lock();
        if let Some(places) = used.get(key).and_then(Weak::upgrade) {
            return Share { places, limit: self.limit, of: self.of };
        }
        used.retain(|_, places| places.strong_count() > 0);
        let share = Share::new(self.limit, self.of);
        used.insert(key.clone(), Arc::downgrade(&share.places));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places::new(&Config {
            max_concurrent_uploads: 4,
            max_concurrent_uploads_per_user: 2,
            max_concurrent_uploads_per_repository: 3,
            ..Config::new("unused")
        })
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_or_repository_never_takes_all_places() {
        let places = places();
        let [a, b] = ["a", "b"].map(|name| name.parse::<RepositoryName>().unwrap());
        let user = |name: &str| Uploader::User(name.to_owned());
        let take = async |name: &str, repository: &RepositoryName| {
            places.take(&user(name), repository, Duration::from_secs(30)).await
        };
        let mut held = vec![take("slow", &a).await.unwrap(), take("slow", &a).await.unwrap()];
        let refused = take("slow", &b).await;
        assert!(matches!(refused, Err(Error::TooManyUploads { limit: 2, of: UploadLimit::User })));
        assert!(!places.exhausted(), "other users have places");
        held.push(take("other", &a).await.unwrap());
        let refused = take("third", &a).await;
        assert!(matches!(refused, Err(Error::TooManyUploads { limit: 3, of: UploadLimit::Repository })));
        held.push(take("other", &b).await.unwrap());
        assert_eq!(places.in_use(), (4, 4));
        let refused = take("third", &b).await;
        assert!(matches!(refused, Err(Error::TooManyUploads { limit: 4, of: UploadLimit::Registry })));
        assert!(places.exhausted());
        held.pop();
        assert!(!places.exhausted());
        drop(take("third", &b).await.unwrap());
        drop(held);
        drop(take("last", &b).await.unwrap());
        assert_eq!(
            (places.users.used.lock().len(), places.in_use().0),
            (1, 0),
            "unused shares are forgotten"
        );
    }
}
