//! A cache of shared values that drops the least recently used one that is idle.
//!
//! ```text
//!   by_use:  1 -> key c    2 -> key a    3 -> key b          least recently used first
//!   values:  key a -> value, weight, 2    ...
//! ```
//!
//! Invariants: every value is in both maps, under the number of its last use; the weight is the sum of the weights of the values.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Values by key.
pub(super) struct LeastUsed<T> {
    values: HashMap<String, Kept<T>>,
    by_use: BTreeMap<u64, String>,
    weight: usize,
    uses: u64,
}

struct Kept<T> {
    value: Arc<T>,
    weight: usize,
    used: u64,
}

impl<T> Default for LeastUsed<T> {
    fn default() -> Self {
        Self { values: HashMap::new(), by_use: BTreeMap::new(), weight: 0, uses: 0 }
    }
}

impl<T> LeastUsed<T> {
    /// The value of a key, which is the most recently used one now.
    pub(super) fn get(&mut self, key: &str) -> Option<Arc<T>> {
        let kept = self.values.get_mut(key)?;
        let name = self.by_use.remove(&kept.used)?;
        self.uses += 1;
        kept.used = self.uses;
        self.by_use.insert(kept.used, name);
        Some(Arc::clone(&kept.value))
    }

    /// Adds a value under a key that has none.
    pub(super) fn insert(&mut self, key: &str, value: Arc<T>, weight: usize) {
        self.uses += 1;
        self.by_use.insert(self.uses, key.to_owned());
        let replaced = self.values.insert(key.to_owned(), Kept { value, weight, used: self.uses });
        self.weight += weight;
        if let Some(replaced) = replaced {
            self.weight -= replaced.weight;
            self.by_use.remove(&replaced.used);
        }
    }

    /// Drops values until at most `count` are left, and one or their weight is at most `weight`. Values that nothing else uses go
    /// first.
    pub(super) fn trim(&mut self, count: usize, weight: usize) {
        while self.values.len() > count.max(1) || (self.weight > weight && self.values.len() > 1) {
            let is_idle =
                |key: &str| self.values.get(key).is_none_or(|kept| Arc::strong_count(&kept.value) == 1);
            let idle = self.by_use.iter().find(|(_, key)| is_idle(key)).map(|(used, _)| *used);
            let Some(used) = idle.or_else(|| self.by_use.keys().next().copied()) else { return };
            let dropped = self.by_use.remove(&used).and_then(|key| self.values.remove(&key));
            self.weight -= dropped.map_or(0, |kept| kept.weight);
        }
    }

    /// Takes the values that `chosen` names.
    pub(super) fn take_where(&mut self, chosen: impl Fn(&str, &T) -> bool) -> Vec<Arc<T>> {
        let mut taken = Vec::new();
        self.values.retain(|key, kept| {
            let takes = chosen(key, &kept.value);
            if takes {
                self.by_use.remove(&kept.used);
                self.weight -= kept.weight;
                taken.push(Arc::clone(&kept.value));
            }
            !takes
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(cache: &LeastUsed<u8>) -> Vec<&str> {
        assert_eq!(cache.by_use.len(), cache.values.len());
        assert_eq!(cache.weight, cache.values.values().map(|kept| kept.weight).sum::<usize>());
        cache.by_use.values().map(String::as_str).collect()
    }

    #[test]
    fn the_least_recently_used_idle_value_is_dropped_first() {
        let mut cache = LeastUsed::default();
        for key in ["a", "b", "c"] {
            cache.insert(key, Arc::new(0), 10);
        }
        let read = cache.get("a").unwrap();
        assert_eq!(keys(&cache), ["b", "c", "a"]);
        let used = cache.get("b").unwrap();
        assert_eq!(keys(&cache), ["c", "a", "b"]);
        cache.insert("d", Arc::new(0), 10);
        cache.trim(3, 1000);
        assert_eq!(keys(&cache), ["a", "b", "d"], "the weight of three is allowed");
        cache.trim(9, 20);
        assert_eq!(keys(&cache), ["a", "b"], "what is read stays before what is idle");
        cache.trim(9, 0);
        assert_eq!(keys(&cache), ["b"], "the last value stays, whatever its weight is");
        drop((read, used));
        cache.insert("b", Arc::new(1), 30);
        assert_eq!(keys(&cache), ["b"]);
        assert_eq!(cache.take_where(|key, value| key == "b" && *value == 1).len(), 1);
        assert_eq!(keys(&cache), [""; 0]);
    }
}
