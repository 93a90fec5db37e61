//! Users.

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AccountError, Accounts};
use crate::auth::{MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES, PasswordError, Role, hash_password};
use model::{NewEvent, Time};
use store::{AccountWritten, StoredUser, UserChange};

/// A user, without the password.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "User")]
pub struct UserView {
    /// The name for the login.
    pub name: String,
    /// What the user may do.
    pub role: String,
    /// Since when the user cannot log in; null when the user can.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub disabled_at: Option<Time>,
    /// The name of the user or token that created the user.
    pub created_by: String,
    /// When the user was created.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Time,
    /// When role, password or state last changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub updated_at: Time,
    /// Whether logins are refused because the data was restored and no administrator has confirmed the user.
    pub unconfirmed: bool,
}

impl From<StoredUser> for UserView {
    fn from(user: StoredUser) -> Self {
        let StoredUser { name, role, disabled_at, created_by, created_at, updated_at, unconfirmed, .. } =
            user;
        Self { name, role, disabled_at, created_by, created_at, updated_at, unconfirmed }
    }
}

/// A user to create.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewUser")]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The name: letters, digits and characters of `-._@`.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What the user may do: `admin`, `operator` or `viewer`.
    pub role: Role,
    /// The password.
    #[schemars(with = "String", length(min = MIN_PASSWORD_BYTES, max = MAX_PASSWORD_BYTES))]
    pub password: SecretString,
}

/// A change of a user; a field that is absent leaves its value.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "UserChange")]
#[serde(deny_unknown_fields)]
pub struct ChangedUser {
    /// The new role: `admin`, `operator` or `viewer`.
    pub role: Option<Role>,
    /// The new password.
    #[schemars(with = "Option<String>", length(min = MIN_PASSWORD_BYTES, max = MAX_PASSWORD_BYTES))]
    pub password: Option<SecretString>,
    /// Whether the user cannot log in.
    pub disabled: Option<bool>,
}

impl Accounts<'_> {
    /// All users by name.
    ///
    /// # Errors
    /// [`AccountError::Store`] when the database fails.
    pub async fn users(&self) -> Result<Vec<UserView>, AccountError> {
        Ok(self.store.users().await?.into_iter().map(UserView::from).collect())
    }

    /// The user with this name.
    ///
    /// # Errors
    /// [`AccountError::UnknownUser`] when there is none.
    pub async fn user(&self, name: &str) -> Result<UserView, AccountError> {
        let user = self.store.user(name).await?;
        user.map(UserView::from).ok_or_else(|| AccountError::UnknownUser(shown(name)))
    }

    /// Creates a user. `by` is the actor of the event.
    ///
    /// # Errors
    /// [`AccountError`] when a value cannot be used, the name is taken, or the database fails.
    pub async fn create_user(&self, new: NewUser, by: &str, now: Time) -> Result<UserView, AccountError> {
        self.check_name(&new.name)?;
        let role = for_users(new.role)?;
        let user = StoredUser {
            password_hash: hashed(new.password).await?,
            role: role.to_string(),
            disabled_at: None,
            created_by: by.to_owned(),
            created_at: now,
            updated_at: now,
            unconfirmed: false,
            name: new.name,
        };
        let event = NewEvent::info("user.created", format!("user {} with role {role} created", user.name))
            .by(by)
            .with(json!({ "user": user.name, "role": role }));
        let name = user.name.clone();
        user_of(self.store.create_user(user, event).await?, &name)
    }

    /// Changes a user.
    ///
    /// # Errors
    /// [`AccountError`] when a value cannot be used, the user is unknown, no administrator could log in afterwards, or the
    /// database fails.
    pub async fn change_user(
        &self,
        name: &str,
        change: ChangedUser,
        by: &str,
        now: Time,
    ) -> Result<UserView, AccountError> {
        self.change(name, change, None, by, now).await
    }

    async fn change(
        &self,
        name: &str,
        change: ChangedUser,
        former: Option<PasswordNow>,
        by: &str,
        now: Time,
    ) -> Result<UserView, AccountError> {
        let role = change.role.map(for_users).transpose()?;
        let mut what = Vec::new();
        what.extend(role.map(|role| format!("role {role}")));
        what.extend(
            change.disabled.map(|disabled| (if disabled { "disabled" } else { "enabled" }).to_owned()),
        );
        what.extend(change.password.as_ref().map(|_| "new password".to_owned()));
        if what.is_empty() {
            return self.user(name).await;
        }
        self.user(name).await?;
        let password_hash = match change.password {
            Some(password) => Some(hashed(password).await?),
            None => None,
        };
        let event = NewEvent::info("user.changed", format!("user {} changed: {}", shown(name), what.join(", ")))
            .by(by)
            .with(json!({
                "user": shown(name), "role": role, "disabled": change.disabled, "password": password_hash.is_some(),
            }));
        let change = UserChange {
            role: role.map(|role| role.to_string()),
            password_hash,
            disabled: change.disabled,
            former_hash: former.map(|former| former.0),
        };
        user_of(self.store.change_user(name, change, self.guard(), event, now).await?, name)
    }

    /// The present password of a user, for [`Self::change_own_password`].
    ///
    /// # Errors
    /// [`AccountError`] when the user is unknown, or the database fails.
    pub async fn password_now(&self, name: &str) -> Result<PasswordNow, AccountError> {
        let user = self.store.user(name).await?;
        user.map(|user| PasswordNow(user.password_hash)).ok_or_else(|| AccountError::UnknownUser(shown(name)))
    }

    /// Gives a user another password, unless the password has changed since `former` was read: the caller has verified the credentials
    /// of the request after that, so that a reset by an administrator is not undone by a request that had begun before it.
    ///
    /// # Errors
    /// [`AccountError::OtherPassword`] when it has changed; those of [`Self::change_user`].
    pub async fn change_own_password(
        &self,
        name: &str,
        password: SecretString,
        former: PasswordNow,
        now: Time,
    ) -> Result<(), AccountError> {
        let change = ChangedUser { password: Some(password), ..ChangedUser::default() };
        self.change(name, change, Some(former), name, now).await.map(|_| ())
    }

    /// Accepts a user of restored data again, with the password of that data.
    ///
    /// # Errors
    /// [`AccountError`] when the user is unknown, or the database fails.
    pub async fn confirm_user(&self, name: &str, by: &str, now: Time) -> Result<UserView, AccountError> {
        let event =
            NewEvent::info("user.confirmed", format!("user {} of restored data confirmed", shown(name)))
                .by(by)
                .with(json!({ "user": shown(name) }));
        user_of(self.store.confirm_user(name, event, now).await?, name)
    }

    /// Removes a user. API tokens that the user created stay.
    ///
    /// # Errors
    /// [`AccountError`] when the user is unknown, no administrator could log in afterwards, or the database fails.
    pub async fn remove_user(&self, name: &str, by: &str, now: Time) -> Result<UserView, AccountError> {
        let event = NewEvent::info("user.removed", format!("user {} removed", shown(name)))
            .by(by)
            .with(json!({ "user": shown(name) }));
        user_of(self.store.remove_user(name, self.guard(), event, now).await?, name)
    }
}

/// A name from a request, bounded for texts.
pub(super) fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(super::MAX_NAME).collect()
}

fn user_of(written: AccountWritten<StoredUser>, name: &str) -> Result<UserView, AccountError> {
    match written {
        AccountWritten::Done(user) => Ok(user.into()),
        AccountWritten::Unknown => Err(AccountError::UnknownUser(shown(name))),
        AccountWritten::NameTaken => Err(AccountError::NameTaken(shown(name))),
        AccountWritten::Full => Err(AccountError::Full),
        AccountWritten::LastWayIn => Err(AccountError::LastWayIn),
        AccountWritten::OtherPassword => Err(AccountError::OtherPassword),
    }
}

/// The password of a user at one time. Nothing shows it.
pub struct PasswordNow(String);

fn for_users(role: Role) -> Result<Role, AccountError> {
    if role.is_for_users() {
        return Ok(role);
    }
    let message = "the role of a user is admin, operator or viewer".to_owned();
    Err(AccountError::Invalid { field: "role", message })
}

/// The hash of a password. Hashing takes tens of milliseconds, so it runs outside of the threads that serve requests.
async fn hashed(password: SecretString) -> Result<String, AccountError> {
    let hashed = tokio::task::spawn_blocking(move || hash_password(&password)).await;
    hashed.map_err(|_stopped| AccountError::Busy)?.map_err(|error| match error {
        PasswordError::Random(random) => AccountError::Random(random),
        other => AccountError::Password(other),
    })
}
