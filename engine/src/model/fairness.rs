//! Who is next: priority first, batches in turn, and nobody starves. Pure.
//!
//! ```text
//!  within a batch    by rank = made at - priority minutes            (a number fixed when it is made)
//!  between batches   by last served - priority minutes               (never served: when its first was made)
//! ```
//!
//! A point of priority is worth a minute in line: higher goes first, but a stream of priority 10 keeps a priority 0 waiting
//! for ten minutes at most. Batches of one priority take turns, however many rows each has. Runs that were ordered alone take
//! turns with the batches as if they were one.

use std::collections::HashMap;

use super::time::Time;

/// What a point of priority is worth, in milliseconds.
const POINT: i64 = 60_000;
/// Batches whose last turn is remembered; who is forgotten is merely served a little earlier.
const REMEMBERED: usize = 4096;

/// The order of beginning within a batch: smaller first.
pub fn rank(since: Time, priority: i32) -> i64 {
    since.unix_millis().saturating_sub(i64::from(priority).saturating_mul(POINT))
}

/// The first in line of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The batch; empty for those ordered alone.
    pub batch: String,
    /// Its rank.
    pub rank: i64,
    /// Its priority.
    pub priority: i32,
}

/// When each batch was last served.
#[derive(Clone, Debug, Default)]
pub struct Fairness {
    served: HashMap<String, (i64, u64)>,
    count: u64,
}

impl Fairness {
    /// The place in `heads` of the one whose turn it is.
    pub fn next(&self, heads: &[Head]) -> Option<usize> {
        let key = |head: &Head| {
            let (served, count) = self.served.get(&head.batch).copied().unwrap_or((i64::MIN, 0));
            let since = served.saturating_sub(i64::from(head.priority).saturating_mul(POINT)).max(head.rank);
            (since, count, head.rank, head.batch.clone())
        };
        heads.iter().enumerate().min_by_key(|(_, head)| key(head)).map(|(place, _)| place)
    }

    /// A batch had its turn.
    pub fn served(&mut self, batch: &str, now: Time) {
        if self.served.len() >= REMEMBERED && !self.served.contains_key(batch) {
            let oldest = self.served.iter().min_by_key(|(_, turn)| **turn).map(|(batch, _)| batch.clone());
            oldest.map(|oldest| self.served.remove(&oldest));
        }
        self.count += 1;
        self.served.insert(batch.to_owned(), (now.unix_millis(), self.count));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: u64) -> Time {
        "2026-01-01T00:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(second))
    }

    fn head(batch: &str, second: u64, priority: i32) -> Head {
        Head { batch: batch.to_owned(), rank: rank(at(second), priority), priority }
    }

    /// Serves `count` times, every second one; each batch has rows without end.
    fn order(heads: &[Head], from: u64, count: u64) -> String {
        let mut turns = Fairness::default();
        let mut order = String::new();
        for second in from..from + count {
            let next = turns.next(heads).unwrap();
            turns.served(&heads[next].batch, at(second));
            order.push_str(&heads[next].batch);
        }
        order
    }

    #[test]
    fn batches_of_one_priority_take_turns_whoever_came_first() {
        assert_eq!(order(&[head("a", 0, 0), head("b", 50, 0), head("c", 50, 0)], 60, 9), "abcabcabc");
        let now = Fairness::default();
        assert_eq!(now.next(&[]), None);
    }

    #[test]
    fn several_served_in_one_moment_take_turns_too() {
        let heads = [head("a", 0, 0), head("b", 0, 0)];
        let mut turns = Fairness::default();
        let order: Vec<usize> = (0..6)
            .map(|_| {
                let next = turns.next(&heads).unwrap();
                turns.served(&heads[next].batch, at(9));
                next
            })
            .collect();
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_higher_priority_goes_first_and_the_lower_one_is_served_all_the_same() {
        let order = order(&[head("l", 0, 0), head("h", 0, 2)], 1, 600);
        assert!(order.starts_with(&"h".repeat(100)), "{order}");
        let low = order.matches('l').count();
        assert!((3..=6).contains(&low), "about every two minutes: {low}");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut turns = Fairness::default();
        for number in 0..REMEMBERED as u64 * 2 {
            turns.served(&number.to_string(), at(number));
        }
        assert_eq!(turns.served.len(), REMEMBERED);
        assert!(!turns.served.contains_key("0"));
    }
}
