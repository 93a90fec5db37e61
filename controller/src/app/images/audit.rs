//! What happened in the registry, in the one log and in the metrics.
//!
//! ```text
//!  registry ──record──> counted ──> channel ──once a second──> events      all pushes and deletes; like denials as one
//!                                      └── full: counted as lost; the line in the process's log is written in any case
//! ```
//!
//! Recording never waits: it stands in the way of a push. Whoever guesses credentials cannot fill the disk with it: of
//! denials a few different ones are written a second, the rest as a number. Nothing here has ever seen a credential.

use std::sync::Arc;
use std::time::Duration;

use registry::{AuditEvent, Audited, Denied};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;
use engine::model::{Clock, NewEvent, error_chain};
use engine::store::Store;

/// Events that wait to be written.
const WAITING: usize = 8192;
/// Events written at once.
const AT_ONCE: usize = 4096;
/// Different denials written at once.
const DENIALS: usize = 16;
/// The pause between two writes, in which more comes together.
const PAUSE: Duration = Duration::from_secs(1);

/// Hears what the registry tells.
pub(in crate::app) struct Recorder {
    metrics: Arc<Metrics>,
    waiting: mpsc::Sender<AuditEvent>,
}

impl Recorder {
    /// A recorder, and what it heard.
    pub(in crate::app) fn new(metrics: Arc<Metrics>) -> (Arc<Self>, mpsc::Receiver<AuditEvent>) {
        let (waiting, heard) = mpsc::channel(WAITING);
        (Arc::new(Self { metrics, waiting }), heard)
    }
}

impl registry::Audit for Recorder {
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
        if self.waiting.try_send(event.clone()).is_err() {
            self.metrics.registry_audit_lost();
        }
    }
}

/// Writes what is heard until `stop`, and then what is left.
pub(in crate::app) async fn write(
    mut heard: mpsc::Receiver<AuditEvent>,
    store: Store,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        let got = tokio::select! {
            biased;
            () = stop.cancelled(), if !heard.is_closed() => {
                heard.close();
                continue;
            }
            got = heard.recv_many(&mut batch, AT_ONCE) => got,
        };
        if got == 0 {
            return;
        }
        if let Err(error) = store.append(None, None, stories(&batch), clock.now()).await {
            tracing::error!(error = %error_chain(&error), events = got, "what happened in the registry is in this log only");
        }
        batch.clear();
        // Dropped at the end of the process, when what is left is written at once.
        let _stopped = tokio::time::timeout(PAUSE, stop.cancelled()).await;
    }
}

/// The events of a batch: like denials as one, and of very many different ones the rest as a number.
fn stories(batch: &[AuditEvent]) -> Vec<NewEvent> {
    let mut events = Vec::new();
    let mut denials: Vec<(&AuditEvent, u64)> = Vec::new();
    let mut more = 0_u64;
    for event in batch {
        if !matches!(event.what, Audited::Denied(..)) {
            events.push(story(event, 1));
            continue;
        }
        let alike = |known: &&mut (&AuditEvent, u64)| {
            let known = known.0;
            known.what == event.what
                && known.subject == event.subject
                && known.repository == event.repository
                && known.peer.map(|peer| peer.ip()) == event.peer.map(|peer| peer.ip())
        };
        let room = denials.len() < DENIALS;
        match denials.iter_mut().find(alike) {
            Some((_, count)) => *count += 1,
            None if room => denials.push((event, 1)),
            None => more += 1,
        }
    }
    events.extend(denials.into_iter().map(|(event, count)| story(event, count)));
    if more > 0 {
        let message = format!("{more} more requests to the registry were denied in this second");
        events.push(NewEvent::warn("registry.denied", message).by("registry").with(json!({ "count": more })));
    }
    events
}

fn story(event: &AuditEvent, count: u64) -> NewEvent {
    let who = event.subject.as_deref().unwrap_or("anonymous");
    let place = event.repository.as_ref().map_or_else(|| "the registry".to_owned(), ToString::to_string);
    let reference = event.reference.as_ref().map(ToString::to_string);
    let digest = event.digest.as_ref().map(ToString::to_string);
    let named = reference.clone().or_else(|| digest.clone()).unwrap_or_default();
    let kind = format!("registry.{}", event.what.name().replace('_', "-"));
    let told = |message: String| NewEvent::info(&kind, message);
    let told = match event.what {
        Audited::PushBlob => told(format!("{who} pushed the blob {named} to {place}")),
        Audited::MountBlob => told(format!("{who} mounted the blob {named} in {place}")),
        Audited::PushManifest => told(format!("{who} pushed the manifest {named} to {place}")),
        Audited::PushTag => told(format!("{who} tagged {named} in {place}")),
        Audited::DeleteBlob => told(format!("{who} deleted the blob {named} from {place}")),
        Audited::DeleteManifest => told(format!("{who} deleted the manifest {named} from {place}")),
        Audited::DeleteTag => told(format!("{who} deleted the tag {named} from {place}")),
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
    told.by(who).with(data)
}

fn action_name(action: registry::Action) -> &'static str {
    match action {
        registry::Action::Pull => "pull",
        registry::Action::Push => "push",
        registry::Action::Move => "move",
        registry::Action::Delete => "delete",
        registry::Action::List => "list",
    }
}

fn why_name(why: Denied) -> &'static str {
    match why {
        Denied::Unauthorized => "unauthorized",
        Denied::Forbidden => "forbidden",
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
    fn like_denials_are_one_event_and_a_flood_of_different_ones_a_few() {
        let same: Vec<AuditEvent> = (0..100).map(|_| denial(1, "a")).collect();
        let told = stories(&same);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].data.as_ref().unwrap()["count"], 100);
        let flood: Vec<AuditEvent> = (0..100).map(|number| denial(number, "a")).collect();
        let told = stories(&flood);
        assert_eq!(told.len(), DENIALS + 1);
        assert_eq!(told[DENIALS].data.as_ref().unwrap()["count"], 100 - DENIALS);
    }

    #[test]
    fn every_push_is_told_by_itself() {
        let push = AuditEvent {
            subject: Some("ann".to_owned()),
            what: Audited::PushTag,
            reference: Some("v1".parse().unwrap()),
            ..denial(1, "os/a")
        };
        let told = stories(&[push.clone(), push]);
        assert_eq!(told.len(), 2);
        assert_eq!((told[0].kind.as_str(), told[0].actor.as_str()), ("registry.push-tag", "ann"));
        assert_eq!(told[0].message, "ann tagged v1 in os/a");
    }
}
