//! Which queues are woken, and when: as soon as a run of theirs is due, and again while it is not claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use bmc::QUEUE;
use engine::Engine;
use model::{Time, error_chain};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The longest pause between two looks for due runs: a run that waits for a time becomes due without a round of the dispatcher.
const LOOK: Duration = Duration::from_secs(2);
/// The shortest pause between two looks, also when there are many rounds.
const SHORTEST: Duration = Duration::from_millis(100);
/// How often a queue is woken while its first due run is not claimed.
const REPEAT: Duration = Duration::from_secs(10);

/// Wakes the queues of workers elsewhere. A wake-up without a place in the channel is dropped; it is repeated.
pub(super) async fn run(engine: Engine, wake: mpsc::Sender<String>) {
    let mut rounds = engine.rounds();
    let mut woken = Woken::default();
    loop {
        rounds.mark_unchanged();
        match engine.store().due_queues(engine.clock().now()).await {
            Ok(due) => {
                for queue in woken.look(due, Instant::now()) {
                    drop(wake.try_send(queue));
                }
            }
            Err(error) => tracing::debug!(error = %error_chain(&error), "due queues cannot be read"),
        }
        tokio::time::sleep(SHORTEST).await;
        // An error means that the engine is gone; the stop ends this loop then.
        drop(tokio::time::timeout(LOOK, rounds.changed()).await);
    }
}

/// The queues that were woken, with the time since when their first run is due, and when they were woken last.
#[derive(Default)]
struct Woken(BTreeMap<String, (Time, Instant)>);

impl Woken {
    /// The queues to wake now. A queue without a due run is forgotten, so that its next one wakes at once.
    fn look(&mut self, due: Vec<(String, Time)>, now: Instant) -> Vec<String> {
        let mut kept = BTreeMap::new();
        let mut wake = Vec::new();
        for (queue, since) in due.into_iter().filter(|(queue, _)| queue != QUEUE) {
            match self.0.remove(&queue) {
                Some((known, last)) if known == since && now - last < REPEAT => {
                    kept.insert(queue, (known, last));
                }
                _ => {
                    wake.push(queue.clone());
                    kept.insert(queue, (since, now));
                }
            }
        }
        self.0 = kept;
        wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_woken_when_a_run_becomes_due_and_again_while_it_is_not_claimed() {
        let at = |second: u64| {
            let start: Time = "2026-11-20T08:00:00Z".parse().unwrap();
            start.plus(Duration::from_secs(second))
        };
        let due = |since| vec![("far".to_owned(), at(since)), (QUEUE.to_owned(), at(0))];
        let (mut woken, start) = (Woken::default(), Instant::now());
        assert_eq!(woken.look(due(5), start), ["far"], "the queue of the controller needs none");
        assert!(woken.look(due(5), start + Duration::from_secs(9)).is_empty());
        assert_eq!(woken.look(due(5), start + REPEAT), ["far"], "not claimed yet");
        assert_eq!(woken.look(due(6), start + REPEAT), ["far"], "another run is the first");
        assert!(woken.look(Vec::new(), start + REPEAT).is_empty());
        assert_eq!(woken.look(due(6), start + REPEAT), ["far"], "it was claimed and is due again");
    }
}
