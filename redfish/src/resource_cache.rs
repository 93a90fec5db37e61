//! What was read a moment ago, for the reads that come before an act.
//!
//! ```text
//!   read(path)     on the wire, and remembered
//!   lately(path)   what was read within FRESH and has not been touched since; else read
//!   mutation       forgets what it touches: one resource, or everything
//! ```
//!
//! An operation reads, compares, acts and reads back. The first of these may be a read that another operation
//! made seconds before; the last is always on the wire. A BMC that was changed by somebody else in between is
//! noticed by the ETag or by the read-back. Bounded in number and in time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::json::Resource;

/// How old a read may be to come before an act.
const FRESH: Duration = Duration::from_secs(15);
/// So many resources are remembered.
const MAX_RESOURCES: usize = 32;

/// Resources that were read lately, by path.
#[derive(Default)]
pub(crate) struct Recent(Mutex<HashMap<String, (Instant, Resource)>>);

impl Recent {
    pub(crate) fn get(&self, path: &str) -> Option<Resource> {
        let recent = self.lock();
        let (at, resource) = recent.get(path)?;
        (at.elapsed() < FRESH).then(|| resource.clone())
    }

    pub(crate) fn remember(&self, path: &str, resource: &Resource) {
        let mut recent = self.lock();
        recent.retain(|_, (at, _)| at.elapsed() < FRESH);
        if recent.len() < MAX_RESOURCES || recent.contains_key(path) {
            recent.insert(path.to_owned(), (Instant::now(), resource.clone()));
        }
    }

    /// Forgets one resource, or all.
    pub(crate) fn forget(&self, path: Option<&str>) {
        match path {
            Some(path) => drop(self.lock().remove(path)),
            None => self.lock().clear(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, Resource)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_read_is_known_for_a_moment_or_until_it_is_touched() {
        let recent = Recent::default();
        for path in ["/a", "/b"] {
            recent.remember(path, &Resource { path: path.to_owned(), ..Resource::default() });
        }
        recent.forget(Some("/a"));
        assert_eq!((recent.get("/a").is_some(), recent.get("/b").is_some()), (false, true));
        tokio::time::advance(FRESH).await;
        assert!(recent.get("/b").is_none());
        for number in 0..100 {
            recent.remember(&format!("/{number}"), &Resource::default());
        }
        assert_eq!(recent.lock().len(), MAX_RESOURCES);
        recent.forget(None);
        assert!(recent.get("/0").is_none());
    }
}
