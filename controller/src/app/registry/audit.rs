//! Audit events of the registry, in the event log and in the metrics.
//!
//! ```text
//!  registry ──record──> metrics ──> channel ──once a second──> events      all pushes and deletes; equal denials as one
//!                                      └── full: counted as lost; the line in the process's log is written in any case
//! ```
//!
//! Recording never waits, because it runs inside a push. Guessed credentials cannot fill the disk: of different denials at most
//! [`DENIALS`] are written per second, the rest as a number. No credential reaches this module.

use std::sync::Arc;
use std::time::Duration;

use registry::{AuditEvent, Audited, Denied};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;
use engine::model::{Clock, NewEvent, error_chain};
use engine::store::Store;

/// The maximum of events that wait to be written.
const QUEUE: usize = 8192;
/// The maximum of events written in one transaction.
const AT_ONCE: usize = 4096;
/// The maximum of different denials written in one transaction.
const DENIALS: usize = 16;
/// The pause between two writes, in which events are collected.
const PAUSE: Duration = Duration::from_secs(1);

/// Receives the audit events of the registry.
pub(in crate::app) struct AuditRecorder {
    metrics: Arc<Metrics>,
    queue: mpsc::Sender<AuditEvent>,
}

impl AuditRecorder {
    /// A recorder, and the queue of its events.
    pub(in crate::app) fn new(metrics: Arc<Metrics>) -> (Arc<Self>, mpsc::Receiver<AuditEvent>) {
        let (queue, queued) = mpsc::channel(QUEUE);
        (Arc::new(Self { metrics, queue }), queued)
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
    let mut batch = Vec::new();
    loop {
        let got = tokio::select! {
            biased;
            () = stop.cancelled(), if !queued.is_closed() => {
                queued.close();
                continue;
            }
            got = queued.recv_many(&mut batch, AT_ONCE) => got,
        };
        if got == 0 {
            return;
        }
        if let Err(error) = store.append(None, None, audit_events(&batch), clock.now()).await {
            tracing::error!(error = %error_chain(&error), events = got, "audit events of the registry were not stored; they are in this log only");
        }
        batch.clear();
        // At stop the remaining events are written without a pause.
        let _stopped = tokio::time::timeout(PAUSE, stop.cancelled()).await;
    }
}

/// The events of a batch: equal denials as one event; of more than [`DENIALS`] different ones the rest as a number.
fn audit_events(batch: &[AuditEvent]) -> Vec<NewEvent> {
    let mut events = Vec::new();
    let mut denials: Vec<(&AuditEvent, u64)> = Vec::new();
    let mut more = 0_u64;
    for event in batch {
        if !matches!(event.what, Audited::Denied(..)) {
            events.push(audit_event(event, 1));
            continue;
        }
        let equal = |known: &&mut (&AuditEvent, u64)| {
            let known = known.0;
            known.what == event.what
                && known.subject == event.subject
                && known.repository == event.repository
                && known.peer.map(|peer| peer.ip()) == event.peer.map(|peer| peer.ip())
        };
        let room = denials.len() < DENIALS;
        match denials.iter_mut().find(equal) {
            Some((_, count)) => *count += 1,
            None if room => denials.push((event, 1)),
            None => more += 1,
        }
    }
    events.extend(denials.into_iter().map(|(event, count)| audit_event(event, count)));
    if more > 0 {
        let message = format!(
            "{more} more requests to the registry were denied in this second; see the log of the process"
        );
        events.push(NewEvent::warn("registry.denied", message).by("registry").with(json!({ "count": more })));
    }
    events
}

fn audit_event(event: &AuditEvent, count: u64) -> NewEvent {
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

fn why_name(why: Denied) -> &'static str {
    match why {
        Denied::Unauthorized => "unauthorized",
        Denied::OutOfScope => "out_of_scope",
        Denied::Forbidden => "forbidden",
        Denied::RateLimited => "rate_limited",
        Denied::Unavailable => "unavailable",
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

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

    #[test]
    fn equal_denials_are_one_event_and_many_different_ones_a_few() {
        let same: Vec<AuditEvent> = (0..100).map(|_| denial(1, "a")).collect();
        let recorded = audit_events(&same);
        assert_eq!(recorded.len(), 1);
        assert_eq!(recorded[0].data.as_ref().unwrap()["count"], 100);
        let flood: Vec<AuditEvent> = (0..100).map(|number| denial(number, "a")).collect();
        let recorded = audit_events(&flood);
        assert_eq!(recorded.len(), DENIALS + 1);
        assert_eq!(recorded[DENIALS].data.as_ref().unwrap()["count"], 100 - DENIALS);
    }

    #[test]
    fn every_push_is_an_event_of_its_own() {
        let push = AuditEvent {
            subject: Some("ann".to_owned()),
            what: Audited::PushTag,
            reference: Some("v1".parse().unwrap()),
            ..denial(1, "os/a")
        };
        let recorded = audit_events(&[push.clone(), push]);
        assert_eq!(recorded.len(), 2);
        assert_eq!((recorded[0].kind.as_str(), recorded[0].actor.as_str()), ("registry.push-tag", "ann"));
        assert_eq!(recorded[0].message, "ann tagged v1 in os/a");
    }
}
