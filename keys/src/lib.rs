//! The keys that the appliance makes or holds: what they are for, and how each one is rotated.
//!
//! ```text
//!  master       seals stored secrets      new version ──> every record sealed again ──> counted: 0 name the former ──> removed
//!  signing      signs issued tokens       new version ──> both accepted for the overlap ──> removed       (stored sealed)
//!  report       shared report secret      new text    ──> both accepted for the overlap ──> removed
//!  certificate  of the TLS listeners      new key pair, in force for new connections
//! ```
//!
//! A rotation is a sequence of short calls of [`Keys::rotate`] that name the version to leave. Each call does a bounded piece of
//! work and returns where the rotation is. A call that is repeated, also after a crash, continues: the key file shows which
//! versions are accepted, and every sealed record names its version. Nothing else is stored about a rotation.
//!
//! Invariants
//! - A version is durable in its file before it seals or signs anything.
//! - A former version of the master key is removed only after a count of 0 records that name it, and that count stays 0
//!   ([`store::Store::between_writes`]).
//! - No view, error or log line contains a key.
//!
//! Decision D30; docs/operating.md.

mod error;
mod master;
mod report;
mod signing;
mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use access::tls::Certificates;
use model::{Clock, Time, error_chain};
use secrets::{KeyRing, KeyVersion, MasterKeyError, replace_key_file};
use settings::Settings;
use store::Store;

pub use error::RotateError;
pub use view::{FormerKey, RotationState, RotationView, SecretName, SecretView};

pub use report::{ReportSource, previous_report_secret};

use self::master::Pass;

/// The least time for which the former version of the signing key is accepted after a rotation: longer than any token of
/// the registry that it signs is valid. A signed URL of a task image may be valid for longer; then the version is accepted for
/// `MEDIA_URL_TTL`.
pub const SIGNING_OVERLAP: Duration = Duration::from_secs(3600);
/// The time for which the former report secret is accepted after a rotation, while the systems that report receive the new one.
pub const REPORT_OVERLAP: Duration = Duration::from_secs(24 * 3600);
/// The interval of checks for versions whose time has ended.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The source of the master key.
#[derive(Clone, Debug)]
enum Source {
    /// A file that the program made and replaces.
    File(PathBuf),
    /// A setting; the operator changes it.
    Setting,
    /// Neither: a simulation.
    Memory,
}

/// A key ring and its source.
#[derive(Debug)]
struct Held {
    ring: KeyRing,
    source: Source,
}

impl Held {
    /// Makes these versions durable. Blocks on the disk.
    fn store(&self, in_force: &KeyVersion, accepted: &[KeyVersion]) -> Result<(), RotateError> {
        match &self.source {
            Source::File(path) => {
                replace_key_file(path, in_force, accepted, &model::failpoint::hit)?;
                Ok(())
            }
            Source::Setting | Source::Memory => Err(RotateError::NotOurs),
        }
    }
}

/// The master key of an installation, read from its source.
#[derive(Debug)]
pub struct MasterKeySource(Held);

impl MasterKeySource {
    /// Reads the key file of these settings, which is made at the first start, before the database. `given` is the ring of the setting
    /// `MASTER_KEY`.
    ///
    /// # Errors
    /// When the file cannot be read or made, and when it is gone while the database exists: a new key would open nothing of it.
    pub fn open(settings: &Settings, given: Option<KeyRing>) -> Result<Self, MasterKeyError> {
        if let Some(ring) = given {
            return Ok(Self(Held { ring, source: Source::Setting }));
        }
        let path = settings.master_key_file();
        let has_database = std::fs::metadata(&settings.db_path).is_ok_and(|file| file.len() > 0);
        if has_database && KeyRing::load(&path)?.is_none() {
            return Err(MasterKeyError::Lost { path, database: settings.db_path.clone() });
        }
        let ring = KeyRing::load_or_create(&path)?;
        Ok(Self(Held { ring, source: Source::File(path) }))
    }

    /// The ring that seals stored secrets.
    pub fn ring(&self) -> &KeyRing {
        &self.0.ring
    }
}

/// The keys of an installation.
#[derive(Debug)]
pub struct Keys {
    master: Held,
    signing: KeyRing,
    /// The time for which the former version of the signing key is accepted after a rotation: all that it signs has ended then.
    signing_overlap: Duration,
    report: RwLock<ReportSource>,
    /// One rotation at a time; where the pass of the present one is.
    turn: tokio::sync::Mutex<Pass>,
}

impl Keys {
    /// The keys of an installation: the master key of its settings, and the signing key of its database, which is made at the first
    /// start.
    ///
    /// # Errors
    /// When the database cannot be read or the system returns no random bytes.
    pub async fn open(
        settings: &Settings,
        master: MasterKeySource,
        store: &Store,
        now: Time,
    ) -> Result<Self, RotateError> {
        Ok(Self {
            master: master.0,
            signing: signing::open(store, now).await?,
            signing_overlap: SIGNING_OVERLAP.max(settings.media_url_ttl),
            report: RwLock::new(ReportSource::of(settings)),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Keys of a simulation, which has no files. They are not rotated.
    pub fn in_memory(ring: &KeyRing) -> Self {
        let master = Held { ring: ring.clone(), source: Source::Memory };
        Self {
            master,
            signing: ring.clone(),
            signing_overlap: SIGNING_OVERLAP,
            report: RwLock::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The ring that seals stored secrets.
    pub fn master(&self) -> &KeyRing {
        &self.master.ring
    }

    /// The ring that signs issued tokens and makes the seeds of runs.
    pub fn signing(&self) -> &KeyRing {
        &self.signing
    }

    /// Begins or continues the rotation that leaves the version `from`, as [`SecretView::key_id`] names it. Does a bounded piece
    /// of work; the caller repeats the call until the rotation has ended.
    ///
    /// # Errors
    /// When the operator holds the key, a file or the database fails, or a record cannot be sealed again. The rotation can be
    /// continued then.
    pub async fn rotate(
        &self,
        name: SecretName,
        from: &str,
        store: &Store,
        certificates: Option<&Arc<Certificates>>,
        now: Time,
    ) -> Result<RotationView, RotateError> {
        let mut pass = self.turn.lock().await;
        match name {
            SecretName::Master => self.rotate_master(&mut pass, from, store, now).await,
            SecretName::Signing => self.rotate_signing(from, store, now).await,
            SecretName::Report => self.rotate_report(from, now),
            SecretName::Certificate => rotate_certificate(from, certificates).await,
        }
    }

    /// Removes former versions whose time has ended, now and at intervals until `stop`. `changed` is called when the former report
    /// secret was removed.
    pub async fn watch(
        self: Arc<Self>,
        store: Store,
        clock: Arc<dyn Clock>,
        changed: impl Fn() + Send,
        stop: CancellationToken,
    ) {
        loop {
            {
                let _turn = self.turn.lock().await;
                let now = clock.now();
                let removed = match self.remove_ended(&store, now).await {
                    Ok(()) => self.remove_ended_report(now),
                    Err(error) => Err(error),
                };
                match removed {
                    Ok(true) => changed(),
                    Ok(false) => {}
                    Err(error) => tracing::error!(
                        error = %error_chain(&error),
                        "a former key whose time has ended could not be removed"
                    ),
                }
            }
            if tokio::time::timeout(CHECK_INTERVAL, stop.cancelled()).await.is_ok() {
                return;
            }
        }
    }
}

/// Issues a certificate with a new key pair.
async fn rotate_certificate(
    from: &str,
    certificates: Option<&Arc<Certificates>>,
) -> Result<RotationView, RotateError> {
    let certificates = certificates.ok_or(RotateError::NoTls)?;
    let state = certificates.state();
    if !state.own_authority {
        return Err(RotateError::NotOurs);
    }
    if view::short(&state.certificate_sha256) == from {
        let certificates = Arc::clone(certificates);
        let renewed = tokio::task::spawn_blocking(move || certificates.renew()).await;
        renewed
            .map_err(|_panic| RotateError::Busy)?
            .map_err(|error| RotateError::Certificate(Box::new(error)))?;
    }
    Ok(RotationView {
        name: SecretName::Certificate,
        state: RotationState::Ended,
        key_id: view::short(&certificates.state().certificate_sha256).to_owned(),
        from: from.to_owned(),
        resealed: 0,
        checked: None,
        accepted_until: None,
        next_action: None,
    })
}
