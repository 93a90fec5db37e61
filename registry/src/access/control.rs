//! Users and a policy combined: a user logs in with a name and a password, or with a token the authenticator accepts.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::RwLock;

use super::credentials::Credentials;
use super::policy::{AccessRequest, Policy, PolicySubject, decide};
use super::{Access, Action, Authorizer, BASIC, Caller, Denied};
use crate::name::{RepositoryName, Tag};

/// Verifies credentials: [`Htpasswd`](super::Htpasswd), or the users of the embedding program.
#[async_trait]
pub trait UserAuthenticator: Send + Sync + 'static {
    /// Returns the subject of these credentials.
    ///
    /// # Errors
    /// [`Denied::Unauthorized`] when the credentials are wrong; [`Denied::Unavailable`] when they cannot be checked
    /// now, or when too many attempts failed.
    async fn authenticate(
        &self,
        credentials: &Credentials,
        caller: Caller<'_>,
    ) -> Result<PolicySubject, Denied>;

    /// Returns the current state of a subject that a token was issued to. It is called at each use of the token, so
    /// that a removed user or group takes effect before the token expires. The default returns `subject` unchanged.
    ///
    /// # Errors
    /// [`Denied::Unauthorized`] when the user no longer exists; [`Denied::Unavailable`] when that cannot be checked
    /// now.
    async fn refresh(&self, subject: PolicySubject) -> Result<PolicySubject, Denied> {
        Ok(subject)
    }
}

/// Authenticates callers with a [`UserAuthenticator`] and authorizes them with a [`Policy`].
pub struct AccessControl {
    users: Arc<dyn UserAuthenticator>,
    policy: RwLock<Arc<Policy>>,
}

impl AccessControl {
    /// Creates the access control from users and a policy.
    pub fn new(users: Arc<dyn UserAuthenticator>, policy: Policy) -> Self {
        AccessControl { users, policy: RwLock::new(Arc::new(policy)) }
    }

    /// Replaces the policy. It applies to every request that is authorized after this call.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write() = Arc::new(policy);
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read())
    }

    /// The subject of a caller. Wrong credentials are refused even where no credentials are needed, so that their owner notices.
    pub(super) async fn subject(&self, caller: Caller<'_>) -> Result<PolicySubject, Denied> {
        let Some(header) = caller.authorization else { return Ok(PolicySubject::Anonymous) };
        let credentials = Credentials::parse(header).ok_or(Denied::Unauthorized)?;
        self.authenticate(&credentials, caller).await
    }

    pub(super) async fn authenticate(
        &self,
        credentials: &Credentials,
        caller: Caller<'_>,
    ) -> Result<PolicySubject, Denied> {
        self.users.authenticate(credentials, caller).await
    }

    /// The current state of a subject that a token was issued to.
    pub(super) async fn refresh(&self, subject: PolicySubject) -> Result<PolicySubject, Denied> {
        match subject {
            PolicySubject::Anonymous => Ok(subject),
            known => self.users.refresh(known).await,
        }
    }

    /// Applies the policy to a subject.
    pub(super) fn check_policy(&self, subject: &PolicySubject, access: Access<'_>) -> Result<(), Denied> {
        let policy = self.policy();
        let allowed = match access.repository {
            None => *subject != PolicySubject::Anonymous || policy.allows_anonymous(),
            Some(repository) => {
                let request = AccessRequest { repository, action: access.action, tag: None };
                let decision = decide(&policy, subject, &request);
                tracing::debug!(%subject, %repository, action = ?access.action, %decision, "access decided");
                decision.allowed
            }
        };
        match subject {
            _ if allowed => Ok(()),
            PolicySubject::Anonymous => Err(Denied::Unauthorized),
            PolicySubject::User { .. } | PolicySubject::Puller { .. } | PolicySubject::Scoped { .. } => {
                Err(Denied::Forbidden)
            }
        }
    }

    pub(super) fn readable_by<'r>(
        &self,
        subject: &PolicySubject,
        repositories: &[&'r RepositoryName],
    ) -> Vec<&'r RepositoryName> {
        let policy = self.policy();
        let may_read = |repository: &&&RepositoryName| {
            let request = AccessRequest { repository, action: Action::Pull, tag: None };
            decide(&policy, subject, &request).allowed
        };
        repositories.iter().filter(may_read).copied().collect()
    }
}

#[async_trait]
impl Authorizer for AccessControl {
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
        self.check_policy(&self.subject(caller).await?, access)
    }

    async fn readable<'r>(
        &self,
        caller: Caller<'_>,
        repositories: &[&'r RepositoryName],
    ) -> Vec<&'r RepositoryName> {
        match self.subject(caller).await {
            Ok(subject) => self.readable_by(&subject, repositories),
            Err(_) => Vec::new(),
        }
    }

    fn immutable(&self, repository: &RepositoryName, tag: &Tag) -> bool {
        self.policy().is_immutable(repository, tag)
    }

    async fn identify(&self, caller: Caller<'_>) -> Option<String> {
        self.subject(caller).await.ok()?.into_name()
    }

    fn optional_challenge(&self, _caller: Caller<'_>) -> Option<String> {
        (!self.policy().login_is_pointless()).then(|| BASIC.to_owned())
    }
}
