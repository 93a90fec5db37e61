//! The users and API tokens of a data directory that no controller uses: the way back in for an administrator who has lost
//! every login. Reading and writing them needs the lock of a controller.

use super::{StartError, lock, open_data, origin};
use access::accounts::{AccountError, Accounts};
use access::audit::{AuditAction, local, local_entry, record};
use access::auth::{AuthMode, Logins};
use api::ErrorCode;
use model::{Time, error_chain};
use settings::Settings;
use store::{AuditTrail, Store, audited};

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
        // Judged before a change: a login that is made or confirmed here after a restore must not be taken for an old one at the
        // next start.
        origin::Origin::begin(&settings.storage_root, &store, now).await?;
        let logins = Logins {
            passwords: settings.auth_mode == AuthMode::Basic,
            elsewhere: false,
            configured_user: settings.basic_user.clone(),
        };
        Ok(Self { store, logins, _lock: lock })
    }

    /// Carries out a change of this machine's operator. Its audit entry is recorded in the transaction of the change; a change
    /// that was refused has an entry with the code of the refusal.
    ///
    /// # Errors
    /// The error of the change.
    pub async fn audited<T>(
        &self,
        action: AuditAction,
        (kind, name): (&str, &str),
        now: Time,
        change: impl Future<Output = Result<T, AccountError>>,
    ) -> Result<T, AccountError> {
        let entry = local_entry(action, kind, name, now);
        let trail = AuditTrail::new(entry, true);
        trail.identify(local());
        let result = audited(trail, change).await;
        if let Err(error) = &result {
            let code = code_of(error).as_str();
            if let Err(lost) = record(&self.store, action, &local(), (kind, name), code, now).await {
                tracing::error!(error = %error_chain(&lost), "a refused change was not stored in the audit log");
            }
        }
        result
    }

    /// The users and tokens. No last way in is kept: this is the way in.
    pub fn accounts(&self) -> Accounts<'_> {
        Accounts::offline(&self.store, self.logins.clone())
    }
}

/// The code that a controller returns for the same error.
fn code_of(error: &AccountError) -> ErrorCode {
    match error {
        AccountError::Invalid { .. } | AccountError::Password(_) => ErrorCode::ValidationError,
        AccountError::NameTaken(_) | AccountError::WorkerNameTaken(_) => ErrorCode::ConflictName,
        AccountError::UnknownUser(_) => ErrorCode::UnknownUser,
        AccountError::UnknownToken(_) => ErrorCode::UnknownToken,
        AccountError::UnknownWorkerToken(_) => ErrorCode::UnknownWorkerToken,
        AccountError::Full | AccountError::FullOfWorkers => ErrorCode::ConflictAccounts,
        AccountError::LastWayIn => ErrorCode::ConflictLastAdmin,
        AccountError::OtherPassword => ErrorCode::Unauthorized,
        AccountError::NoPassword(_) => ErrorCode::ConflictNoPassword,
        AccountError::Random(_) | AccountError::Busy | AccountError::Store(_) => ErrorCode::Internal,
    }
}
