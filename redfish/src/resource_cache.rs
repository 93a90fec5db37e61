//! Cache of resources read within the last seconds, used for the read before a mutation.
//!
//! ```text
//!   read(path)     on the wire; stored in the cache
//!   cached(path)   the resource if it was read within MAX_AGE and not changed since; else a read
//!   mutation       removes what it changes: one resource, or all of them
//! ```
//!
//! An operation reads, compares, acts and reads back. The first read may come from this cache; the read-back is
//! always on the wire. A change by another client in between is detected by the ETag or by the read-back. The
//! cache is bounded in number and in age.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::json::Resource;

/// The greatest age of a cached resource.
const MAX_AGE: Duration = Duration::from_secs(15);
/// Maximum number of cached resources.
const MAX_RESOURCES: usize = 32;

/// Resources by path, with the time of the read.
#[derive(Default)]
pub(crate) struct ResourceCache(Mutex<HashMap<String, (Instant, Resource)>>);

impl ResourceCache {
    pub(crate) fn get(&self, path: &str) -> Option<Resource> {
        let cache = self.0.lock();
        let (at, resource) = cache.get(path)?;
        (at.elapsed() < MAX_AGE).then(|| resource.clone())
    }

    pub(crate) fn insert(&self, path: &str, resource: &Resource) {
        let mut cache = self.0.lock();
        cache.retain(|_, (at, _)| at.elapsed() < MAX_AGE);
        if cache.len() < MAX_RESOURCES || cache.contains_key(path) {
            cache.insert(path.to_owned(), (Instant::now(), resource.clone()));
        }
    }

    /// Removes one resource, or all.
    pub(crate) fn remove(&self, path: Option<&str>) {
        match path {
            Some(path) => drop(self.0.lock().remove(path)),
            None => self.0.lock().clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_resource_is_cached_until_it_expires_or_changes() {
        let cache = ResourceCache::default();
        for path in ["/a", "/b"] {
            cache.insert(path, &Resource { path: path.to_owned(), ..Resource::default() });
        }
        cache.remove(Some("/a"));
        assert_eq!((cache.get("/a").is_some(), cache.get("/b").is_some()), (false, true));
        tokio::time::advance(MAX_AGE).await;
        assert!(cache.get("/b").is_none());
        for number in 0..100 {
            cache.insert(&format!("/{number}"), &Resource::default());
        }
        assert_eq!(cache.0.lock().len(), MAX_RESOURCES);
        cache.remove(None);
        assert!(cache.get("/0").is_none());
    }
}
