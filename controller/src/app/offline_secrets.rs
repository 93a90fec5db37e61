//! The keys of a data directory that no controller uses. They are rotated under the lock of a controller.

use std::sync::Arc;

use super::{StartError, lock, open_data};
use access::audit::{AuditAction, local, record};
use api::ErrorCode;
use keys::{Keys, RotateError, RotationState, RotationView, SecretName, SecretView};
use model::Time;
use settings::Settings;
use store::Store;

/// The keys of a locked data directory.
pub struct OfflineSecrets {
    store: Store,
    keys: Arc<Keys>,
    _lock: lock::DataLock,
}

impl std::fmt::Debug for OfflineSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfflineSecrets").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl OfflineSecrets {
    /// Opens the keys and the database of a data directory under the lock of a controller.
    ///
    /// # Errors
    /// When there is no database, a controller runs on the data directory, or keys or database cannot be opened.
    pub async fn open(settings: &Settings, now: Time) -> Result<Self, StartError> {
        if !settings.db_path.exists() {
            return Err(StartError::NoDatabase { path: settings.db_path.clone() });
        }
        let lock = lock::DataLock::take(settings)?;
        super::backup::refuse_incomplete(settings)?;
        let (keys, store) = open_data(settings, &lock, now).await?;
        Ok(Self { store, keys, _lock: lock })
    }

    /// Every key that is in use, without a value. The certificate is a matter of a running controller.
    ///
    /// # Errors
    /// When the file of the report secret cannot be read.
    pub fn list(&self) -> Result<Vec<SecretView>, RotateError> {
        self.keys.list(None)
    }

    /// Begins or continues a rotation, as [`Keys::rotate`] does. The end of a rotation, and a refused or failed step, are entries
    /// of the audit log.
    ///
    /// # Errors
    /// When [`Keys::rotate`] refuses or fails, or the end of the rotation cannot be stored in the audit log.
    pub async fn rotate(&self, name: SecretName, from: &str, now: Time) -> Result<RotationView, RotateError> {
        let rotated = self.keys.rotate(name, from, &self.store, None, now).await;
        let result = match &rotated {
            Ok(view) if view.state == RotationState::Sealing => return rotated,
            Ok(_) => "ok",
            Err(error) if error.is_refusal() => ErrorCode::ConflictSecret.as_str(),
            Err(_) => ErrorCode::Internal.as_str(),
        };
        let target = ("secret", name.as_str());
        let recorded = record(&self.store, AuditAction::SecretRotate, &local(), target, result, now).await;
        match (rotated, recorded) {
            (Ok(_), Err(lost)) => Err(lost.into()),
            (rotated, _) => rotated,
        }
    }

    /// The database, for tests.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
