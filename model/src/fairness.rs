//! Fairness: who goes first. Priority counts first, batches alternate, and every run is served. Pure.
//!
//! One rule for every queue: runs that wait for a worker, and run trees that wait for a lock or a permit. The queries that
//! read the heads are in `store/queues.rs`.
//!
//! ```text
//!  within a batch    by rank = created at - priority minutes         (a number fixed at the creation)
//!  between batches   by last served - priority minutes               (never served: the rank of its first run)
//! ```
//!
//! A point of priority counts like one minute in the queue. A higher priority is served first, but a stream of runs of priority
//! 10 delays a run of priority 0 by ten minutes at most. Batches of one priority alternate, however many runs each has. All runs
//! that were created without a batch count as one batch.

use std::collections::HashMap;

use super::time::Time;

/// The value of one point of priority, in milliseconds in the queue.
const PRIORITY_POINT: i64 = 60_000;
/// The number of batches whose last service time is kept. A batch without one is served a little earlier.
const REMEMBERED: usize = 4096;

/// The rank of a run within its batch: the smallest is served first.
pub fn rank(since: Time, priority: i32) -> i64 {
    since.unix_millis().saturating_sub(i64::from(priority).saturating_mul(PRIORITY_POINT))
}

/// The first entry in the queue of one batch: a run, or a run tree that waits for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueHead {
    /// The id of the run, or of the root of the run tree.
    pub entry: String,
    /// The batch; empty for runs without one.
    pub batch: String,
    /// The rank of the entry; the smallest of its batch.
    pub rank: i64,
    /// The priority of the entry.
    pub priority: i32,
}

/// The time at which each batch was last served.
#[derive(Clone, Debug, Default)]
pub struct Fairness {
    served: HashMap<String, (i64, u64)>,
    count: u64,
}

impl Fairness {
    /// The index of the head in `queue_heads` that is served next. It does not depend on the order of the heads.
    pub fn next(&self, queue_heads: &[QueueHead]) -> Option<usize> {
        let key = |head: &QueueHead| {
            let (served, count) = self.served.get(&head.batch).copied().unwrap_or((i64::MIN, 0));
            let since =
                served.saturating_sub(i64::from(head.priority).saturating_mul(PRIORITY_POINT)).max(head.rank);
            (since, count, head.rank, head.batch.clone())
        };
        queue_heads.iter().enumerate().min_by_key(|(_, head)| key(head)).map(|(index, _)| index)
    }

    /// Records that an entry of the batch was served.
    pub fn served(&mut self, batch: &str, now: Time) {
        if self.served.len() >= REMEMBERED && !self.served.contains_key(batch) {
            let oldest =
                self.served.iter().min_by_key(|(_, served)| **served).map(|(batch, _)| batch.clone());
            oldest.map(|oldest| self.served.remove(&oldest));
        }
        self.count += 1;
        self.served.insert(batch.to_owned(), (now.unix_millis(), self.count));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Time {
        "2026-01-01T00:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(second))
    }

    fn queue_head(batch: &str, second: u64, priority: i32) -> QueueHead {
        QueueHead {
            entry: format!("{batch}-{second}"),
            batch: batch.to_owned(),
            rank: rank(at(second), priority),
            priority,
        }
    }

    /// Serves one run in every second, `count` times; each batch has an unlimited number of runs.
    fn order(queue_heads: &[QueueHead], from: u64, count: u64) -> String {
        let mut fairness = Fairness::default();
        let mut order = String::new();
        for second in from..from + count {
            let next = fairness.next(queue_heads).unwrap();
            fairness.served(&queue_heads[next].batch, at(second));
            order.push_str(&queue_heads[next].batch);
        }
        order
    }

    #[test]
    fn batches_of_one_priority_alternate_whatever_their_age() {
        assert_eq!(
            order(&[queue_head("a", 0, 0), queue_head("b", 50, 0), queue_head("c", 50, 0)], 60, 9),
            "abcabcabc"
        );
        let now = Fairness::default();
        assert_eq!(now.next(&[]), None);
    }

    #[test]
    fn batches_that_are_served_at_the_same_time_alternate_too() {
        let queue_heads = [queue_head("a", 0, 0), queue_head("b", 0, 0)];
        let mut fairness = Fairness::default();
        let order: Vec<usize> = (0..6)
            .map(|_| {
                let next = fairness.next(&queue_heads).unwrap();
                fairness.served(&queue_heads[next].batch, at(9));
                next
            })
            .collect();
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_higher_priority_is_served_first_and_a_lower_one_does_not_starve() {
        let order = order(&[queue_head("l", 0, 0), queue_head("h", 0, 2)], 1, 600);
        assert!(order.starts_with(&"h".repeat(100)), "{order}");
        let low = order.matches('l').count();
        assert!((3..=6).contains(&low), "about every two minutes: {low}");
    }

    #[test]
    fn the_memory_of_served_batches_is_bounded() {
        let mut fairness = Fairness::default();
        for number in 0..REMEMBERED as u64 * 2 {
            fairness.served(&number.to_string(), at(number));
        }
        assert_eq!(fairness.served.len(), REMEMBERED);
        assert!(!fairness.served.contains_key("0"));
    }

    /// Batches with a priority each, all older than the first service.
    fn batches() -> impl Strategy<Value = Vec<QueueHead>> {
        proptest::collection::vec((0_u64..600, -3_i32..4), 1..7).prop_map(|heads| {
            let named = heads.into_iter().enumerate();
            named
                .map(|(index, (second, priority))| queue_head(&index.to_string(), second, priority))
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A batch waits for its next service at most one minute for each point of priority that another batch is ahead, and
        /// one service of each other batch.
        #[test]
        fn no_batch_starves(heads in batches(), services in 50_u64..900) {
            let mut fairness = Fairness::default();
            let mut last = vec![600_u64; heads.len()];
            for second in 600..600 + services {
                let next = fairness.next(&heads).unwrap();
                fairness.served(&heads[next].batch, at(second));
                last[next] = second;
                for (index, head) in heads.iter().enumerate() {
                    let ahead = heads.iter().map(|other| other.priority - head.priority).max().unwrap_or(0);
                    let longest = u64::try_from(ahead).unwrap() * 60 + heads.len() as u64;
                    prop_assert!(second - last[index] <= longest, "{head:?} waits since {}", last[index]);
                }
            }
        }

        #[test]
        fn batches_of_one_priority_are_served_in_turn(heads in batches(), rounds in 2_usize..6) {
            let heads: Vec<QueueHead> =
                heads.into_iter().map(|head| QueueHead { priority: 0, rank: head.rank.min(at(600).unix_millis()), ..head }).collect();
            let order = order(&heads, 600, (heads.len() * rounds) as u64);
            let first = &order[..heads.len()];
            prop_assert_eq!(first.repeat(rounds), order.as_str());
            prop_assert_eq!(first.chars().collect::<std::collections::BTreeSet<_>>().len(), heads.len());
        }

        #[test]
        fn the_choice_does_not_depend_on_the_order_of_the_heads(
            heads in batches(),
            served in proptest::collection::vec((0_usize..7, 0_u64..900), 0..20),
            turn in 0_usize..7,
        ) {
            let mut fairness = Fairness::default();
            for (batch, second) in served {
                fairness.served(&batch.to_string(), at(second));
            }
            let chosen = fairness.next(&heads).map(|next| heads[next].clone());
            let mut turned = heads.clone();
            turned.rotate_left(turn % heads.len());
            turned.reverse();
            prop_assert_eq!(chosen, fairness.next(&turned).map(|next| turned[next].clone()));
        }

        #[test]
        fn an_older_entry_or_one_of_higher_priority_has_the_smaller_rank(
            second in 0_u64..1_000_000, later in 1_u64..1000, priority in any::<i32>(), more in 1_i32..1000,
        ) {
            prop_assert!(rank(at(second), priority) < rank(at(second + later), priority));
            prop_assert!(rank(at(second), priority.saturating_add(more)) <= rank(at(second), priority));
        }
    }
}
