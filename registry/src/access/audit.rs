//! The audit of the registry: what changed, which user changed it, and what was refused.
//!
//! ```text
//!  push (blob, manifest, each of its tags), mount, delete (blob, manifest, tag), denial
//!      -> one AuditEvent -> the log, and the embedding program's Audit
//! ```
//!
//! An event is recorded after the change is durable and before the response is sent. It holds names, digests and
//! sizes, never credentials. A request to `/v2/` without credentials asks for the challenge; it is not a denial.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Action, Denied};
use crate::digest::Digest;
use crate::name::{Reference, RepositoryName};

/// Receives every change and every refusal. It runs inside a request, so it must not block.
pub trait Audit: Send + Sync + 'static {
    /// Records one event.
    fn record(&self, event: &AuditEvent);
}

/// A change or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// The time of the event.
    pub time: SystemTime,
    /// The user, when known.
    pub subject: Option<String>,
    /// The address of the client, when the program serves with connect info.
    pub peer: Option<SocketAddr>,
    /// The kind of the event.
    pub what: Audited,
    /// The repository; `None` for what concerns the whole registry.
    pub repository: Option<RepositoryName>,
    /// The tag or digest in the request.
    pub reference: Option<Reference>,
    /// The digest of the content, when known.
    pub digest: Option<Digest>,
    /// The length of the content in bytes, when known.
    pub size: Option<u64>,
}

/// The kind of an [`AuditEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audited {
    /// A blob was uploaded.
    PushBlob,
    /// A blob was mounted from another repository.
    MountBlob,
    /// A manifest was pushed.
    PushManifest,
    /// A tag was set to a manifest.
    PushTag,
    /// A blob was deleted.
    DeleteBlob,
    /// A manifest was deleted together with its tags.
    DeleteManifest,
    /// A tag was deleted.
    DeleteTag,
    /// A request was refused.
    Denied(Action, Denied),
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAudit;

impl Audit for NoAudit {
    fn record(&self, _event: &AuditEvent) {}
}

impl<A: Audit, B: Audit> Audit for (A, B) {
    fn record(&self, event: &AuditEvent) {
        self.0.record(event);
        self.1.record(event);
    }
}

impl<A: Audit + ?Sized> Audit for std::sync::Arc<A> {
    fn record(&self, event: &AuditEvent) {
        (**self).record(event);
    }
}

/// Counts events by kind and pushed bytes since the start, for metrics.
#[derive(Debug, Default)]
pub struct AuditCounters {
    kinds: [AtomicU64; KINDS.len()],
    pushed_bytes: AtomicU64,
}

/// The names of the kinds, in the order of the counters.
const KINDS: [&str; 8] = [
    "push_blob",
    "mount_blob",
    "push_manifest",
    "push_tag",
    "delete_blob",
    "delete_manifest",
    "delete_tag",
    "denied",
];

impl Audited {
    fn index(self) -> usize {
        match self {
            Audited::PushBlob => 0,
            Audited::MountBlob => 1,
            Audited::PushManifest => 2,
            Audited::PushTag => 3,
            Audited::DeleteBlob => 4,
            Audited::DeleteManifest => 5,
            Audited::DeleteTag => 6,
            Audited::Denied(..) => 7,
        }
    }

    /// The name of the kind, such as `push_blob`.
    pub fn name(self) -> &'static str {
        KINDS[self.index()]
    }
}

impl AuditCounters {
    /// The name of each kind with its count.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.into_iter().zip(self.kinds.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// The bytes of all pushed blobs and manifests.
    pub fn pushed_bytes(&self) -> u64 {
        self.pushed_bytes.load(Ordering::Relaxed)
    }
}

impl Audit for AuditCounters {
    fn record(&self, event: &AuditEvent) {
        self.kinds[event.what.index()].fetch_add(1, Ordering::Relaxed);
        if let (Audited::PushBlob | Audited::PushManifest, Some(size)) = (event.what, event.size) {
            self.pushed_bytes.fetch_add(size, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Audited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl AuditEvent {
    /// Writes the event to the log.
    pub(crate) fn log(&self) {
        let shown = |value: &Option<String>| value.clone().unwrap_or_default();
        let repository = shown(&self.repository.as_ref().map(ToString::to_string));
        let reference = shown(&self.reference.as_ref().map(ToString::to_string));
        let digest = shown(&self.digest.as_ref().map(ToString::to_string));
        let subject = self.subject.as_deref().unwrap_or("anonymous");
        let peer = shown(&self.peer.map(|peer| peer.to_string()));
        match self.what {
            Audited::Denied(action, why) => {
                tracing::info!(what = %self.what, ?action, %why, subject, peer, repository, "registry access denied");
            }
            what => tracing::info!(
                %what, subject, peer, repository, reference, digest, size_bytes = self.size, "registry changed"
            ),
        }
    }
}
