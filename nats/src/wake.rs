//! Wake-ups: a message without content on the subject of a queue, when work of the queue becomes claimable.
//!
//! A wake-up says that an order of calls is worth its request, and nothing else. It is not kept: a worker without a connection
//! orders at its interval.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::select_all;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Known, Options};
use crate::{WAKE, token};

/// The most wake-ups that wait to be published; further ones are dropped.
pub const WAKES: usize = 64;
/// How long a wake-up may wait for a place among the commands of the client.
const PUBLISH: Duration = Duration::from_secs(1);

/// A channel for the queues to wake. A sender drops a wake-up when the channel is full.
pub fn wake_channel() -> (mpsc::Sender<String>, mpsc::Receiver<String>) {
    mpsc::channel(WAKES)
}

fn subject(queue: &str) -> String {
    format!("{WAKE}.{}", token(queue))
}

/// Publishes wake-ups for as long as there is a connection. One that cannot be published is dropped.
pub(crate) async fn publish(connection: &Connection, queues: &mut mpsc::Receiver<String>) {
    while let Some(queue) = queues.recv().await {
        if connection.now().connected {
            let sent = connection.client.publish(subject(&queue), Bytes::new());
            // A full client or a lost connection: the worker orders at its interval.
            let _lost = tokio::time::timeout(PUBLISH, sent).await;
        }
    }
    std::future::pending().await
}

/// The wake-ups of some queues. They end with the value.
#[derive(Debug)]
pub struct Wakes {
    state: watch::Receiver<State>,
    _stop: tokio_util::sync::DropGuard,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Whether wake-ups arrive.
    arrive: bool,
    /// Grows with every wake-up, and with every change of `arrive`.
    count: u64,
}

impl Wakes {
    /// Subscribes to the wake-ups of these queues; with none, of all. Returns at once, also without a connection.
    pub fn subscribe(options: Options, queues: &BTreeSet<String>) -> Self {
        let subjects = match queues.is_empty() {
            true => vec![format!("{WAKE}.*")],
            false => queues.iter().map(|queue| subject(queue)).collect(),
        };
        let (sender, state) = watch::channel(State::default());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            stopped.run_until_cancelled(follow(&options, &subjects, &sender)).await;
        });
        Self { state, _stop: stop.drop_guard() }
    }

    /// Whether wake-ups arrive. Marks those that have arrived as seen: [`Wakes::next`] waits for a later one.
    pub fn arrive(&mut self) -> bool {
        self.state.borrow_and_update().arrive
    }

    /// Waits for a wake-up, or for the loss or the return of the connection.
    pub async fn next(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn follow(options: &Options, subjects: &[String], state: &watch::Sender<State>) {
    let known = Known::default();
    let mut attempt = 0;
    loop {
        let connection = match Connection::open(options, &known).await {
            Ok(connection) => connection,
            Err(why) => {
                tracing::error!(
                    why,
                    "wake-ups cannot be subscribed to; the worker orders calls at its interval"
                );
                return;
            }
        };
        listen(&connection, subjects, state).await;
        state.send_modify(|state| *state = State { arrive: false, count: state.count + 1 });
        attempt += 1;
        tokio::time::sleep(options.limits.pause(attempt)).await;
    }
}

/// Listens until the client ends.
async fn listen(connection: &Connection, subjects: &[String], state: &watch::Sender<State>) {
    let mut subscribers = Vec::new();
    for subject in subjects {
        // The client subscribes when there is a connection, and again after each loss.
        match connection.client.subscribe(subject.clone()).await {
            Ok(subscriber) => subscribers.push(subscriber),
            Err(_ended) => return,
        }
    }
    let mut messages = select_all(subscribers);
    let mut link = connection.link();
    loop {
        let arrive = link.borrow_and_update().connected;
        state.send_modify(|state| *state = State { arrive, count: state.count + 1 });
        loop {
            tokio::select! {
                changed = link.changed() => match changed {
                    Ok(()) => break,
                    Err(_ended) => return,
                },
                message = messages.next() => match message {
                    Some(_) => state.send_modify(|state| state.count += 1),
                    None => return,
                },
            }
        }
    }
}
