//! Audit events of the registry, in the event log and in the metrics; `request_audit` has its part of the audit log.
//!
//! ```text
//!  registry ──record──> metrics ──> channel ──once a second──> events      all pushes and deletes
//!                                      |                        a denial unlike those of its minute
//!                                      |         └──once a minute──> how often each was repeated, and how many others there were
//!                                      └── full: counted as lost; the line in the process's log is written in any case
//! ```
//!
//! Recording never waits, because it runs inside a push. Guessed credentials cannot fill the disk: of different denials at most
//! [`DENIALS`] are written per [`WINDOW`], and the rest as a number. No credential reaches this module.

use std::sync::Arc;
use std::time::Duration;

use registry::{AuditEvent, Audited};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::request_audit::{RegistryAuditLog, why_name};
use access::audit::RefusedAttempts;
use model::{Clock, NewEvent, error_chain};
use store::Store;
use telemetry::Metrics;

/// The maximum of events that wait to be written.
const QUEUE: usize = 8192;
/// The maximum of events written in one transaction.
const AT_ONCE: usize = 4096;
/// The maximum of different denials written within [`WINDOW`].
const DENIALS: usize = 16;
/// The time whose denials are summed.
const WINDOW: Duration = Duration::from_secs(60);
/// The pause between two writes, in which events are collected.
const PAUSE: Duration = Duration::from_secs(1);

/// Receives the audit events of the registry.
pub(in crate::app) struct AuditRecorder {
    metrics: Arc<Metrics>,
    log: RegistryAuditLog,
    queue: mpsc::Sender<AuditEvent>,
}

impl AuditRecorder {
    /// A recorder, and the queue of its events.
    pub(in crate::app) fn new(
        metrics: Arc<Metrics>,
        store: Store,
        clock: Arc<dyn Clock>,
        refused: Arc<RefusedAttempts>,
    ) -> (Arc<Self>, mpsc::Receiver<AuditEvent>) {
        let (queue, queued) = mpsc::channel(QUEUE);
        let log = RegistryAuditLog { store, clock, refused };
        (Arc::new(Self { metrics, log, queue }), queued)
    }
}

impl registry::Audit for AuditRecorder {
    fn record(&self, event: &AuditEvent) {
        let kind = event.what.name();
        match event.what {
            Audited::Denied(action, why) => {
                self.metrics.registry_denied(action_name(action), why_name(why));
            }
            Audited::DeleteBlob | Audited::DeleteManifest | Audited::DeleteTag => {
                self.metrics.registry_deleted(kind.trim_start_matches("delete_"));
            }
            Audited::PushBlob | Audited::MountBlob | Audited::PushManifest | Audited::PushTag => {
                let uploaded = matches!(event.what, Audited::PushBlob | Audited::PushManifest);
                let bytes = event.size.filter(|_| uploaded).unwrap_or(0);
                self.metrics.registry_pushed(kind.trim_start_matches("push_"), bytes);
            }
        }
        self.log.record(event);
        if self.queue.try_send(event.clone()).is_err() {
            self.metrics.registry_audit_lost();
        }
    }
}

/// Writes queued events until `stop`, and then the remaining ones.
pub(in crate::app) async fn write(
    mut queued: mpsc::Receiver<AuditEvent>,
    store: Store,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let append = async |events: Vec<NewEvent>| {
        let number = events.len();
        if number > 0
            && let Err(error) = store.append(None, None, events, clock.now()).await
        {
            tracing::error!(error = %error_chain(&error), events = number, "audit events of the registry were not stored; they are in this log only");
        }
    };
    let (mut batch, mut denials) = (Vec::new(), DenialWindow::default());
    loop {
        let window_ends = denials.ends;
        let got = tokio::select! {
            biased;
            () = stop.cancelled(), if !queued.is_closed() => {
                queued.close();
                continue;
            }
            got = queued.recv_many(&mut batch, AT_ONCE) => got,
            () = until(window_ends) => {
                append(denials.end()).await;
                continue;
            }
        };
        if got == 0 {
            return append(denials.end()).await;
        }
        // A queue that is never empty does not keep the window open.
        let mut events =
            if window_ends.is_some_and(|ends| ends <= Instant::now()) { denials.end() } else { Vec::new() };
        events.extend(denials.audit_events(&batch));
        append(events).await;
        batch.clear();
        // At stop the remaining events are written without a pause.
        let _stopped = tokio::time::timeout(PAUSE, stop.cancelled()).await;
    }
}

/// Waits for a time; for ever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The denials since the begin of a window.
#[derive(Default)]
struct DenialWindow {
    ends: Option<Instant>,
    /// The different ones that were written, each with the number of its repetitions since.
    written: Vec<(AuditEvent, u64)>,
    /// Further different ones.
    more: u64,
}

impl DenialWindow {
    /// The events of a batch: of denials those unlike the ones of this window, as far as [`DENIALS`] allows.
    fn audit_events(&mut self, batch: &[AuditEvent]) -> Vec<NewEvent> {
        let mut events = Vec::new();
        let before = self.written.len();
        for event in batch {
            if !matches!(event.what, Audited::Denied(..)) {
                events.push(audit_event(event, 1));
                continue;
            }
            self.ends.get_or_insert_with(|| Instant::now() + WINDOW);
            let equal = |known: &&mut (AuditEvent, u64)| {
                let known = &known.0;
                known.what == event.what
                    && known.subject == event.subject
                    && known.repository == event.repository
                    && known.peer.map(|peer| peer.ip()) == event.peer.map(|peer| peer.ip())
            };
            let room = self.written.len() < DENIALS;
            match self.written.iter_mut().find(equal) {
                Some((_, count)) => *count += 1,
                None if room => self.written.push((event.clone(), 1)),
                None => self.more += 1,
            }
        }
        let new = self.written.iter_mut().skip(before);
        events.extend(new.map(|(event, count)| audit_event(event, std::mem::take(count))));
        events
    }

    /// Ends the window: how often its denials were repeated, and how many others there were.
    fn end(&mut self) -> Vec<NewEvent> {
        let Self { written, more, .. } = std::mem::take(self);
        let repeated = written.iter().filter(|(_, count)| *count > 0);
        let mut events: Vec<NewEvent> = repeated.map(|(event, count)| audit_event(event, *count)).collect();
        if more > 0 {
            let message = format!(
                "{more} more requests to the registry were denied within {} s; see the log of the process",
                WINDOW.as_secs()
            );
            let event = NewEvent::warn("registry.denied", message);
            events.push(event.by("registry").with(json!({ "count": more })));
        }
        events
    }
}

/// The event of the event log for an event of the registry, which happened `count` times.
pub(super) fn audit_event(event: &AuditEvent, count: u64) -> NewEvent {
    let who = event.subject.as_deref().unwrap_or("anonymous");
    let place = event.repository.as_ref().map_or_else(|| "the registry".to_owned(), ToString::to_string);
    let reference = event.reference.as_ref().map(ToString::to_string);
    let digest = event.digest.as_ref().map(ToString::to_string);
    let named = reference.clone().or_else(|| digest.clone()).unwrap_or_default();
    let kind = format!("registry.{}", event.what.name().replace('_', "-"));
    let recorded = |message: String| NewEvent::info(&kind, message);
    let recorded = match event.what {
        Audited::PushBlob => recorded(format!("{who} pushed the blob {named} to {place}")),
        Audited::MountBlob => recorded(format!("{who} mounted the blob {named} in {place}")),
        Audited::PushManifest => recorded(format!("{who} pushed the manifest {named} to {place}")),
        Audited::PushTag => recorded(format!("{who} tagged {named} in {place}")),
        Audited::DeleteBlob => recorded(format!("{who} deleted the blob {named} from {place}")),
        Audited::DeleteManifest => recorded(format!("{who} deleted the manifest {named} from {place}")),
        Audited::DeleteTag => recorded(format!("{who} deleted the tag {named} from {place}")),
        Audited::Denied(action, why) => {
            let verb = action_name(action);
            NewEvent::warn(&kind, format!("{who} was denied to {verb} ({place}): {why}"))
        }
    };
    let mut data = json!({ "repository": event.repository.as_ref().map(ToString::to_string) });
    let facts = [
        ("reference", reference.map(Value::from)),
        ("digest", digest.map(Value::from)),
        ("size_bytes", event.size.map(Value::from)),
        ("peer", event.peer.map(|peer| Value::from(peer.ip().to_string()))),
        ("count", (count > 1).then(|| Value::from(count))),
    ];
    for (name, value) in facts.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        data[name] = value;
    }
    if let Audited::Denied(action, why) = event.what {
        data["action"] = json!(action_name(action));
        data["why"] = json!(why_name(why));
    }
    recorded.by(who).with(data)
}

fn action_name(action: registry::Action) -> &'static str {
    match action {
        registry::Action::Pull | registry::Action::PullAny | registry::Action::Exists => "pull",
        registry::Action::Push => "push",
        registry::Action::Move => "move",
        registry::Action::Delete => "delete",
        registry::Action::List => "list",
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use registry::Denied;

    use super::*;

    fn denial(peer: u8, repository: &str) -> AuditEvent {
        AuditEvent {
            time: SystemTime::now(),
            subject: None,
            peer: Some(([192, 0, 2, peer], 4000).into()),
            what: Audited::Denied(registry::Action::Pull, Denied::Unauthorized),
            repository: Some(repository.parse().unwrap()),
            reference: None,
            digest: None,
            size: None,
        }
    }

    fn count(event: &NewEvent) -> &Value {
        &event.data.as_ref().unwrap()["count"]
    }

    #[tokio::test]
    async fn equal_denials_of_a_minute_are_one_event_and_the_number_of_repetitions() {
        let mut window = DenialWindow::default();
        let same: Vec<AuditEvent> = (0..100).map(|_| denial(1, "a")).collect();
        let recorded = window.audit_events(&same);
        assert_eq!((recorded.len(), count(&recorded[0])), (1, &json!(100)));
        for _ in 0..59 {
            assert!(window.audit_events(&same).is_empty());
        }
        let summed = window.end();
        assert_eq!((summed.len(), count(&summed[0])), (1, &json!(5900)));
        assert!(window.end().is_empty());
        assert_eq!(window.audit_events(&same).len(), 1, "the next minute begins anew");
    }

    #[tokio::test]
    async fn denials_from_many_addresses_are_a_few_events_and_one_sum() {
        let mut window = DenialWindow::default();
        let flood: Vec<AuditEvent> = (0..100).map(|number| denial(number, "a")).collect();
        assert_eq!(window.audit_events(&flood).len(), DENIALS);
        assert!(window.audit_events(&flood[DENIALS..]).is_empty());
        let summed = window.end();
        assert_eq!((summed.len(), count(&summed[0])), (1, &json!(2 * (100 - DENIALS))));
    }

    #[test]
    fn every_push_is_an_event_of_its_own() {
        let push = AuditEvent {
            subject: Some("ann".to_owned()),
            what: Audited::PushTag,
            reference: Some("v1".parse().unwrap()),
            ..denial(1, "os/a")
        };
        let recorded = DenialWindow::default().audit_events(&[push.clone(), push]);
        assert_eq!(recorded.len(), 2);
        assert_eq!((recorded[0].kind.as_str(), recorded[0].actor.as_str()), ("registry.push-tag", "ann"));
        assert_eq!(recorded[0].message, "ann tagged v1 in os/a");
    }
}
