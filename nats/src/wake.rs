//! Wake-ups: a message without content on the subject of a queue, when work of the queue becomes claimable.
//!
//! A wake-up says that an order of calls is worth its request, and nothing else. It is not kept: a worker without a connection
//! orders at its interval.

use std::collections::BTreeSet;
use std::convert::Infallible;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::Dialer;
use crate::options::Options;
use crate::session::Session;
use crate::{WAKE, token};

/// The most wake-ups that wait to be published; further ones are dropped.
pub const WAKES: usize = 64;

/// A channel for the queues to wake. A sender drops a wake-up when the channel is full.
pub fn wake_channel() -> (mpsc::Sender<String>, mpsc::Receiver<String>) {
    mpsc::channel(WAKES)
}

fn subject(queue: &str) -> String {
    format!("{WAKE}.{}", token(queue))
}

/// Publishes wake-ups for as long as there is a connection. Its end drops this future, and the wake-up that it sends.
pub(crate) async fn publish(session: &Session, queues: &mut mpsc::Receiver<String>) -> Infallible {
    while let Some(queue) = queues.recv().await {
        // Without a connection the worker orders at its interval.
        let _lost = session.publish(&subject(&queue)).await;
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
        let dialer = Dialer::new(options, subjects);
        tokio::spawn(async move {
            stopped.run_until_cancelled(follow(dialer, &sender)).await;
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

async fn follow(mut dialer: Dialer, state: &watch::Sender<State>) -> Infallible {
    let arrive = |arrive| state.send_modify(|state| *state = State { arrive, count: state.count + 1 });
    loop {
        let (session, driver) = dialer.dial().await;
        // The server has accepted the subscriptions before the session began.
        arrive(true);
        let end = tokio::select! {
            end = driver.run() => end,
            never = count(&session, state) => match never {},
        };
        arrive(false);
        dialer.lost(&end);
    }
}

async fn count(session: &Session, state: &watch::Sender<State>) -> Infallible {
    let mut delivered = session.delivered();
    while delivered.changed().await.is_ok() {
        state.send_modify(|state| state.count += 1);
    }
    std::future::pending().await
}
