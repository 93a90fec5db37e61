//! A worker elsewhere: a process near its BMCs that runs the steps of its queues and needs no database (decision D33).
//!
//! ```text
//!   claim (waits) ──> Worker::run, one task each ──> BMC
//!        │                │ progress, report, release ──> Link ──> /worker/v1/… of the controller
//!        │                └ servers, files, inventories of its calls ── Keeper, services
//!        └ with wake-ups over NATS: claim (at once), then again when a call ended, after a wake-up, or after the interval
//!   interrupted (waits) ──> Worker::interrupt
//!
//!   stop     no further call is claimed; what may be interrupted gives its lease back, what may not is finished
//!   ended    the controller refuses the worker: nothing more is sent to a BMC, and the process ends with its words
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`messages`] | the bodies of the routes, shared with `api::worker` |
//! | `link` | requests that are repeated until there is a response; the engine's `Backend` |
//! | `keeper` | the calls, and the records of their servers with sealed passwords |
//! | `services` | what the steps use |
//! | `clock` | the time of the controller |
//! | `waking` | wake-ups over NATS |
//!
//! Invariant: a worker knows the BMC passwords of the servers that it has a call for, or had one a minute ago, and no others; they
//! are in its memory only.

mod clock;
mod keeper;
mod link;
pub mod messages;
mod services;
mod waking;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::TaskTracker;
use url::Url;

use clock::FollowingClock;
use engine::{Backend, PROTOCOL, Worker, WorkflowRegistry};
use keeper::Keeper;
use link::{Link, LinkError, POLL};
use messages::{ClaimList, ClaimOrder, Claims, Hello};
use model::{Clock, IdSource, RunId, SystemIdSource, WorkflowVersion};
use secrets::{KeyRing, KeyVersion, Resolver};
use upkeep::{Upkeep, UpkeepServices};
use waking::Waking;

pub use nats_carrier::{NatsCredentials, ServerUrl};
pub use tokio_util::sync::CancellationToken;
pub use waking::WakeOptions;

/// How often idle connections to BMCs are looked for.
const SWEEP: Duration = Duration::from_secs(15);
/// How long the last request for calls may take to end at stop.
const LAST_POLL: Duration = Duration::from_secs(5);

/// The workflows of a worker elsewhere, with their versions.
pub fn workflows() -> BTreeMap<String, WorkflowVersion> {
    Upkeep::versions()
}

/// The options with which a worker elsewhere is started.
pub struct WorkerOptions {
    /// The URL of the controller: https, or http on loopback.
    pub controller: Url,
    /// The token of the worker.
    pub token: SecretString,
    /// TLS with the authorities of the controller.
    pub tls: rustls::ClientConfig,
    /// The queues; empty for all of the token.
    pub queues: BTreeSet<String>,
    /// A name for the process in leases and logs: letters, digits and characters of `-._`.
    pub name: String,
    /// How many calls are made at the same time.
    pub parallel: usize,
    /// The directory in which received firmware files are stored, without a name.
    pub spool: PathBuf,
    /// Wake-ups over NATS. While they arrive, no order of calls waits at the controller.
    pub wake: Option<WakeOptions>,
}

/// Why a worker elsewhere ended.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The options cannot be used.
    #[error("{0}")]
    Options(String),
    /// The controller does not let this worker work.
    #[error("the controller refuses this worker: {0}")]
    Refused(String),
}

/// Runs a worker until `stop`.
///
/// # Errors
/// When the options cannot be used, or the controller refuses the worker.
pub async fn run(options: WorkerOptions, stop: CancellationToken) -> Result<(), WorkerError> {
    let waking = Waking::subscribe(options.wake.clone(), &options.queues);
    let running = Running::connect(options, &stop).await?;
    let Some(running) = running else { return Ok(()) };
    running.work(&stop, waking).await;
    match running.link.why_ended() {
        Some(why) => Err(WorkerError::Refused(why)),
        None => Ok(()),
    }
}

struct Running {
    link: Arc<Link>,
    clock: Arc<FollowingClock>,
    worker: Worker,
    services: Arc<UpkeepServices>,
    parallel: usize,
    /// A call was claimed.
    claimed: Notify,
}

impl Running {
    /// Connects to the controller, as long as it takes. `None`: the worker was stopped before.
    async fn connect(options: WorkerOptions, stop: &CancellationToken) -> Result<Option<Self>, WorkerError> {
        let WorkerOptions { controller, token, tls, queues, name, parallel, spool, wake: _ } = options;
        checked_url(&controller)?;
        let refused = |what: &str| WorkerError::Options(what.to_owned());
        let key = KeyVersion::random(None).map_err(|why| WorkerError::Options(why.to_string()))?;
        let key = KeyRing::new(key, Vec::new());
        let clock = Arc::new(FollowingClock::new());
        let keeper = Arc::new(Keeper::new(Resolver::new(&key), Arc::clone(&clock) as Arc<dyn Clock>));
        let process = format!("{name}-{:08x}", (SystemIdSource.jitter() * f64::from(u32::MAX)) as u32);
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
            .map_err(|_| refused("the token contains characters that are not allowed in a token"))?;
        authorization.set_sensitive(true);
        let header = HeaderValue::from_str(&process).map_err(|_| refused("the name cannot be sent"))?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|why| WorkerError::Options(format!("cannot build an HTTP client: {why}")))?;
        let hello = Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workflows: workflows(),
            queues,
        };
        let link = Link::new(http, controller, (authorization, header), hello, Arc::clone(&clock), keeper);
        let link = Arc::new(link);
        let welcome = tokio::select! {
            welcome = link.greet() => welcome,
            () = stop.cancelled() => return Ok(None),
        };
        let welcome = welcome.map_err(|why| match why {
            LinkError::Ended(words) => WorkerError::Refused(words),
            other => WorkerError::Refused(other.to_string()),
        })?;
        tracing::info!(
            worker = %format!("{}/{process}", welcome.name),
            controller_version = welcome.version,
            parallel,
            "the worker is connected"
        );
        let services = services::services(&welcome.redfish, &key, &link, spool);
        link.trusts_for(&services.bmc);
        let workflows = Upkeep::workflows(&services)
            .into_iter()
            .fold(WorkflowRegistry::default(), WorkflowRegistry::with);
        let backend = Arc::clone(&link) as Arc<dyn Backend>;
        let its_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let worker = Worker::new(backend, workflows, its_clock, Duration::from_millis(welcome.lease_ms));
        Ok(Some(Self { link, clock, worker, services, parallel: parallel.max(1), claimed: Notify::new() }))
    }

    /// Works until `stop`, or until the controller refuses the worker.
    async fn work(&self, stop: &CancellationToken, waking: Waking) {
        let tasks = TaskTracker::new();
        let permits = Arc::new(Semaphore::new(self.parallel));
        let ending = stop.child_token();
        tokio::select! {
            () = self.claim_calls(&ending, &permits, &tasks, waking) => {}
            () = self.watch() => {}
        }
        ending.cancel();
        self.interrupt_if_refused();
        tasks.close();
        if !tasks.is_empty() {
            tracing::info!(
                calls = tasks.len(),
                "calls that may not be interrupted are finished; a second signal ends the worker at once"
            );
        }
        tokio::select! {
            () = tasks.wait() => {}
            // A cancel of a run whose call is being finished still interrupts it, and so does a refusal of the worker.
            () = self.watch() => {
                self.interrupt_if_refused();
                tasks.wait().await;
            }
        }
        self.services.bmc.connections.close_all().await;
    }

    /// Interrupts all calls of a worker that the controller refuses: another worker may get the runs, so nothing more may be sent to a
    /// BMC.
    fn interrupt_if_refused(&self) {
        if self.link.ended.is_cancelled() {
            self.worker.held().into_iter().for_each(|(run, epoch)| self.worker.interrupt(run, epoch));
        }
    }

    /// Claims calls and starts a task for each.
    async fn claim_calls(
        &self,
        stop: &CancellationToken,
        permits: &Arc<Semaphore>,
        tasks: &TaskTracker,
        mut waking: Waking,
    ) {
        let mut pause = Duration::from_millis(250);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.link.ended.cancelled() => return,
                permit = permits.acquire() => drop(permit),
            }
            // Before the order, so that a wake-up during it causes the next one.
            let at_once = waking.begin();
            let order = ClaimOrder { limit: permits.available_permits().max(1), at_once };
            let since = self.clock.elapsed();
            let claims = match self.poll(order, stop).await {
                Ok(Some(claims)) => claims,
                Ok(None) => return,
                Err(LinkError::Ended(_)) => return,
                Err(why) => {
                    tracing::debug!(%why, "no calls were claimed");
                    let waited = tokio::select! {
                        waited = self.link.pause(&mut pause) => waited,
                        () = waking.woken() => Ok(()),
                        () = stop.cancelled() => return,
                    };
                    if waited.is_err() {
                        return;
                    }
                    continue;
                }
            };
            pause = Duration::from_millis(250);
            self.clock.follow(claims.now);
            // The leases began after the order had waited at the controller.
            let since = since + Duration::from_millis(claims.waited_ms);
            let idle = at_once && claims.calls.is_empty();
            for parcel in claims.calls {
                let call = self.link.keeper.take(parcel);
                let (run, epoch) = (call.snapshot.run.id, call.snapshot.run.epoch);
                let keeper = Arc::clone(&self.link.keeper);
                // Listed before `claimed` is notified, so that the next list of claims names it.
                let work = Box::pin(self.worker.run(call, since, stop));
                let permit = Arc::clone(permits).acquire_owned().await;
                tasks.spawn(async move {
                    work.await;
                    keeper.done(run, epoch);
                    drop(permit);
                });
            }
            self.claimed.notify_one();
            if idle {
                tracing::debug!("nothing is due; the next order of calls follows a wake-up");
                tokio::select! {
                    () = waking.next() => {}
                    () = stop.cancelled() => return,
                    () = self.link.ended.cancelled() => return,
                }
            }
        }
    }

    /// One order of calls. At `stop` the controller is asked to end it, so that no claimed call is lost; `None` then.
    async fn poll(&self, order: ClaimOrder, stop: &CancellationToken) -> Result<Option<Claims>, LinkError> {
        let mut poll = std::pin::pin!(self.link.once::<Claims>("claim", &order, POLL));
        tokio::select! {
            claims = &mut poll => return claims.map(Some),
            () = stop.cancelled() => {}
        }
        let end = ClaimOrder { limit: 0, at_once: false };
        let last = self.link.once::<Claims>("claim", &end, LAST_POLL);
        let both = async { tokio::join!(poll, last).0 };
        match tokio::time::timeout(LAST_POLL, both).await {
            // Calls of a worker that stops give their leases back at once.
            Ok(Ok(claims)) if !claims.calls.is_empty() => Ok(Some(claims)),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Interrupts what the controller says, and closes idle connections. Returns when the controller refuses the worker.
    async fn watch(&self) {
        tokio::select! {
            () = self.link.ended.cancelled() => {}
            () = self.interrupt() => {}
            () = self.close_idle() => {}
        }
    }

    async fn interrupt(&self) {
        // A call that may not be interrupted continues for a while. The controller would name it again at once.
        let mut stopped = BTreeSet::new();
        loop {
            let held = self.worker.held();
            stopped.retain(|claim| held.contains(claim));
            let claims: Vec<(RunId, i64)> =
                held.into_iter().filter(|claim| !stopped.contains(claim)).collect();
            if claims.is_empty() {
                self.claimed.notified().await;
                continue;
            }
            let order = ClaimList { claims };
            let listed = tokio::select! {
                listed = self.link.once::<ClaimList>("interrupted", &order, POLL) => listed,
                // The order does not name the new call.
                () = self.claimed.notified() => continue,
            };
            match listed {
                Ok(listed) => {
                    for (run, epoch) in listed.claims {
                        self.worker.interrupt(run, epoch);
                        stopped.insert((run, epoch));
                    }
                }
                Err(LinkError::Ended(_)) => return,
                Err(_) => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
    }

    async fn close_idle(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            for serial in self.link.keeper.idle() {
                self.services.bmc.connections.close_open(&serial).await;
            }
        }
    }
}

/// A worker sends its token, and receives passwords, by https or on this machine.
fn checked_url(url: &Url) -> Result<(), WorkerError> {
    let here = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if here => Ok(()),
        _ => Err(WorkerError::Options(
            "give the https address of the controller, such as https://controller.example:8443: BMC passwords are in its responses"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_are_accepted() {
        for (url, accepted) in [
            ("https://controller.example:8443", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://localhost:8080", true),
            ("http://192.0.2.1:8080", false),
            ("http://controller.example", false),
            ("ftp://127.0.0.1", false),
        ] {
            assert_eq!(checked_url(&url.parse().unwrap()).is_ok(), accepted, "{url}");
        }
    }
}
