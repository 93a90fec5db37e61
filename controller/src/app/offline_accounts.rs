//! The users and API tokens of a data directory that no controller uses: the way back in for an administrator who has lost
//! every login. Reading and writing them needs the lock of a controller.

use super::{StartError, lock, open_data};
use crate::accounts::Accounts;
use crate::audit::{AuditAction, local, local_entry};
use crate::auth::{AuthMode, Logins};
use crate::config::Settings;
use engine::model::Time;
use engine::store::{AuditTrail, Store, audited};

/// Users and API tokens of a locked data directory.
pub struct OfflineAccounts {
    store: Store,
    logins: Logins,
    _lock: lock::DataLock,
}

impl OfflineAccounts {
    /// Opens the database of a data directory under the lock of a controller.
    ///
    /// # Errors
    /// When there is no database, a controller runs on the data directory, or the database cannot be opened.
    pub async fn open(settings: &Settings, now: Time) -> Result<Self, StartError> {
        if !settings.db_path.exists() {
            return Err(StartError::NoDatabase { path: settings.db_path.clone() });
        }
        let lock = lock::DataLock::take(settings)?;
        super::backup::refuse_incomplete(settings)?;
        let (_keys, store) = open_data(settings, &lock, now).await?;
        let logins = Logins {
            passwords: settings.auth_mode == AuthMode::Basic,
            elsewhere: false,
            configured_user: settings.basic_user.clone(),
        };
        Ok(Self { store, logins, _lock: lock })
    }

    /// Carries out a change of this machine's operator; its audit entry is recorded in the transaction of the change.
    pub async fn audited<T>(
        &self,
        action: AuditAction,
        (kind, name): (&str, &str),
        now: Time,
        change: impl Future<Output = T>,
    ) -> T {
        let entry = local_entry(action, kind, name, now);
        let trail = AuditTrail::new(entry, true);
        trail.identify(local());
        audited(trail, change).await
    }

    /// The users and tokens. No last way in is kept: this is the way in.
    pub fn accounts(&self) -> Accounts<'_> {
        Accounts::offline(&self.store, self.logins.clone())
    }
}
